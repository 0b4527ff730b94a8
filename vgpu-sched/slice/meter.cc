#include "vgpu-sched/slice/meter.h"

#include <algorithm>
#include <utility>

namespace bandsaw::slice {

void SpeedMeter::start(const Side& a, const Side& b) {
  if (running_ && counts_[0].side == a && counts_[1].side == b) return;
  counts_ = {Count{.side = a}, Count{.side = b}};
  running_ = true;
}

SpeedMeter::Count* SpeedMeter::find(KernelId kernel) {
  if (!running_) return nullptr;
  const auto found = std::find_if(counts_.begin(), counts_.end(),
                                  [kernel](const Count& count) { return count.side.kernel == kernel; });
  return found == counts_.end() ? nullptr : &*found;
}

double SpeedMeter::speed(const Count& count) const {
  const Fit* fit = model_.fit(count.side.shape);
  if (fit == nullptr || count.to <= count.from) return -1;
  return static_cast<double>(count.blocks) * fit->profile.block_ns / static_cast<double>(count.to - count.from);
}

bool SpeedMeter::is_full(const Count& count) const {
  if (!count.seen) return count.slices >= kWarmUp + kWindow;
  const auto row = static_cast<Blocks>(count.side.resident) * static_cast<Blocks>(model_.gpu().sms);
  return count.to - count.from >= kLeastWindow && count.blocks >= kLeastRounds * row;
}

bool SpeedMeter::grid_slice_done(KernelId kernel, Blocks blocks, Time now) {
  Count* const count = find(kernel);
  if (count == nullptr || count->seen) return false;
  ++count->slices;
  if (count->slices > kWarmUp) {
    count->blocks += blocks;
  } else {
    count->from = now;
  }
  count->to = now;
  return tell();
}

bool SpeedMeter::claimed(KernelId kernel, Blocks blocks, int resident, Time at) {
  Count* const count = find(kernel);
  if (count == nullptr) return false;
  if (resident != count->side.resident || (count->seen && (blocks < count->claimed || at < count->to))) {
    *count = Count{.side = count->side};  // it has not come to what is planned
    return false;
  }
  if (!std::exchange(count->seen, true)) {
    // Only what passes while both run counts.
    for (Count& each : counts_) each.restart();
    count->from = at;
  } else {
    count->blocks += blocks - count->claimed;
  }
  count->claimed = blocks;
  count->to = at;
  return tell();
}

double SpeedMeter::throughput() const {
  if (!running_) return 0;
  const Side &a = counts_[0].side, &b = counts_[1].side;
  return model_.pair(a.shape, a.resident, b.shape, b.resident).throughput();
}

bool SpeedMeter::tell() {
  if (!std::all_of(counts_.begin(), counts_.end(), [this](const Count& count) { return is_full(count); })) return false;
  const Side &a = counts_[0].side, &b = counts_[1].side;
  const double speed_a = speed(counts_[0]), speed_b = speed(counts_[1]);
  for (Count& count : counts_) {
    count.slices = kWarmUp;
    count.restart();
  }
  // Above what a kernel has alone, by more than noise, the time per block is no longer true: nothing to learn here.
  if (!(speed_a > 0 && speed_b > 0 && speed_a < 1.2 && speed_b < 1.2)) return false;
  model_.observe(a.shape, a.resident, b.shape, b.resident, speed_a, speed_b);
  ++observed_;
  return true;
}

}  // namespace bandsaw::slice
