// Kernels without end, in virtual time: one gate of each virtual GPU, whose counters the test writes as runners do.
#include "tests/unit/vgpud/arbiter_fixture.h"

namespace bandsaw {
namespace {

constexpr Time kDeadline = 300 * kMillisecond;

class ArbiterDeadlineTest : public ArbiterFixture {
 protected:
  void make() {
    core_ = std::make_unique<ArbiterCore>(ArbiterOptions{});
    for (const char* name : {"a", "b"}) {
      add(name, 50, Sharing::kTimeSliced);
      core_->attach(name, &page(name), now_);
    }
    core_->set_kernel_deadline("a", kDeadline);
  }
  GrantPage& page(const std::string& name) { return *pages_[name == "b"]; }
  Gate& gate(const std::string& name) { return page(name).gates[0][kCompute]; }
  void begin(const std::string& name) {
    ++gate(name).asked;
    tell(name, page(name));
    ++gate(name).begun;
  }
  void end(const std::string& name, Time took) {
    gate(name).busy_ns += static_cast<uint64_t>(took);
    ++gate(name).ended;
    tell(name, page(name));
  }
  // The time at which the first runner was ended, from now; `most` if none was.
  Time run_until_end(Time most) {
    const Time from = now_;
    while (now_ - from < most) {
      now_ = std::min(next_, from + most);
      next_ = core_->run(now_);
      for (RunnerEnd& end : core_->take_runner_ends()) ends_.push_back(end);
      if (!ends_.empty()) return now_ - from;
    }
    return most;
  }

  std::unique_ptr<GrantPage> pages_[2] = {std::make_unique<GrantPage>(), std::make_unique<GrantPage>()};
  std::vector<RunnerEnd> ends_;
};

TEST_F(ArbiterDeadlineTest, AKernelWithoutEndEndsItsRunner) {
  make();
  const Time begun = now_;
  begin("a");
  const Time after = run_until_end(10 * kSecond);
  EXPECT_GT(after, kDeadline);
  EXPECT_LE(after, kDeadline + 2 * ArbiterOptions{}.period_ns);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].vgpu, "a");
  EXPECT_EQ(ends_[0].slot, 0u);
  EXPECT_EQ(ends_[0].reason, RunnerEndReason::kDeadline);
  EXPECT_GE(ends_[0].since, begun);
}

TEST_F(ArbiterDeadlineTest, ASessionThatDoesNothingIsAskedAgainAndNotAllTheTime) {
  make();
  begin("a");
  run_until_end(10 * kSecond);
  ends_.clear();
  EXPECT_EQ(run_until_end(10 * kSecond), kSecond);
}

TEST_F(ArbiterDeadlineTest, TheNextRunnerStartsAnew) {
  make();
  begin("a");
  run_until_end(10 * kSecond);
  ends_.clear();
  for (auto* word : {&gate("a").begun, &gate("a").ended, &gate("a").asked, &gate("a").granted}) *word = 0;
  ++page("a").generation[0];
  tell("a", page("a"));
  begin("a");
  EXPECT_GT(run_until_end(10 * kSecond), kDeadline);
}

TEST_F(ArbiterDeadlineTest, ManyKernelsThatEndAreNone) {
  make();
  begin("a");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run_until_end(kDeadline / 2), kDeadline / 2);
    ++gate("a").begun;  // there is always one in flight
    end("a", kDeadline / 2);
  }
  EXPECT_TRUE(ends_.empty());
}

TEST_F(ArbiterDeadlineTest, WithoutADeadlineNothingIsEnded) {
  make();
  begin("b");
  EXPECT_EQ(run_until_end(100 * kSecond), 100 * kSecond);
}

TEST_F(ArbiterDeadlineTest, OthersAtItsSideHalveWhatItMayHaveHad) {
  make();
  begin("a");
  core_->set_kernel_deadline("a", kSecond);
  EXPECT_EQ(run_until_end(50 * kMillisecond), 50 * kMillisecond);
  // The other one waits until the time slice timeout, and is beside it from then on.
  ++gate("b").asked;
  tell("b", page("b"));
  const Time timeout = ArbiterOptions{}.slice_timeout_ns;
  while (gate("b").granted != gate("b").asked && now_ < 10 * kSecond) {
    now_ = next_;
    next_ = core_->run(now_);
  }
  const Time alone = timeout;  // of the time slice of "a", up to now
  ++gate("b").begun;
  const Time after = run_until_end(10 * kSecond);
  EXPECT_NEAR(static_cast<double>(after), static_cast<double>(2 * (kSecond - alone)), 0.1 * kSecond);
}

// What the hardware gives it counts: a third of the time, beside two others.
TEST_F(ArbiterDeadlineTest, UnderTheHardwaresTimeSlicesItsPartCounts) {
  make();
  for (const char* name : {"a", "b"}) core_->set_channel_groups(name, 0, 1, now_);
  begin("a"), begin("b");
  const Time after = run_until_end(10 * kSecond);
  EXPECT_EQ(core_->why_gates(), "");
  EXPECT_GT(after, 2 * kDeadline - 30 * kMillisecond);
  EXPECT_LT(after, 3 * kDeadline);
}

TEST_F(ArbiterDeadlineTest, NonsenseEndsNobodyElse) {
  make();
  std::mt19937 random(5);
  begin("b");
  for (int i = 0; i < 3000; ++i) {
    scribble(page("a"), random);
    core_->on_pending("a", now_);
    now_ += kMillisecond;
    next_ = core_->run(now_);
    for (const RunnerEnd& end : core_->take_runner_ends()) EXPECT_EQ(end.vgpu, "a");
  }
}

}  // namespace
}  // namespace bandsaw
