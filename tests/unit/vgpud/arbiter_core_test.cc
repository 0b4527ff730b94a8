// The arbiter's judgement in virtual time: grant pages in this process's memory, runners that do what the protocol
// says, or what it forbids.
#include "backend/vgpud/arbiter/arbiter_core.h"

#include <gtest/gtest.h>

#include <random>

namespace bandsaw {
namespace {

using sched::kMillisecond;
using sched::kSecond;
using sched::Time;

constexpr Time kTimeSlice = 2 * kMillisecond;

EngineShares equal(int percent, int cap = 100) {
  EngineShares shares;
  shares.fill({.percent = percent, .reservation = 0, .cap = cap, .priority = 0});
  return shares;
}

// One process of a virtual GPU with more work than it gets, on the compute engine.
struct Runner {
  std::string vgpu;
  std::shared_ptr<GrantPage> grant_page = std::make_shared<GrantPage>();
  uint32_t slot = 0;
  Time length = kTimeSlice;
  double told = 1;       // part of the time that it admits
  uint32_t at_once = 2;  // time slices it wants in flight
  bool dead = false;

  std::deque<Time> running{};  // not yet ended, oldest first: when each is over
  bool asking = false;
  Time held = 0;  // of the engine, truly

  Gate& gate() { return grant_page->gates[slot][0]; }
};

class ArbiterCoreTest : public testing::Test {
 protected:
  void make(ArbiterOptions options = {}) { core_ = std::make_unique<ArbiterCore>(options); }
  Runner& join(const std::string& name, int percent, int cap = 100) {
    EXPECT_TRUE(core_->add(name, equal(percent, cap), now_).ok());
    Runner& runner = *runners_.emplace_back(std::make_unique<Runner>());
    runner.vgpu = name;
    core_->attach(name, runner.grant_page.get(), now_);
    return runner;
  }
  // Another process of the same virtual GPU.
  Runner& sibling(const Runner& of) {
    Runner& runner = *runners_.emplace_back(std::make_unique<Runner>());
    runner.vgpu = of.vgpu;
    runner.grant_page = of.grant_page;
    runner.slot = of.slot + 1;
    return runner;
  }
  void tell(Runner& runner) {
    set_pending(*runner.grant_page, runner.slot);
    core_->on_pending(runner.vgpu, now_);
    next_ = core_->run(now_);
  }
  // The engine serves one time slice after the other.
  void begin(Runner& runner) {
    const Time start = std::max(now_, engine_free_);
    engine_free_ = start + runner.length;
    runner.running.push_back(engine_free_);
    runner.held += runner.length;
  }
  void want(Runner& runner) {
    Gate& gate = runner.gate();
    if (runner.dead) return;
    if (runner.asking && gate.granted == gate.asked) {
      runner.asking = false;
      ++gate.begun;
      begin(runner);
    }
    while (!runner.asking && runner.running.size() < runner.at_once) {
      ++gate.begun;
      if (gate.open) {
        begin(runner);
        continue;
      }
      --gate.begun;
      ++gate.asked;
      runner.asking = true;
      tell(runner);
      if (gate.granted == gate.asked) want(runner);
    }
  }
  void end(Runner& runner) {
    runner.running.pop_front();
    Gate& gate = runner.gate();
    gate.busy_ns += static_cast<uint64_t>(static_cast<double>(runner.length) * runner.told);
    ++gate.ended;
    if (!gate.open) tell(runner);
  }
  void run_until(Time end_time) {
    while (now_ < end_time) {
      for (auto& runner : runners_) want(*runner);
      Time next = std::min(next_, end_time);
      for (auto& runner : runners_) {
        if (!runner->running.empty() && !runner->dead) next = std::min(next, runner->running.front());
      }
      now_ = std::max(next, now_ + 1);
      for (auto& runner : runners_) {
        while (!runner->running.empty() && !runner->dead && runner->running.front() <= now_) end(*runner);
      }
      next_ = core_->run(now_);
    }
  }
  EngineUse use(const Runner& runner) {
    for (const VgpuUse& use : core_->use()) {
      if (use.vgpu == runner.vgpu) return use.engines[0];
    }
    return {};
  }
  // Percent of what both held of the engine since the last call.
  double part(Runner& one, Runner& other) {
    const double mine = static_cast<double>(std::exchange(one.held, 0)),
                 its = static_cast<double>(std::exchange(other.held, 0));
    return 100 * mine / (mine + its);
  }

