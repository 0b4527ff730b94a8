// The arbiter over hardware that switches between programs by itself, in virtual time.
#include <algorithm>
#include <deque>
#include <map>

#include "tests/unit/vgpud/arbiter_fixture.h"

namespace bandsaw {
namespace {

constexpr Time kStep = 50 * kMicrosecond;

// A program of one virtual GPU: time slices of `length`, up to `at_once` of them, with a pause after each `steps`.
struct Program {
  std::string vgpu;
  GrantPage* grant_page = nullptr;
  uint32_t slot = 0;
  Time length = kMillisecond;
  uint32_t at_once = 4, steps = 0;
  Time pause = 0;

  std::deque<Time> work{};  // what is left of each time slice
  Time head_begun = 0, back_at = 0;
  uint32_t issued = 0;
  bool asking = false;
  Time served = 0, slice = 2048 * kMicrosecond;

  Gate& gate() { return grant_page->gates[slot][kCompute]; }
};

class ArbiterTimeSlicesTest : public ArbiterFixture {
 protected:
  void make(const ArbiterOptions& options = {}) { core_ = std::make_unique<ArbiterCore>(options); }
  void join(const std::string& name, int percent, int cap = 100) {
    add(name, percent, Sharing::kTimeSliced, cap);
    auto& page = pages_[name] = std::make_unique<GrantPage>();
    core_->attach(name, page.get(), now_);
    next_ = core_->run(now_);
  }
  Program& start(const std::string& name, uint32_t groups = 1) {
    const auto slot = static_cast<uint32_t>(
        std::count_if(programs_.begin(), programs_.end(), [&](const auto& one) { return one->vgpu == name; }));
    core_->set_channel_groups(name, slot, groups, now_);
    programs_.push_back(
        std::make_unique<Program>(Program{.vgpu = name, .grant_page = pages_[name].get(), .slot = slot}));
    return *programs_.back();
  }
  void ring(Program& program) {
    set_pending(*program.grant_page, program.slot);
    core_->on_pending(program.vgpu, now_);
    run_core();
  }
  void run_core() {
    ++runs_;
    next_ = core_->run(now_);
    for (const TimeSliceOrder& order : core_->take_time_slices()) {
      checks_ += order.check;
      for (const auto& program : programs_) {
        if (program->vgpu == order.vgpu && program->slot == order.slot) {
          program->slice = order.microseconds * kMicrosecond;
          ++orders_;
        }
      }
    }
  }
  void issue(Program& program) {
    Gate& gate = program.gate();
    if (program.asking && gate.granted == gate.asked) {
      program.asking = false;
      begin(program);
    }
    while (!program.asking && now_ >= program.back_at && program.work.size() < program.at_once) {
      if (program.steps != 0 && program.issued == program.steps) return;
      if (gate.open) {
        begin(program);
        continue;
      }
      ++gate.asked;
      program.asking = true;
      ring(program);
      if (gate.granted == gate.asked) return issue(program);
    }
  }
  void begin(Program& program) {
    ++program.gate().begun;
    ++program.issued;
    program.work.push_back(program.length);
  }
  void end(Program& program) {
    program.work.pop_front();
    Gate& gate = program.gate();
    gate.busy_ns += static_cast<uint64_t>(now_ + kStep - program.head_begun);
    program.head_begun =
        program.work.empty() ? 0 : now_ + kStep;  // the next one's begin is reached with this one's end
    if (program.work.empty()) ++gate.rests;
    ++gate.ended;
    if (program.work.empty() && program.steps != 0) {
      program.issued = 0;
      program.back_at = now_ + program.pause;
    }
    if (!gate.open) ring(program);
  }
  // Whoever is on the engine stays for its time slice, or until it has no work.
  void serve() {
    if (turn_ >= programs_.size() || programs_[turn_]->work.empty() || turn_left_ <= 0) {
      for (size_t i = 1; i <= programs_.size(); ++i) {
        const size_t next = (turn_ + i) % programs_.size();
        if (programs_[next]->work.empty()) continue;
        turn_ = next;
        turn_left_ = programs_[next]->slice;
        break;
      }
    }
    if (turn_ >= programs_.size() || programs_[turn_]->work.empty()) return;
    Program& program = *programs_[turn_];
    if (program.head_begun == 0) program.head_begun = now_;
    turn_left_ -= kStep;
    program.served += kStep;
    program.work.front() -= kStep;
  }
  void run_for(Time span) {
    for (const Time until = now_ + span; now_ < until; now_ += kStep) {
      for (const auto& program : programs_) issue(*program);
      serve();
      for (const auto& program : programs_) {
        if (!program->work.empty() && program->work.front() <= 0) end(*program);
      }
      if (now_ >= next_) run_core();
    }
  }
  double percent(Program& program, Time span) {
    return 100 * static_cast<double>(std::exchange(program.served, 0)) / static_cast<double>(span);
  }

