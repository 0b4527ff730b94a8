// Orders are carried out by a thread of their own, the newest of each slot, and nobody waits for the driver.
#include "backend/vgpud/arbiter/time_slice_setter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <thread>

namespace bandsaw {
namespace {

using std::chrono::microseconds;

const TimeSliceSetter::Changed unexpected = [](const auto&...) { FAIL(); };

// Notes what it is set to. Closed, it lets no call end.
struct Target : TimeSliced {
  Status set_time_slice(microseconds length) const override {
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
    seen.push_back(length.count());
    if (says_what_was_set) has = length.count();
    changed.notify_all();
    return status;
  }
  Result<microseconds> time_slice() const override {
    std::lock_guard lock(mutex);
    ++read;
    changed.notify_all();
    return microseconds(has);
  }
  template <typename Holds>
  bool wait_for(Holds holds) const {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), holds);
  }
  bool wait_seen(std::vector<int64_t> expected) const {
    return wait_for([&] { return seen.size() >= expected.size(); }) && seen == expected;
  }
  bool wait_begun(int count) const {
    return wait_for([&] { return begun >= count; });
  }
  void set_open() {
    std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  Status status;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  mutable std::vector<int64_t> seen;
  mutable int begun = 0, read = 0;
  mutable int64_t has = 0;  // what somebody else has set, until it is set again
  bool says_what_was_set = true;
  bool open = true;
};

TEST(TimeSliceSetter, OrdersAreCarriedOut) {
  const auto one = std::make_shared<Target>(), two = std::make_shared<Target>();
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 3000}, one);
  setter.set({"a", 1, 1000}, two);
  EXPECT_TRUE(one->wait_seen({3000}));
  EXPECT_TRUE(two->wait_seen({1000}));
}

TEST(TimeSliceSetter, OnlyTheNewestOrderOfASlotIsLeft) {
  const auto slow = std::make_shared<Target>(), other = std::make_shared<Target>();
  slow->open = false;
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 1}, slow);
  ASSERT_TRUE(slow->wait_begun(1));
  for (uint32_t length = 2; length <= 100; ++length) {
    setter.set({"a", 0, length}, slow);
    setter.set({"b", 0, length}, other);
  }
  slow->set_open();
  EXPECT_TRUE(other->wait_seen({100}));
  EXPECT_TRUE(slow->wait_seen({1, 100}));
}

TEST(TimeSliceSetter, AFailureIsSaidAndNotTriedAgain) {
  const auto bad = std::make_shared<Target>();
  bad->status = Status::error(EIO, "the driver's result is 0x1f");
  std::promise<std::pair<TimeSliceOrder, std::string>> failed;
  TimeSliceSetter setter(
      [&](const TimeSliceOrder& order, const TimeSliceSetter::Target& target, const Status& why) {
        EXPECT_EQ(target, bad);
        failed.set_value({order, why.message()});
      },
      unexpected);
  setter.set({"a", 2, 500}, bad);
  auto result = failed.get_future();
  ASSERT_EQ(result.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  const auto [order, why] = result.get();
  EXPECT_EQ(order, (TimeSliceOrder{"a", 2, 500}));
  EXPECT_NE(why.find("0x1f"), std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(bad->begun, 1);
}

TEST(TimeSliceSetter, ACheckPutsRightWhatSomebodyElseHasMadeLonger) {
  const auto honest = std::make_shared<Target>(), other = std::make_shared<Target>();
  honest->has = 1010;  // the driver has rounded
  other->has = 100'000;
  std::promise<std::pair<TimeSliceOrder, uint64_t>> changed;
  TimeSliceSetter setter([](const auto&...) { FAIL(); },
                         [&](const TimeSliceOrder& order, const TimeSliceSetter::Target& target, uint64_t had_us) {
                           EXPECT_EQ(target, other);
                           changed.set_value({order, had_us});
                         });
  setter.set({"a", 0, 1000, true}, honest);
  setter.set({"b", 3, 1000, true}, other);
  EXPECT_TRUE(other->wait_seen({1000}));
  const auto [order, had_us] = changed.get_future().get();
  EXPECT_EQ(order.vgpu, "b");
  EXPECT_EQ(order.slot, 3u);
  EXPECT_EQ(had_us, 100'000u);
  EXPECT_TRUE(honest->wait_for([&] { return honest->read == 1; }));
  EXPECT_TRUE(honest->seen.empty());
}

TEST(TimeSliceSetter, ADriverThatDoesNotSayWhatWasSetAccusesNobody) {
  const auto target = std::make_shared<Target>();
  target->has = 2000;  // the driver's usual length, whatever was set
  target->says_what_was_set = false;
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 1000, true}, target);
  EXPECT_TRUE(target->wait_for([&] { return target->read == 2; }));
}

TEST(TimeSliceSetter, ACheckReplacesNoOrder) {
  const auto slow = std::make_shared<Target>(), target = std::make_shared<Target>();
  slow->open = false;
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 1}, slow);
  ASSERT_TRUE(slow->wait_begun(1));
  setter.set({"b", 0, 500}, target);
  setter.set({"b", 0, 700, true}, target);
  slow->set_open();
  EXPECT_TRUE(target->wait_seen({500}));
}

