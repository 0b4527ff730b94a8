#include "vgpu-sched/slice/meter.h"

#include <algorithm>

namespace bandsaw::slice {

void SpeedMeter::start(const Side& a, const Side& b) {
  if (running_ && counts_[0].side == a && counts_[1].side == b) return;
  counts_ = {Count{.side = a}, Count{.side = b}};
  running_ = true;
}

double SpeedMeter::speed(const Count& count) const {
  const Fit* fit = model_.fit(count.side.shape);
  if (fit == nullptr || count.to <= count.from) return -1;
  return static_cast<double>(count.blocks) * fit->profile.block_ns / static_cast<double>(count.to - count.from);
}

void SpeedMeter::slice_done(KernelId kernel, Blocks blocks, Time now) {
  if (!running_) return;
  for (Count& count : counts_) {
    if (count.side.kernel != kernel) continue;
    ++count.slices;
    if (count.slices > kWarmUp) {
      count.blocks += blocks;
    } else {
      count.from = now;
    }
    count.to = now;
  }
  const auto full = [](const Count& count) { return count.slices >= kWarmUp + kWindow; };
  if (!std::all_of(counts_.begin(), counts_.end(), full)) return;
  const double a = speed(counts_[0]);
  const double b = speed(counts_[1]);
  // Above what a kernel has alone, by more than noise, the time per block is no longer true: nothing to learn here.
  if (a > 0 && b > 0 && a < 1.2 && b < 1.2) {
    model_.observe(counts_[0].side.shape, counts_[0].side.resident, counts_[1].side.shape, counts_[1].side.resident, a,
                   b);
  }
  for (Count& count : counts_) {
    count.slices = kWarmUp;
    count.blocks = 0;
    count.from = count.to;
  }
}

}  // namespace bandsaw::slice