  std::map<std::string, std::unique_ptr<GrantPage>> pages_;
  std::vector<std::unique_ptr<Program>> programs_;
  int orders_ = 0, runs_ = 0, checks_ = 0;

 private:
  size_t turn_ = 0;
  Time turn_left_ = 0;
};

TEST_F(ArbiterTimeSlicesTest, LongKernelsAndAStepThatPausesGetTheirShares) {
  make();
  join("a", 75), join("b", 25);
  Program &step = start("a"), &sgemm = start("b");
  step.steps = 33, step.length = 2 * kMillisecond, step.pause = kMillisecond;
  sgemm.length = 163 * kMillisecond;
  run_for(2 * kSecond);
  EXPECT_EQ(core_->why_gates(), "");
  uint64_t charged_step = 0, charged_sgemm = 0;
  percent(step, 1), percent(sgemm, 1), charged("a", &charged_step, 1), charged("b", &charged_sgemm, 1);
  run_for(4 * kSecond);
  const double had = percent(step, 4 * kSecond);
  EXPECT_NEAR(had, 75, 2);
  EXPECT_NEAR(percent(sgemm, 4 * kSecond), 25, 2);
  EXPECT_NEAR(charged("a", &charged_step, 4 * kSecond), had, 2) << "what it is charged is what it had";
  EXPECT_LT(orders_, 6000 / 20 * 2) << "control calls cost something";
}

// Their ends come more or less often than they are read, and in lumps.
TEST_F(ArbiterTimeSlicesTest, HowLongTheTimeSlicesOfTheGateAreDoesNotMatter) {
  for (const Time length : {50 * kMicrosecond, 300 * kMicrosecond, 1700 * kMicrosecond, 40 * kMillisecond}) {
    programs_.clear();
    make();
    join("a", 50), join("b", 30), join("c", 20);
    Program &first = start("a"), &second = start("b"), &third = start("c");
    first.length = length;
    first.steps = static_cast<uint32_t>(66 * kMillisecond / length), first.pause = 500 * kMicrosecond;
    second.length = 163 * kMillisecond, second.at_once = 1;
    third.length = 8 * kMillisecond;
    run_for(3 * kSecond);
    for (Program* program : {&first, &second, &third}) percent(*program, 1);
    run_for(3 * kSecond);
    EXPECT_NEAR(percent(first, 3 * kSecond), 50, 3) << length;
    EXPECT_NEAR(percent(second, 3 * kSecond), 30, 2.5) << length;
    EXPECT_NEAR(percent(third, 3 * kSecond), 20, 2) << length;
    core_.reset();
  }
}

TEST_F(ArbiterTimeSlicesTest, EightProcessesGetTheShareOfOne) {
  make();
  join("a", 50), join("b", 50);
  Program& one = start("a");
  for (int i = 0; i < 8; ++i) start("b");
  run_for(kSecond);
  percent(one, 1);
  run_for(2 * kSecond);
  EXPECT_NEAR(percent(one, 2 * kSecond), 50, 2);
}

// Their runners believe that work which is shorter was not interrupted.
TEST_F(ArbiterTimeSlicesTest, ProcessesOfOneVirtualGpuHaveTheTimeSlicesThatTheyAreTold) {
  make();
  join("a", 50);
  Program& first = start("a");
  const auto told = [&] { return static_cast<Time>(first.grant_page->time_slice_ns); };
  run_for(100 * kMillisecond);
  EXPECT_EQ(orders_, 0) << "alone it has no use for them";
  EXPECT_EQ(told(), 2 * kMillisecond) << "the driver's";
  for (int i = 0; i < 7; ++i) start("a");
  run_for(kSecond);
  EXPECT_GE(orders_, 8);
  EXPECT_GT(told(), 2 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(first.slice), static_cast<double>(told()), kMicrosecond);
}

// Where priorities of processes are kept, who goes first has nearly all of the virtual GPU's time.
TEST_F(ArbiterTimeSlicesTest, PrioritiesOfProcessesDivideTheTimeOfTheirVirtualGpu) {
  for (const bool kept : {false, true}) {
    programs_.clear();
    make({.process_priorities = kept});
    join("a", 50), join("b", 50);
    Program &high = start("a"), &low = start("a"), &other = start("b");
    high.gate().priority = 5;
    run_for(kSecond);
    for (Program* program : {&high, &low, &other}) percent(*program, 1);
    run_for(2 * kSecond);
    const double of_high = percent(high, 2 * kSecond), of_low = percent(low, 2 * kSecond);
    EXPECT_NEAR(of_high + of_low, 50, 2) << "what the virtual GPU has does not change";
    EXPECT_NEAR(of_high, kept ? 45 : 25, 3);
    EXPECT_NEAR(percent(other, 2 * kSecond), 50, 2);
    // Each runner judges its samples by its own.
    const uint64_t own = high.gate().own_time_slice_ns, shortest = high.grant_page->time_slice_ns;
    EXPECT_EQ(low.gate().own_time_slice_ns, 0u);
    EXPECT_NEAR(static_cast<double>(low.slice), static_cast<double>(shortest), kMicrosecond);
    EXPECT_NEAR(static_cast<double>(high.slice), static_cast<double>(kept ? own : shortest), kMicrosecond);
    EXPECT_EQ(own > shortest, kept);
    // Alone in its virtual GPU, the other has all of it.
    high.at_once = 0;
    run_for(kSecond);
    percent(low, 1);
    run_for(2 * kSecond);
    EXPECT_NEAR(percent(low, 2 * kSecond), 50, 2);
    core_.reset();
  }
}

TEST_F(ArbiterTimeSlicesTest, WhoIsAloneAsksOnce) {
  make();
  join("a", 50), join("b", 50);
  Program& alone = start("a");
  run_for(kSecond);
  EXPECT_EQ(alone.gate().open, kOpenWide);
  EXPECT_EQ(alone.gate().asked, 1u);
  EXPECT_EQ(orders_, 0) << "with nobody else there is nothing to set";
  EXPECT_NEAR(percent(alone, kSecond), 100, 0.1);
}

TEST_F(ArbiterTimeSlicesTest, WhoIsAloneIsLookedAtOnceInAPeriod) {
  make();
  join("a", 50), join("b", 50);
  start("a");
  run_for(100 * kMillisecond);
  runs_ = 0;
  run_for(3 * kSecond);
  EXPECT_LE(runs_, 3 * kSecond / ArbiterOptions{}.period_ns + 1);
}

// Runners read the word often: what others write to its line costs them time.
TEST_F(ArbiterTimeSlicesTest, WhetherSomebodyElseHasWorkIsWrittenWhenItChanges) {
  make();
  join("a", 50), join("b", 50);
  Program &mine = start("a"), &other = start("b");
  other.back_at = now_ + kSecond, other.steps = 1, other.pause = 100 * kSecond;
  run_for(kSecond / 2);
  EXPECT_EQ(mine.gate().no_waiters, 1u);
  constexpr uint32_t kMark = 7;
  mine.gate().no_waiters = kMark;
  run_for(kSecond / 4);
  EXPECT_EQ(mine.gate().no_waiters, kMark) << "it is written, though it is the same";
  run_for(kSecond / 4 + 5 * kMillisecond);
  EXPECT_EQ(mine.gate().no_waiters, 0u) << "the other one has come";
  run_for(kSecond);
  EXPECT_EQ(mine.gate().no_waiters, 1u) << "and gone";
}

TEST_F(ArbiterTimeSlicesTest, IdleGatesAreClosed) {
  make();
  join("a", 50);
  Program& program = start("a");
  program.steps = 1, program.pause = 200 * kMillisecond;
  run_for(100 * kMillisecond);
  EXPECT_EQ(program.gate().open, 0u);
  EXPECT_EQ(next_, ArbiterCore::kNever) << "nothing is read meanwhile";
}

TEST_F(ArbiterTimeSlicesTest, ACapHolds) {
  make();
  join("a", 30, 30);
  Program& program = start("a");
  program.at_once = 2;
  run_for(3 * kSecond);
  EXPECT_NEAR(percent(program, 3 * kSecond), 30, 2);
}

TEST_F(ArbiterTimeSlicesTest, GatesHoldTheSharesWhereTimeSlicesCannot) {
  struct {
    const char *policy, *why;
    uint32_t groups;
  } const cases[] = {{"fifo", "policy fifo grants the engine to one at a time", 1},
                     {"band+", "a program of b has no known channel groups", 0}};
  for (const auto& one : cases) {
    programs_.clear();
    make({.policy = one.policy});
    join("a", 50), join("b", 50);
    Program &mine = start("a"), &other = start("b", one.groups);
    run_for(kSecond);
    EXPECT_EQ(core_->why_gates(), one.why);
    EXPECT_NE(mine.gate().open, kOpenWide);
    EXPECT_NEAR(percent(mine, kSecond), 50, 5) << one.policy;
    EXPECT_NEAR(percent(other, kSecond), 50, 5) << one.policy;
    core_.reset();
  }
}

TEST_F(ArbiterTimeSlicesTest, AFailedControlTurnsTheGatesOnAndTheEndOfItsProgramOffAgain) {
  make();
  join("a", 75), join("b", 25);
  Program &mine = start("a"), &other = start("b");
  run_for(kSecond);
  EXPECT_EQ(core_->why_gates(), "");
  core_->time_slice_failed("b", 0, Status::error(EPERM, "refused"), now_);
  run_for(kSecond);
  EXPECT_NE(core_->why_gates(), "");
  percent(mine, 1), percent(other, 1);
  run_for(kSecond);
  EXPECT_NEAR(percent(mine, kSecond), 75, 4);
  EXPECT_NEAR(percent(other, kSecond), 25, 4);
  // Its session clears the gates of a runner that has gone.
  other.work.clear();
  other.asking = false;
  other.back_at = now_ + 100 * kSecond;
  Gate& gate = other.gate();
  gate.begun = gate.ended = gate.asked = gate.granted = gate.open = 0;
  ++other.grant_page->generation[0];
  core_->forget_channel_groups("b", 0, now_);
  ring(other);
  run_for(100 * kMillisecond);
  EXPECT_EQ(core_->why_gates(), "");
  EXPECT_EQ(mine.gate().open, kOpenWide);
}

TEST_F(ArbiterTimeSlicesTest, AProgramWhoseContextIsGoneTurnsNothingOffUnlessItGoesOn) {
  for (const bool said : {true, false}) {  // by its runner, or found by an order
    programs_.clear();
    make();
    join("a", 75), join("b", 25);
    start("a");
    Program& other = start("b");
    run_for(kSecond);
    other.back_at = now_ + 100 * kSecond;
    run_for(kSecond);
    if (said) {
      core_->set_channel_groups("b", 0, 0, now_);
    } else {
      core_->time_slice_failed("b", 0, Status::error(ESRCH, "no such group"), now_);
    }
    run_for(kSecond);
    EXPECT_EQ(core_->why_gates(), "");
    other.back_at = 0;
    run_for(kSecond);
    EXPECT_EQ(core_->why_gates(), "a program of b has no known channel groups");
    core_->set_channel_groups("b", 0, 1, now_);
    run_for(kSecond);
    EXPECT_EQ(core_->why_gates(), "");
    core_.reset();
  }
}

TEST_F(ArbiterTimeSlicesTest, NewGroupsOfARunnerGetItsTimeSlice) {
  make();
  join("a", 75), join("b", 25);
  Program& mine = start("a");
  start("b");
  run_for(kSecond);
  mine.slice = 1;
  core_->set_channel_groups("a", 0, 1, now_);
  run_for(10 * kMillisecond);
  EXPECT_GT(mine.slice, kMillisecond);
}

TEST_F(ArbiterTimeSlicesTest, TimeSlicesAreComparedNowAndThen) {
  make();
  join("a", 50), join("b", 50);
  start("a"), start("b");
  run_for(2 * kSecond);
  checks_ = 0;
  run_for(10 * kSecond);
  EXPECT_GE(checks_, 18);
  EXPECT_LE(checks_, 20) << "each costs a call of the driver";
}

TEST_F(ArbiterTimeSlicesTest, ARunnerThatSetsItsOwnAgainAndAgainIsEnded) {
  make();
  join("a", 50), join("b", 50);
  start("a"), start("b");
  run_for(kSecond);
  const Time first = now_;
  EXPECT_TRUE(core_->time_slice_changed("a", 0, now_)) << "which is said";
  core_->set_channel_groups("a", 0, 2, now_);  // it makes a context meanwhile, which changes nothing
  run_for(kSecond);
  EXPECT_FALSE(core_->time_slice_changed("a", 0, now_));
  EXPECT_TRUE(core_->take_runner_ends().empty());
  run_for(kSecond);
  EXPECT_FALSE(core_->time_slice_changed("a", 0, now_));
  const auto ends = core_->take_runner_ends();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].vgpu, "a");
  EXPECT_EQ(ends[0].reason, RunnerEndReason::kOwnTimeSlices);
  EXPECT_EQ(ends[0].since, first);
  core_->forget_channel_groups("a", 0, now_);
  core_->set_channel_groups("a", 0, 1, now_);
  EXPECT_TRUE(core_->time_slice_changed("a", 0, now_)) << "the next runner begins anew";
  EXPECT_FALSE(core_->time_slice_changed("c", 0, now_));
}