TEST(LivingGroups, OneThatIsGoneIsLeftOut) {
  ChannelGroupList list{.client = 1, .count = 3, .handles = {}};
  for (uint32_t i = 0; i < list.count; ++i) list.handles[i] = 10 + i;
  const LivingGroups groups(list);
  std::vector<uint32_t> called;
  uint32_t dead = 11, refuses = 0;
  const auto call = [&](uint32_t handle) {
    called.push_back(handle);
    if (handle == dead) return Status::error(ESRCH, "gone");
    return handle == refuses ? Status::error(EIO, "refused") : Status();
  };
  EXPECT_TRUE(groups.for_each(call).ok());
  EXPECT_EQ(called, (std::vector<uint32_t>{10, 11, 12}));
  called.clear();
  EXPECT_TRUE(groups.for_each(call).ok());
  EXPECT_EQ(called, (std::vector<uint32_t>{10, 12}));
  refuses = 10;
  EXPECT_EQ(groups.for_each(call).code(), EIO);
  EXPECT_EQ(called.back(), 12u) << "the others were tried";
  dead = 10;
  EXPECT_TRUE(groups.for_each(call).ok());
  dead = 12;
  EXPECT_EQ(groups.for_each(call).code(), ESRCH) << "none is left";
}

TEST(TimeSliceSetter, WhatIsReleasedIsForgotten) {
  const auto slow = std::make_shared<Target>();
  slow->open = false;
  auto gone = std::make_shared<Target>();
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 1}, slow);
  ASSERT_TRUE(slow->wait_begun(1));
  setter.set({"a", 1, 1}, gone);
  const std::weak_ptr<Target> weak = gone;
  setter.release(std::move(gone));
  for (int i = 0; i < 1000 && !weak.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(weak.expired());  // although the setter's thread is busy
  slow->set_open();
  EXPECT_TRUE(slow->wait_seen({1}));
  setter.set({"a", 0, 2}, slow);
  EXPECT_TRUE(slow->wait_seen({1, 2}));
}

// What takes long to close, as a context that the driver frees.
struct SlowToGo : Target {
  ~SlowToGo() override { may_go.wait(); }
  std::shared_future<void> may_go;
};

TEST(TimeSliceSetter, NobodyWaitsForWhatIsSlowToClose) {
  std::promise<void> may_go;
  auto slow = std::make_shared<SlowToGo>();
  slow->may_go = may_go.get_future().share();
  const auto other = std::make_shared<Target>();
  TimeSliceSetter setter([](const auto&...) { FAIL(); }, unexpected);
  setter.set({"a", 0, 1}, slow);
  ASSERT_TRUE(slow->wait_seen({1}));
  setter.release(std::move(slow));
  setter.set({"b", 0, 2}, other);
  EXPECT_TRUE(other->wait_seen({2}));
  const auto owner = std::make_shared<char>();
  setter.close({}, owner);
  EXPECT_EQ(owner.use_count(), 2) << "its descriptors are closed before what was let go of earlier";
  may_go.set_value();
  for (int i = 0; i < 2000 && owner.use_count() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace bandsaw
