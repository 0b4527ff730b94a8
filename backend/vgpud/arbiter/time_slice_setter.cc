#include "backend/vgpud/arbiter/time_slice_setter.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>

namespace bandsaw {

TimeSliceSetter::TimeSliceSetter(Failed failed, Changed changed)
    : failed_(std::move(failed)),
      changed_(std::move(changed)),
      setting_([this] { set_all(); }),
      releasing_([this] { release_all(); }) {}

TimeSliceSetter::~TimeSliceSetter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ordered_.notify_one();
  released_.notify_one();
  setting_.join();
  releasing_.join();
}

void TimeSliceSetter::set(TimeSliceOrder order, Target target) {
  {
    std::lock_guard lock(mutex_);
    Key key{std::move(order.vgpu), order.slot};
    const auto [place, added] = orders_.try_emplace(key);
    if (added || !order.check) place->second = {order.microseconds, order.check, std::move(target)};
    if (added) turns_.push_back(std::move(key));
  }
  ordered_.notify_one();
}

void TimeSliceSetter::release(Target target) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(turns_, [&](const Key& key) { return orders_.at(key).target == target; });
    std::erase_if(orders_, [&](const auto& entry) { return entry.second.target == target; });
  }
  leave(std::move(target));
}

void TimeSliceSetter::close(std::vector<UniqueFd> descriptors, std::shared_ptr<const void> owner) {
  leave(std::make_shared<std::pair<std::shared_ptr<const void>, std::vector<UniqueFd>>>(std::move(owner),
                                                                                        std::move(descriptors)));
}

void TimeSliceSetter::leave(std::shared_ptr<const void> thing) {
  {
    std::lock_guard lock(mutex_);
    leaving_.push_back(std::move(thing));
  }
  released_.notify_one();
}

Status TimeSliceSetter::carry_out(const TimeSliceOrder& order, const Target& target) const {
  return order.check ? put_right(order, target) : target->set_time_slice(std::chrono::microseconds(order.microseconds));
}

// Nobody is accused by a driver that does not say what was set.
Status TimeSliceSetter::put_right(const TimeSliceOrder& order, const Target& target) const {
  const std::chrono::microseconds wanted(order.microseconds), rounding(20 + order.microseconds / 8);
  const auto has = target->time_slice();
  if (!has.ok()) return has.status().code() == ESRCH ? has.status() : Status();
  if (has.value() <= wanted + rounding) return {};
  if (Status status = target->set_time_slice(wanted); !status.ok()) return status;
  const auto has_now = target->time_slice();
  if (has_now.ok() && has_now.value() <= wanted + rounding)
    changed_(order, target, static_cast<uint64_t>(has.value().count()));
  return {};
}

void TimeSliceSetter::set_all() {
  pthread_setname_np(pthread_self(), "time-slices");
  std::unique_lock lock(mutex_);
  for (;;) {
    ordered_.wait(lock, [this] { return stop_ || !turns_.empty(); });
    if (stop_) return;
    const auto taken = orders_.extract(turns_.front());
    turns_.pop_front();
    lock.unlock();
    const Order& mapped = taken.mapped();
    const TimeSliceOrder order{taken.key().first, taken.key().second, mapped.microseconds, mapped.check};
    if (const Status status = carry_out(order, mapped.target); !status.ok()) failed_(order, mapped.target, status);
    lock.lock();
    // The last one that holds the target closes it, which takes time: not here.
    leaving_.push_back(std::move(taken.mapped().target));
    released_.notify_one();
  }
}

void TimeSliceSetter::release_all() {
  pthread_setname_np(pthread_self(), "releases");
  std::unique_lock lock(mutex_);
  for (;;) {
    released_.wait(lock, [this] { return stop_ || !leaving_.empty(); });
    if (stop_ && leaving_.empty()) return;
    std::vector<std::shared_ptr<const void>> gone = std::exchange(leaving_, {});
    lock.unlock();
    gone.clear();
    lock.lock();
  }
}

}  // namespace bandsaw
