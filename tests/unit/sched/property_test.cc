// Random arrivals, sizes, shares and changes: nothing lost, nothing twice, no idle engine without a reason.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "tests/unit/sched/simulator.h"

namespace bandsaw::sched {
namespace {

// Asks, serves and changes at random, and keeps its own books beside the scheduler's.
class Storm {
 public:
  Storm(const std::string& policy, std::uint64_t seed, bool capped)
      : scheduler_({.model = QueueModel::kMrq, .depth = kDepth}, [=] { return make_policy(policy); }),
        random_(seed),
        capped_(capped) {}

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) {
      now_ += roll(0, 9) == 0 ? roll(0, 3 * kMillisecond) : roll(0, 50 * kMicrosecond);
      act();
      answer();
    }
    drain();
  }

  std::uint64_t asked = 0, served = 0, dropped = 0;

 private:
  static constexpr int kDepth = 3;
  static constexpr VgpuId kVgpus = 10;

  Time roll(Time from, Time to) { return std::uniform_int_distribution<Time>(from, to)(random_); }

  Share share() {
    return {.percent = static_cast<int>(roll(1, 10)),
            .reservation = static_cast<int>(roll(0, 3) == 0 ? roll(0, 10) : 0),
            .cap = static_cast<int>(capped_ && roll(0, 2) == 0 ? roll(10, 100) : 100),
            .priority = static_cast<int>(roll(0, 2))};
  }

  void act() {
    const auto vgpu = static_cast<VgpuId>(roll(0, kVgpus - 1));
    const bool known = present_.contains(vgpu);
    switch (const Time what = roll(0, 999); what) {
      case 0:
        if (!known) return;
        ASSERT_EQ(scheduler_.remove(vgpu, now_), Error::kNone);
        forget(vgpu);
        return;
      case 1:
        if (known) {
          ASSERT_EQ(scheduler_.set_share(vgpu, Engine::kCompute, share(), now_), Error::kNone);
        }
        return;
      case 2:
      case 3:
        if (!known) return;
        ASSERT_EQ(scheduler_.set_paused(vgpu, what == 2, now_), Error::kNone);
        if (what == 2) {
          paused_.insert(vgpu);
        } else {
          paused_.erase(vgpu);
        }
        return;
      case 4:
        if (known && !waiting_[vgpu].empty()) cancel(vgpu);
        return;
      default:
        if (!known) {
          ASSERT_EQ(scheduler_.add(vgpu, share(), now_), Error::kNone);
          present_.insert(vgpu);
        }
        // As many ask as are served, about, so that queues fill and empty.
        if (what < 480 && waiting_[vgpu].size() < 20) return ask(vgpu);
        if (!in_flight_.empty()) finish();
    }
  }

  void ask(VgpuId vgpu) {
    const Request request{.id = ++asked,
                          .vgpu = vgpu,
                          .engine = Engine::kCompute,
                          .estimate = roll(0, 1) * roll(0, kMillisecond),
                          .priority = static_cast<int>(roll(0, 3))};
    waiting_[vgpu].insert(request.id);
    ASSERT_EQ(scheduler_.arrival(request, now_), Error::kNone);
  }

  void cancel(VgpuId vgpu) {
    const RequestId id = *waiting_[vgpu].begin();
    ASSERT_EQ(scheduler_.cancel(vgpu, Engine::kCompute, id, now_), Error::kNone);
    waiting_[vgpu].erase(id);
    ++dropped;
  }

  void finish() {
    const Request request = in_flight_.front();
    in_flight_.pop_front();
    const Time measured = roll(0, 20) == 0 ? roll(0, 40 * kMillisecond) : roll(0, kMillisecond);
    now_ += measured;
    ASSERT_EQ(scheduler_.completion(request.vgpu, Engine::kCompute, request.id, measured, now_), Error::kNone);
    ++served;
  }

  void forget(VgpuId vgpu) {
    dropped += waiting_[vgpu].size() + std::erase_if(in_flight_, [=](const Request& r) { return r.vgpu == vgpu; });
    waiting_.erase(vgpu);
    paused_.erase(vgpu);
    present_.erase(vgpu);
  }

