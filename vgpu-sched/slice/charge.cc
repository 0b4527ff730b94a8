#include "vgpu-sched/slice/charge.h"

#include <algorithm>
#include <cmath>

namespace bandsaw::slice {

void ChargeMeter::pass(Time now) {
  if (now <= last_) return;
  double sum = 0;
  for (const Slice& slice : slices_) sum += slice.footprint;
  for (Slice& slice : slices_) slice.charged += static_cast<double>(now - last_) * slice.footprint / sum;
  last_ = now;
}

bool ChargeMeter::begin(SliceId slice, double footprint, Time now) {
  if (std::any_of(slices_.begin(), slices_.end(), [slice](const Slice& one) { return one.id == slice; })) return false;
  pass(now);
  slices_.push_back({.id = slice, .footprint = std::isfinite(footprint) ? std::clamp(footprint, 1e-4, 1.0) : 1.0});
  return true;
}

Time ChargeMeter::end(SliceId slice, Time now) {
  const auto found =
      std::find_if(slices_.begin(), slices_.end(), [slice](const Slice& one) { return one.id == slice; });
  if (found == slices_.end()) return 0;
  pass(now);
  const auto charged = static_cast<Time>(std::llround(found->charged));
  slices_.erase(found);
  return charged;
}

}  // namespace bandsaw::slice
