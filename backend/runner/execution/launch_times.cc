#include "backend/runner/execution/launch_times.h"

#include <algorithm>
#include <utility>

namespace bandsaw::runner {

LaunchTimes::Known LaunchTimes::find(const LaunchId& id, bool alone) {
  const auto now = clock_.now();
  std::lock_guard lock(mutex_);
  const auto shape = times_.find(id.shape), exact = times_.find(id.exact);
  const bool has_shape = shape != times_.end(), has_exact = exact != times_.end();
  if (has_shape) shape->second.used = now;
  if (has_exact) exact->second.used = now;
  Known known{.ns = usual(has_shape ? &shape->second : nullptr, has_exact ? &exact->second : nullptr)};
  const bool little = !has_shape || shape->second.begun < kEnough;
  const bool due = little || !has_exact || exact->second.begun < kEnough || now - exact->second.sampled >= kAgain;
  const auto between = little ? kBetween : alone && known.ns != 0 ? kAgain : kBetweenLater;
  known.sample = due && now - sampled_ >= between;
  return known;
}

uint64_t LaunchTimes::usual(const Time* shape, const Time* exact) {
  if (!exact || exact->usual == 0) return shape ? shape->usual : 0;
  if (exact->alone || !shape || !shape->alone) return exact->usual;
  const uint64_t little = shape->usual / kLittle;
  const bool same = exact->usual >= shape->usual - little && exact->usual <= shape->usual + little;
  return same ? shape->usual : exact->usual;
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

LaunchTimes::Learnt LaunchTimes::learn(const LaunchId& id, uint64_t ns, uint64_t within, bool waited) {
  if (ns == 0) return Learnt::kNothing;
  const bool loose = !waited && ns < kLittle * kIssue, at_most = !waited && within != kAlone;
  std::lock_guard lock(mutex_);
  const auto shape = times_.find(id.shape), exact = times_.find(id.exact);
  uint64_t of_shape = 0;
  for (const auto& found : {shape, exact}) {
    if (found == times_.end()) continue;
    Time& time = found->second;
    if (at_most && (time.usual == 0 ? !loose : ns >= time.usual)) return Learnt::kNothing;
    const uint64_t before = time.usual;
    learn(time, ns, within, loose, of_shape);
    of_shape = before;
  }
  if (exact == times_.end()) return Learnt::kNothing;
  Time* const both[] = {&exact->second, shape == times_.end() ? nullptr : &shape->second};
  return ns > within ? cut(both) : fitted(both, within == kAlone || ns >= kLong);
}

// It is wanted of the shape too: parameters that always change are never seen again.
LaunchTimes::Learnt LaunchTimes::cut(std::span<Time* const, 2> both) {
  const bool unknown = std::ranges::all_of(both, [](const Time* time) { return !time || time->usual == 0; });
  Time& exact = *both[0];
  exact.wanted |= unknown || exact.cut >= kDoubt;
  if (both[1]) both[1]->wanted |= unknown;
  return exact.wanted ? Learnt::kCut : Learnt::kNothing;
}

LaunchTimes::Learnt LaunchTimes::fitted(std::span<Time* const, 2> both, bool sure) {
  bool known = false;
  for (Time* const time : both) {
    if (!time || !time->wanted || (++time->fitted < kEnough && !sure)) continue;
    time->wanted = false;
    time->fitted = 0;
    known = true;
  }
  return known ? Learnt::kKnown : Learnt::kNothing;
}

// Of a loose sample, where the time is known better.
bool LaunchTimes::says_nothing(const Time& time, uint64_t ns) {
  return time.usual != 0 && !time.loose && ns >= time.usual && ns <= time.usual + time.usual / kLittle + kIssue;
}

// A first sample from beside others; `ns` becomes the least of such. `of_shape`: what other launches of its shape take;
// 0: that is not known.
bool LaunchTimes::is_doubtful(Time& time, uint64_t* ns, uint64_t of_shape) {
  if (of_shape == 0 || *ns <= of_shape + of_shape / kLittle) return false;
  time.least_longer = time.longer == 0 ? *ns : std::min(time.least_longer, *ns);
  *ns = time.least_longer;
  return ++time.longer < kEnough;
}

void LaunchTimes::learn(Time& time, uint64_t ns, uint64_t within, bool loose, uint64_t of_shape) {
  const bool whole = ns <= within, alone = within == kAlone;
  const uint64_t little = time.usual / kLittle;
  if (whole) time.cut = 0;
  if (loose && says_nothing(time, ns)) return;
  if (time.usual == 0 && whole && !alone && is_doubtful(time, &ns, of_shape)) return;
  if (time.loose && !loose && whole) time.usual = 0;
  if (time.usual == 0 ? whole : ns < time.usual - (time.alone && !alone ? time.usual / kBeside : little)) {
    time.usual = ns;
    time.longer = time.like = 0;
    time.alone = alone;
    time.loose = loose;
  } else if (time.usual != 0 && ns <= time.usual + little) {
    time.longer = 0;
    if (time.alone && !alone) return;
    if (alone && !time.alone) time.usual = ns;
    if (!alone && time.like < kFew) {
      time.like += whole;
      time.usual = std::min(time.usual, ns);
    } else if (whole || ns < time.usual) {
      time.usual = (7 * time.usual + ns) / 8;
    }
    time.alone = alone;
  } else if (time.usual != 0) {
    note_longer(time, ns, within, loose);
  }
}

void LaunchTimes::note_longer(Time& time, uint64_t ns, uint64_t within, bool loose) {
  if (ns > within && time.usual > within) {  // it could not fit
    time.cut = std::min(time.cut + 1, kDoubt);
    return;
  }
  if (time.longer == 0) time.least_longer = 0;
  if (ns <= within) time.least_longer = time.least_longer == 0 ? ns : std::min(time.least_longer, ns);
  if (++time.longer < kLonger) return;
  time.usual = time.least_longer;
  time.loose = loose;
  time.longer = 0;
  time.alone = within == kAlone;
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