  void answer() {
    Answer answer;
    while ((answer = scheduler_.next(Engine::kCompute, now_)).kind == Answer::Kind::kDispatch) {
      const Request& request = answer.request;
      ASSERT_EQ(waiting_[request.vgpu].erase(request.id), 1u) << "granted twice, or never asked";
      ASSERT_FALSE(paused_.contains(request.vgpu));
      if (!in_flight_.empty()) {
        ASSERT_EQ(in_flight_.front().vgpu, request.vgpu) << "two at a time";
      }
      in_flight_.push_back(request);
      ASSERT_LE(in_flight_.size(), static_cast<std::size_t>(kDepth));
    }
    if (!in_flight_.empty() || !work()) return;
    ASSERT_EQ(answer.kind, Answer::Kind::kWait) << "an idle engine, with work waiting";
    ASSERT_GT(answer.until, now_);
    if (!capped_) {
      ASSERT_LE(answer.until, now_ + PolicyOptions{}.wait) << "work conservation";
    }
  }

  bool work() const {
    for (const auto& [vgpu, ids] : waiting_) {
      if (!ids.empty() && !paused_.contains(vgpu)) return true;
    }
    return false;
  }

  void drain() {
    for (const VgpuId vgpu : std::set<VgpuId>(paused_)) {
      ASSERT_EQ(scheduler_.set_paused(vgpu, false, now_), Error::kNone);
      paused_.erase(vgpu);
    }
    for (int turns = 0; turns < 10000 && (work() || !in_flight_.empty()); ++turns) {
      answer();
      if (!in_flight_.empty()) finish();
      now_ += PolicyOptions{}.wait;
    }
    EXPECT_EQ(asked, served + dropped);
  }

  Scheduler scheduler_;
  std::mt19937_64 random_;
  bool capped_;
  Time now_ = 0;
  std::set<VgpuId> present_, paused_;
  std::map<VgpuId, std::set<RequestId>> waiting_;
  std::deque<Request> in_flight_;
};

class EveryPolicyInAStorm : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicyInAStorm, ::testing::Values("fifo", "credit", "band", "band+"),
                         [](const auto& param) {
                           return param.param == std::string("band+") ? "BandPlus" : param.param;
                         });

TEST_P(EveryPolicyInAStorm, LosesAndDuplicatesNothing) {
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kEvents = 1'000'000;
  Storm storm(GetParam(), 42, false);
  storm.run(kEvents);
  const auto took = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %.0f ns an event, with the test's own books; %llu served\n", GetParam(),
              std::chrono::duration<double, std::nano>(took).count() / kEvents,
              static_cast<unsigned long long>(storm.served));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) Storm(GetParam(), seed, true).run(10'000);
}

// Any shares and lengths: over any window, a backlogged tenant is off by no more than the longest time slices around
// it.
TEST(BandPlusProperty, ErrorStaysWithinTwoTimeSlices) {
  std::mt19937_64 random(7);
  const auto roll = [&](Time from, Time to) { return std::uniform_int_distribution<Time>(from, to)(random); };
  for (int turn = 0; turn < 40; ++turn) {
    SimulatorPlan plan{.end = 4 * kSecond, .seed = static_cast<std::uint64_t>(turn)};
    const auto count = static_cast<int>(roll(2, 6));
    Time longest = 0;
    int percent = 0;
    for (int i = 0; i < count; ++i) {
      const Time length = roll(100 * kMicrosecond, 30 * kMillisecond);
      longest = std::max(longest, length);
      plan.tenants.push_back({.share = {.percent = static_cast<int>(roll(1, 100 / count))},
                              .steps = {{Engine::kCompute, length / 2, length}},
                              .streams = 6});
      percent += plan.tenants.back().share.percent;
    }
    Simulator simulator(plan);
    simulator.run();
    for (VgpuId vgpu = 0; vgpu < plan.tenants.size(); ++vgpu) {
      const double part = static_cast<double>(plan.tenants[vgpu].share.percent) / percent;
      for (Time at = kSecond; at + kSecond <= plan.end; at += 130 * kMillisecond) {
        const double total = simulator.utilisation(Engine::kCompute, at, at + kSecond);
        const double used = simulator.used(vgpu, Engine::kCompute, at, at + kSecond);
        ASSERT_LE(std::abs(used - part * total) / 100 * kSecond, 2.0 * static_cast<double>(longest))
            << "turn " << turn << ", tenant " << vgpu << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace bandsaw::sched
