#include "backend/runner/execution/step_times.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// A step is seldom faster than usual, and often slower: the host was, it was the first, or somebody else has begun. So
// the usual time rises by little at a time, and falls at once.
void learn(double* usual, uint64_t ns) {
  constexpr double kRise = 0.01;
  const auto now = static_cast<double>(ns);
  if (ns == 0) return;
  *usual = *usual == 0 ? now : *usual + std::min((now - *usual) / 4, kRise * *usual);
}

}  // namespace

bool StepTimes::may_end() {
  if (!waited_) return ++without_waits_ > kWithoutWaits;
  without_waits_ = 0;
  return true;
}

void StepTimes::end_alone(uint64_t step_ns, uint64_t work_ns) {
  if (launches_ != 0) {
    if (steps_.size() >= kMost && !steps_.contains(launches_)) steps_.clear();
    Alone& alone = steps_[launches_];
    learn(&alone.step_ns, step_ns);
    learn(&alone.work_ns, work_ns);
  }
  if (is_known() && step_ns != 0) alone_.add(static_cast<double>(step_ns), static_cast<double>(own_));
  begin();
}

StepTimes::Takes StepTimes::end() {
  const auto found = steps_.find(launches_);
  const Alone alone = found == steps_.end() ? Alone{} : found->second;
  const double launches = launches_take(alone);
  double takes = is_known() ? alone_.ratio() * static_cast<double>(own_) : 0;
  if (alone.step_ns != 0 && (launches != 0 || !is_known())) takes = alone.step_ns;
  const auto count = static_cast<double>(count_);
  begin();
  if (steps_.empty()) return {};
  known_.add(takes > 0 ? count : 0, count);
  if (takes > 0) mean_.add(takes, count);
  if (known_.ratio() < 0.5) return {.launches = launches};
  return {.step_ns = static_cast<uint64_t>(takes > 0 ? takes : mean_.ratio() * count), .launches = launches};
}

double StepTimes::launches_take(const Alone& alone) const {
  if (!is_known()) return 0;
  const double times = alone.work_ns / static_cast<double>(own_);
  return times >= kLaunchesLeast && times <= kLaunchesMost ? times : 0;
}

void StepTimes::begin() {
  launches_ = own_ = count_ = 0;
  unknown_ = waited_ = false;
}

}  // namespace bandsaw::runner
