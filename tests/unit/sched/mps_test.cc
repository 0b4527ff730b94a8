// Virtual GPUs that have an engine together, with others that do not: random events against the test's own books.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "vgpu-sched/policy/scheduler.h"

namespace bandsaw::sched {
namespace {

constexpr int kDepth = 2;
constexpr VgpuId kVgpus = 8;

class MpsStorm {
 public:
  MpsStorm(const std::string& policy, std::uint64_t seed, SharingRules rules)
      : policy_(policy),
        rules_(rules),
        scheduler_({.model = QueueModel::kMrq, .depth = kDepth}, [=] { return make_policy(policy); }),
        random_(seed) {
    scheduler_.set_rules(rules);
    for (VgpuId vgpu = 0; vgpu < kVgpus; ++vgpu) {
      EXPECT_EQ(scheduler_.add(vgpu, {.percent = static_cast<int>(roll(1, 12))}, 0), Error::kNone);
      EXPECT_EQ(scheduler_.set_mps(vgpu, Engine::kCompute, is_mps(vgpu), 0), Error::kNone);
    }
  }

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) {
      now_ += roll(0, 9) == 0 ? roll(0, 2 * kMillisecond) : roll(0, 50 * kMicrosecond);
      act();
      answer();
    }
    for (int i = 0; i < 100000 && (waits() || busy() > 0) && !::testing::Test::HasFatalFailure(); ++i) {
      if (busy() > 0) finish();
      now_ += PolicyOptions{}.wait;
      answer();
    }
    EXPECT_EQ(asked_, served_ + dropped_);
  }

  std::uint64_t together = 0;  // grants beside others

 private:
  static bool is_mps(VgpuId vgpu) { return vgpu % 4 != 0; }

  Time roll(Time from, Time to) { return std::uniform_int_distribution<Time>(from, to)(random_); }

  int busy() const {
    int count = 0;
    for (const auto& [vgpu, ids] : in_flight_) count += !ids.empty();
    return count;
  }
  bool waits() const {
    return std::any_of(waiting_.begin(), waiting_.end(), [](const auto& entry) { return !entry.second.empty(); });
  }

  void act() {
    const auto vgpu = static_cast<VgpuId>(roll(0, kVgpus - 1));
    if (roll(0, 500) == 0) {
      ASSERT_EQ(scheduler_.remove(vgpu, now_), Error::kNone);
      dropped_ += waiting_[vgpu].size() + in_flight_[vgpu].size();
      waiting_[vgpu].clear();
      in_flight_[vgpu].clear();
      ASSERT_EQ(scheduler_.add(vgpu, {.percent = static_cast<int>(roll(1, 12))}, now_), Error::kNone);
      ASSERT_EQ(scheduler_.set_mps(vgpu, Engine::kCompute, is_mps(vgpu), now_), Error::kNone);
    } else if (roll(0, 1) == 0 && waiting_[vgpu].size() < 4) {
      const Request request{.id = ++asked_, .vgpu = vgpu};
      waiting_[vgpu].push_back(request.id);
      ASSERT_EQ(scheduler_.arrival(request, now_), Error::kNone);
    } else if (busy() > 0) {
      finish();
    }
  }

  void finish() {
    auto vgpu = static_cast<VgpuId>(roll(0, kVgpus - 1));
    while (in_flight_[vgpu].empty()) vgpu = (vgpu + 1) % kVgpus;
    const Time measured = roll(0, 20) == 0 ? roll(0, 30 * kMillisecond) : roll(0, kMillisecond);
    now_ += measured;
    const RequestId id = in_flight_[vgpu].front();
    in_flight_[vgpu].pop_front();
    ASSERT_EQ(scheduler_.completion(vgpu, Engine::kCompute, id, measured / (busy() + 1), now_), Error::kNone);
    ++served_;
  }

  void answer() {
    Answer answer;
    while ((answer = scheduler_.next(Engine::kCompute, now_)).kind == Answer::Kind::kDispatch) {
      const VgpuId vgpu = answer.request.vgpu;
      ASSERT_FALSE(waiting_[vgpu].empty());
      ASSERT_EQ(waiting_[vgpu].front(), answer.request.id) << "granted twice, out of order, or never asked";
      waiting_[vgpu].pop_front();
      in_flight_[vgpu].push_back(answer.request.id);
      ASSERT_LE(in_flight_[vgpu].size(), static_cast<std::size_t>(kDepth));
      ASSERT_LE(busy(), rules_.most);
      together += busy() > 1;
      for (const auto& [other, ids] : in_flight_) {
        if (!ids.empty()) {
          ASSERT_TRUE(is_mps(other) || busy() == 1) << "beside one that is time-sliced";
        }
      }
    }
    if (!waits()) return;
    if (busy() == 0) {
      ASSERT_EQ(answer.kind, Answer::Kind::kWait) << "an idle engine, with work waiting";
      ASSERT_LE(answer.until, now_ + PolicyOptions{}.wait);
    }
    if (policy_ == "fifo" && busy() > 0) nobody_could_go();
  }