  Time now_ = kSecond, next_ = 0, engine_free_ = 0;
  std::vector<std::unique_ptr<Runner>> runners_;  // outlive the core
  std::unique_ptr<ArbiterCore> core_;
};

TEST_F(ArbiterCoreTest, OneAloneAsksOnce) {
  make();
  Runner& alone = join("a", 30);
  run_until(now_ + kSecond);
  EXPECT_LE(alone.gate().asked, 3u);
  EXPECT_EQ(alone.gate().open, 1u);
  EXPECT_NEAR(static_cast<double>(use(alone).busy_ns), 1e9, 2e7);
}

TEST_F(ArbiterCoreTest, EachIsToldWhenOthersHadWork) {
  make();
  const GrantPage& busy = *join("busy", 50).grant_page;
  GrantPage idle{};  // no runner of it wants anything
  EXPECT_TRUE(core_->add("idle", equal(50), now_).ok());
  core_->attach("idle", &idle, now_);
  run_until(now_ + 200 * kMillisecond);
  EXPECT_EQ(busy.others_worked_at, 0);
  EXPECT_NEAR(static_cast<double>(idle.others_worked_at), static_cast<double>(now_), 50 * kMillisecond);
  core_->detach("idle", now_);
}

TEST_F(ArbiterCoreTest, TimeSlicesLongerThanThePeriodAreChargedWhole) {
  make();
  Runner& alone = join("a", 30);
  alone.length = 45 * kMillisecond;
  run_until(now_ + 2 * kSecond);
  EXPECT_NEAR(static_cast<double>(use(alone).busy_ns), 2e9, 1e8);
}

TEST_F(ArbiterCoreTest, AnIdleOneAsksAnew) {
  make();
  Runner& one = join("a", 30);
  run_until(now_ + kSecond);
  one.at_once = 0;
  run_until(now_ + kSecond);
  EXPECT_EQ(one.gate().open, 0u);
  EXPECT_EQ(use(one).in_flight, 0u);
}

// Gdev's figure 10: a task of highest priority beside one of lower priority, with and without priorities.
TEST_F(ArbiterCoreTest, ProcessesOfOneVirtualGpuGoByTheirPriority) {
  for (const bool kept : {false, true}) {
    runners_.clear();
    make({.process_priorities = kept});
    Runner& low = join("a", 100);
    run_until(now_ + kSecond);
    EXPECT_EQ(low.gate().open, 1u);
    Runner& high = sibling(low);
    for (Gate& gate : high.grant_page->gates[high.slot]) gate.priority = 5;
    run_until(now_ + 200 * kMillisecond);
    part(high, low);
    run_until(now_ + kSecond);
    EXPECT_NEAR(part(high, low), kept ? 100 : 50, kept ? 2 : 5);
    EXPECT_EQ(low.gate().open, kept ? 0u : 1u);
    // What it leaves is the other's.
    high.at_once = 0;
    run_until(now_ + 200 * kMillisecond);
    part(high, low);
    run_until(now_ + kSecond);
    EXPECT_LT(part(high, low), 1);
    core_.reset();
  }
}

TEST_F(ArbiterCoreTest, PrioritiesOfProcessesBindNoOtherVirtualGpu) {
  make({.process_priorities = true});
  Runner& one = join("a", 50);
  Runner& high = sibling(one);
  for (Gate& gate : high.grant_page->gates[high.slot]) gate.priority = INT32_MAX;
  Runner& other = join("b", 50);
  run_until(now_ + 200 * kMillisecond);
  part(high, other);
  run_until(now_ + 2 * kSecond);
  EXPECT_NEAR(part(high, other), 50, 3);
}

TEST_F(ArbiterCoreTest, SharesHoldBetweenTwo) {
  for (const char* policy : {"band", "band+", "credit"}) {
    runners_.clear();
    make({.policy = policy});
    Runner& large = join("a", 75);
    run_until(now_ + kSecond);
    Runner& small = join("b", 25);
    small.length = 7 * kMillisecond;
    run_until(now_ + 200 * kMillisecond);
    part(large, small);
    run_until(now_ + 4 * kSecond);
    EXPECT_NEAR(part(large, small), 75, policy == std::string("band+") ? 1.5 : 16) << policy;
    core_.reset();
  }
}

TEST_F(ArbiterCoreTest, TheMoreThereAreTheShorterTheirTimeSlices) {
  make();
  Runner& first = join("a0", 6);
  run_until(now_ + 50 * kMillisecond);
  EXPECT_EQ(first.grant_page->quantum_ns, 2'000'000u);
  for (int i = 1; i < 16; ++i) join("a" + std::to_string(i), 6);
  run_until(now_ + 200 * kMillisecond);
  EXPECT_EQ(first.grant_page->quantum_ns, 1'000'000u);
  for (auto& runner : runners_) runner->at_once = runner.get() == &first ? 2 : 0;
  run_until(now_ + 200 * kMillisecond);
  EXPECT_EQ(first.grant_page->quantum_ns, 2'000'000u);
}

TEST_F(ArbiterCoreTest, AShareIsChangedWhileRunning) {
  make();
  Runner &one = join("a", 50), &other = join("b", 20);
  run_until(now_ + kSecond);
  EXPECT_EQ(core_->set_shares("b", equal(60), now_).code(), ENOSPC);
  ASSERT_TRUE(core_->set_shares("a", equal(20), now_).ok());
  ASSERT_TRUE(core_->set_shares("b", equal(80), now_).ok());
  part(one, other);
  run_until(now_ + 100 * kMillisecond);
  EXPECT_NEAR(part(one, other), 20, 8);
  run_until(now_ + kSecond);
  EXPECT_NEAR(part(one, other), 20, 1.5);
}

TEST_F(ArbiterCoreTest, ACapHoldsOneThatIsAlone) {
  make();
  Runner& capped = join("a", 20, 30);
  run_until(now_ + 2 * kSecond);
  EXPECT_NEAR(static_cast<double>(capped.held) / 2e9, 0.30, 0.02);
}

TEST_F(ArbiterCoreTest, ADeadRunnerGivesItsGrantBack) {
  make();
  Runner &dies = join("a", 50), &lives = join("b", 50);
  run_until(now_ + 100 * kMillisecond);
  dies.dead = true;
  for (Gate& gate : dies.grant_page->gates[0]) gate.begun = gate.ended = gate.asked = gate.granted = gate.open = 0;
  dies.grant_page->gates[0][0].busy_ns = 0;
  ++dies.grant_page->generation[0];
  tell(dies);
  engine_free_ = now_;
  lives.held = 0;
  run_until(now_ + kSecond);
  EXPECT_GT(lives.held, 950 * kMillisecond);
  EXPECT_EQ(use(dies).waiting + use(dies).in_flight, 0u);
}

TEST_F(ArbiterCoreTest, AStoppedRunnerHoldsTheEngineForTheTimeSliceTimeoutOnly) {
  make();
  Runner &stops = join("a", 50), &lives = join("b", 50);
  run_until(now_ + 100 * kMillisecond);
  stops.dead = true;  // keeps what it has, and says nothing any more
  lives.held = 0;
  run_until(now_ + 2 * kSecond);
  EXPECT_GT(lives.held, 1400 * kMillisecond);
  EXPECT_GE(use(stops).overruns, 1u);
}

TEST_F(ArbiterCoreTest, AKernelWithoutEndOfOneAloneHoldsTheEngineForTheTimeSliceTimeoutOnly) {
  make();
  Runner& endless = join("a", 5);
  endless.length = 3600 * kSecond;
  run_until(now_ + 20 * kMillisecond);
  EXPECT_EQ(endless.gate().open, 1u);
  Runner& other = join("b", 5);
  other.at_once = 1;
  want(other);
  EXPECT_TRUE(other.asking);
  EXPECT_LE(next_, now_ + ArbiterOptions().slice_timeout_ns);
  run_until(now_ + ArbiterOptions().slice_timeout_ns);
  want(other);
  EXPECT_FALSE(other.asking);
  EXPECT_GE(use(endless).overruns, 1u);
}

// Held to the arbiter's own clock after the benefit of doubt.
TEST_F(ArbiterCoreTest, WhoLiesAboutItsTimeGainsNothing) {
  for (const double told : {0.0, 0.5, 5.0}) {
    runners_.clear();
    make();
    Runner &liar = join("a", 50), &honest = join("b", 50);
    liar.told = told;
    run_until(now_ + 2 * kSecond);
    part(liar, honest);
    run_until(now_ + 5 * kSecond);
    EXPECT_NEAR(part(liar, honest), 50, 8) << "told " << told;
    core_.reset();
  }
}

TEST_F(ArbiterCoreTest, APolicyIsChangedUnderLoad) {
  make({.policy = "fifo"});
  Runner &one = join("a", 80), &other = join("b", 20);
  run_until(now_ + kSecond);
  EXPECT_NEAR(part(one, other), 50, 5);
  core_->set_policy("band+", sched::QueueModel::kSdq, now_);
  run_until(now_ + 500 * kMillisecond);
  part(one, other);
  run_until(now_ + 2 * kSecond);
  EXPECT_NEAR(part(one, other), 80, 2);
}

TEST_F(ArbiterCoreTest, ANewArbiterLetsThoseGoWhoWaitedForTheOldOne) {
  make();
  Runner& waits = join("a", 50);
  core_.reset();
  waits.gate().asked = 7;
  waits.gate().granted = 6;
  make();
  ASSERT_TRUE(core_->add("a", equal(50), now_).ok());
  core_->attach("a", waits.grant_page.get(), now_);
  EXPECT_EQ(waits.gate().granted, 7u);
  EXPECT_EQ(waits.grant_page->no_arbiter, 0u);
}

TEST_F(ArbiterCoreTest, SharesThatDoNotFitAreRefused) {
  make();
  join("a", 60);
  EXPECT_EQ(core_->add("a", equal(10), now_).code(), EEXIST);
  EXPECT_EQ(core_->add("b", equal(41), now_).code(), ENOSPC);
  EXPECT_EQ(core_->add("b", equal(0), now_).code(), EINVAL);
  EXPECT_EQ(core_->add("b", equal(10, 0), now_).code(), EINVAL);
  EXPECT_TRUE(core_->add("b", equal(40), now_).ok());
  EXPECT_EQ(core_->set_shares("c", equal(1), now_).code(), ENOENT);
  core_->remove("a", now_);
  EXPECT_TRUE(core_->set_shares("b", equal(100), now_).ok());
}

// Counters of a runner that has been taken over are anything; its neighbour has its share.
TEST_F(ArbiterCoreTest, NonsenseOnOneGrantPageHarmsNobodyElse) {
  make();
  Runner &honest = join("a", 50), &mad = join("b", 50);
  mad.dead = true;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Gate& gate = mad.grant_page->gates[random() % kGateSlots][random() % kEngines];
    std::atomic<uint32_t>* const words[] = {&gate.begun, &gate.ended, &gate.asked, &gate.granted, &gate.open};
    *words[random() % 5] = random() % 3 ? static_cast<uint32_t>(random()) : random() % 4;
    gate.busy_ns = random() % 2 ? ~uint64_t{0} : random();
    for (auto& word : mad.grant_page->pending) word = ~uint64_t{0};
    core_->on_pending("b", now_);
    next_ = core_->run(now_);
    run_until(now_ + 100 * sched::kMicrosecond);
  }
  const Time begun = honest.held;
  run_until(now_ + 4 * kSecond);
  EXPECT_GT(honest.held - begun, 1 * kSecond);
}

// Of processes that begin, end, or never end, whoever waits for an engine is looked at again, whatever nobody tells.
class Crowd {
 public:
  Crowd(ArbiterCore* core, uint32_t seed) : core_(core), random_(seed) {}
  ~Crowd() {
    for (uint32_t i = 0; i < kTenants; ++i) core_->remove(name(i), now_);
  }