TEST_F(ArbiterTimeSlicesTest, AProgramThatHasEndedTurnsNothingOn) {
  make();
  join("a", 50);
  Program& program = start("a", 0);
  run_for(100 * kMillisecond);
  EXPECT_NE(core_->why_gates(), "");
  core_->forget_channel_groups("a", 0, now_);  // and its session has yet to clear its gates
  ring(program);
  EXPECT_NE(program.gate().begun, 0u);
  EXPECT_NE(core_->why_gates(), "");
  EXPECT_EQ(program.grant_page->slicing_off, 0u);
}

TEST_F(ArbiterTimeSlicesTest, AVirtualGpuWithoutASessionIsLeftOut) {
  make();
  join("a", 50), join("b", 30);
  Program &first = start("a"), &second = start("b");
  run_for(100 * kMillisecond);
  add("c", 20, Sharing::kTimeSliced);  // its session is still to come
  run_for(100 * kMillisecond);
  EXPECT_EQ(core_->why_gates(), "");
  std::erase_if(programs_, [&](const auto& program) { return program.get() == &second; });
  core_->detach("b", now_);
  run_for(500 * kMillisecond);
  percent(first, 1);
  run_for(500 * kMillisecond);
  EXPECT_NEAR(percent(first, 500 * kMillisecond), 100, 1);
  core_->set_policy("credit", sched::QueueModel::kMrq, now_);
  run_for(100 * kMillisecond);
  EXPECT_NE(core_->why_gates(), "");
}

TEST_F(ArbiterTimeSlicesTest, AnotherPolicyTakesOverAndGivesBack) {
  make();
  join("a", 75), join("b", 25);
  Program &mine = start("a"), &other = start("b");
  for (const char* policy : {"band+", "credit", "band+"}) {
    core_->set_policy(policy, sched::QueueModel::kMrq, now_);
    run_for(kSecond);
    percent(mine, 1), percent(other, 1);
    run_for(kSecond);
    EXPECT_NEAR(percent(mine, kSecond), 75, 6) << policy;
    EXPECT_NEAR(percent(other, kSecond), 25, 6) << policy;
  }
}

TEST_F(ArbiterTimeSlicesTest, NonsenseHarmsNobodyElse) {
  make();
  join("a", 50), join("b", 50);
  Program& honest = start("a");
  start("b");
  std::mt19937 random(7);
  run_for(100 * kMillisecond);
  percent(honest, 1);
  for (int i = 0; i < 20000; ++i) {
    scribble(*pages_["b"], random);
    core_->on_pending("b", now_);
    run_for(kStep);
  }
  EXPECT_GE(percent(honest, 20000 * kStep), 40);
}

}  // namespace
}  // namespace bandsaw