  // Who asked first of those with room is one that the engine must be free for.
  void nobody_could_go() {
    bool time_sliced = false;
    for (const auto& [vgpu, ids] : in_flight_) time_sliced = time_sliced || (!ids.empty() && !is_mps(vgpu));
    if (time_sliced) return;
    VgpuId first = kVgpus;
    for (const auto& [vgpu, ids] : waiting_) {
      if (ids.empty() || in_flight_[vgpu].size() >= kDepth) continue;
      if (first == kVgpus || ids.front() < waiting_[first].front()) first = vgpu;
    }
    ASSERT_TRUE(first == kVgpus || !is_mps(first) || (in_flight_[first].empty() && busy() >= rules_.most))
        << first << " could go beside the others";
  }

  const std::string policy_;
  const SharingRules rules_;
  Scheduler scheduler_;
  std::mt19937_64 random_;
  Time now_ = 0;
  RequestId asked_ = 0, served_ = 0, dropped_ = 0;
  std::map<VgpuId, std::deque<RequestId>> waiting_, in_flight_;
};

class MpsUnderEveryPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, MpsUnderEveryPolicy, ::testing::Values("fifo", "credit", "band", "band+"),
                         [](const auto& param) {
                           return param.param == std::string("band+") ? "BandPlus" : param.param;
                         });

TEST_P(MpsUnderEveryPolicy, NothingIsLostAndNobodyIsBesideATimeSlicedOne) {
  for (const SharingRules& rules : {SharingRules{}, SharingRules{.most = 2}, SharingRules{.in_order = true}}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      MpsStorm storm(GetParam(), seed, rules);
      storm.run(20'000);
      EXPECT_GT(storm.together, 100u);
    }
  }
}

// Ends of time slices while three are always there: two MPS ones, and one that is not.
TEST(MpsBandPlus, ATimeSlicedOneIsNotStarved) {
  Scheduler scheduler({}, [] { return make_policy("band+"); });
  for (VgpuId vgpu = 0; vgpu < 3; ++vgpu) {
    ASSERT_EQ(scheduler.add(vgpu, {.percent = 33}, 0), Error::kNone);
    ASSERT_EQ(scheduler.set_mps(vgpu, Engine::kCompute, vgpu != 0, 0), Error::kNone);
  }
  std::map<VgpuId, std::deque<RequestId>> in_flight;
  std::map<VgpuId, Time> used;
  RequestId id = 0;
  Time now = 0;
  for (VgpuId vgpu = 0; vgpu < 3; ++vgpu) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(scheduler.arrival({.id = ++id, .vgpu = vgpu}, now), Error::kNone);
  }
  while (now < 3 * kSecond) {
    Answer answer;
    while ((answer = scheduler.next(Engine::kCompute, now)).kind == Answer::Kind::kDispatch) {
      in_flight[answer.request.vgpu].push_back(answer.request.id);
    }
    std::vector<VgpuId> holders;
    for (const auto& [vgpu, ids] : in_flight) {
      if (!ids.empty()) holders.push_back(vgpu);
    }
    ASSERT_FALSE(holders.empty());
    now += kMillisecond;
    for (const VgpuId vgpu : holders) {
      const Time part = kMillisecond / static_cast<Time>(holders.size());
      ASSERT_EQ(scheduler.completion(vgpu, Engine::kCompute, in_flight[vgpu].front(), part, now), Error::kNone);
      in_flight[vgpu].pop_front();
      used[vgpu] += part;
      ASSERT_EQ(scheduler.arrival({.id = ++id, .vgpu = vgpu}, now), Error::kNone);
    }
  }
  for (VgpuId vgpu = 0; vgpu < 3; ++vgpu) EXPECT_NEAR(static_cast<double>(used[vgpu]) / 3e9, 0.333, 0.02) << vgpu;
}

}  // namespace
}  // namespace bandsaw::sched
