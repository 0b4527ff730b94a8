#include "backend/runner/execution/launch_times.h"

#include <algorithm>

namespace bandsaw::runner {

LaunchTimes::Known LaunchTimes::find(const LaunchId& id, bool alone) {
  const auto now = clock_.now();
  std::lock_guard lock(mutex_);
  const auto shape = times_.find(id.shape), exact = times_.find(id.exact);
  const bool has_shape = shape != times_.end(), has_exact = exact != times_.end();
  if (has_shape) shape->second.used = now;
  if (has_exact) exact->second.used = now;
  Known known;
  if (has_exact) known.ns = exact->second.usual;
  if (has_shape && known.ns == 0) known.ns = shape->second.usual;
  const bool little = !has_shape || shape->second.begun < kEnough;
  const bool again = !alone || known.ns == 0;  // no sample so far may have been fit to learn from
  const bool due =
      little || !has_exact || exact->second.begun < kEnough || (again && now - exact->second.sampled >= kAgain);
  known.sample = due && now - sampled_ >= (little ? kBetween : kBetweenLater);
  return known;
}

void LaunchTimes::begin_sample(const LaunchId& id) {
  const auto now = clock_.now();
  std::lock_guard lock(mutex_);
  sampled_ = now;
  for (const uint64_t key : {id.shape, id.exact}) {
    Time* const time = place(key, now);
    if (!time) continue;
    ++time->begun;
    time->sampled = time->used = now;
  }
}

bool LaunchTimes::learn(const LaunchId& id, uint64_t ns, bool whole) {
  if (ns == 0) return true;
  std::lock_guard lock(mutex_);
  bool known = whole;
  for (const uint64_t key : {id.shape, id.exact}) {
    const auto found = times_.find(key);
    if (found == times_.end()) continue;
    learn(found->second, ns, whole);
    known = known || found->second.usual != 0;
  }
  return known;
}

void LaunchTimes::learn(Time& time, uint64_t ns, bool whole) {
  const auto believe = [&](uint64_t believed) {
    time.usual = believed;
    time.longer = 0;
  };
  const uint64_t little = time.usual / kLittle;
  if (time.usual == 0 ? whole : ns < time.usual - little) return believe(ns);
  if (time.usual == 0) return;
  if (ns <= time.usual + little) {
    if (whole || ns < time.usual) time.usual = (7 * time.usual + ns) / 8;
    time.longer = 0;
    return;
  }
  if (time.longer == 0) time.least_longer = 0;
  if (whole) time.least_longer = time.least_longer == 0 ? ns : std::min(time.least_longer, ns);
  if (++time.longer < kLonger) return;
  believe(time.least_longer);
}

// Null: there is no room.
LaunchTimes::Time* LaunchTimes::place(uint64_t key, Clock::Point now) {
  if (const auto found = times_.find(key); found != times_.end()) return &found->second;
  if (times_.size() >= kMost) {
    if (now - cleared_ < kForget) return nullptr;
    cleared_ = now;
    std::erase_if(times_, [&](const auto& entry) { return now - entry.second.used >= kForget; });
    if (times_.size() >= kMost) return nullptr;
  }
  return &times_[key];
}

}  // namespace bandsaw::runner