  void join(bool mps) {
    for (uint32_t i = 0; i < kTenants; ++i) {
      ASSERT_TRUE(core_->add(name(i), equal(25), now_).ok());
      if (mps && i % 2 == 1) core_->set_sharing(name(i), Sharing::kMps);
      core_->attach(name(i), &pages_[i], now_);
    }
  }
  void step() {
    const uint32_t i = random_() % kTenants, slot = random_() % kProcesses;
    Gate& gate = pages_[i].gates[slot][random_() % 2];
    const bool asking = gate.asked != gate.granted, runs = gate.begun != gate.ended;
    if (!asking && random_() % 2 == 0) {
      gate.open ? ++gate.begun : ++gate.asked;
    } else if (runs && random_() % 3 == 0) {
      gate.busy_ns += 1'000'000;
      ++gate.ended;
    }
    set_pending(pages_[i], slot);
    core_->on_pending(name(i), now_);
    run();
    now_ += static_cast<Time>(random_() % 4 ? random_() % 1'000'000 : random_() % 50'000'000);
    if (next_ < now_) run();
  }
  // What is in flight stays there. True: everybody has had a turn.
  bool all_go_on() {
    for (int looks = 0; waiting() > 0; ++looks) {
      if (next_ == ArbiterCore::kNever || looks == 10'000) return false;
      now_ = std::max(now_ + 1, next_);
      run();
    }
    return true;
  }
  uint32_t waiting() const {
    uint32_t sum = 0;
    for (const VgpuUse& use : core_->use())
      for (const EngineUse& engine : use.engines) sum += engine.waiting;
    return sum;
  }
  Time next() const { return next_; }

 private:
  static constexpr uint32_t kTenants = 4, kProcesses = 3;
  static std::string name(uint32_t i) { return std::string(1, static_cast<char>('a' + i)); }
  // Those that are granted begin.
  void run() {
    next_ = core_->run(now_);
    for (uint32_t i = 0; i < kTenants; ++i)
      for (uint32_t slot = 0; slot < kProcesses; ++slot)
        for (uint32_t engine = 0; engine < 2; ++engine) {
          Gate& gate = pages_[i].gates[slot][engine];
          uint32_t& seen = seen_[i][slot][engine];
          if (gate.granted == seen) continue;
          seen = gate.granted;
          ++gate.begun;
        }
  }

  ArbiterCore* const core_;
  std::mt19937 random_;
  std::array<GrantPage, kTenants> pages_{};
  uint32_t seen_[kTenants][kProcesses][2] = {};
  Time now_ = kSecond, next_ = 0;
};

TEST(ArbiterCrowd, WhoWaitsIsLookedAfterWithoutAnEvent) {
  for (const char* policy : {"fifo", "credit", "band", "band+"}) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      ArbiterOptions options{.policy = policy};
      options.process_priorities = seed % 2 == 1;
      options.copies_beside = seed % 3 == 1;
      options.model = seed % 4 == 3 ? sched::QueueModel::kSdq : sched::QueueModel::kMrq;
      ArbiterCore core(options);
      Crowd crowd(&core, seed);
      crowd.join(seed % 5 == 1);
      for (int i = 0; i < 300; ++i) crowd.step();
      EXPECT_TRUE(crowd.all_go_on()) << policy << ", seed " << seed << ": " << crowd.waiting() << " wait, next look at "
                                     << crowd.next();
    }
  }
}

}  // namespace
}  // namespace bandsaw
