#include "vgpu-sched/slice/tuner.h"

#include <algorithm>
#include <cmath>

namespace bandsaw::slice {
namespace {

constexpr double kMargin = 0.85;  // of the bound: the line is drawn through noise

// To whole rows of one block per SM, above a wave to whole waves; `blocks` where there are not so many.
Blocks grain(Blocks slice, Blocks blocks, Blocks wave, int sms) {
  const Blocks step = slice > wave ? wave : static_cast<Blocks>(sms);
  if (slice >= blocks || blocks - slice < step) return blocks;
  return (slice + step - 1) / step * step;
}

}  // namespace

Blocks minimum_slice(const SliceCost& cost, double bound) {
  if (cost.whole <= 0 || cost.sms <= 0 || cost.wave == 0 || !(bound > 0)) return cost.blocks;
  const double overhead = static_cast<double>(std::max<Time>(cost.overhead, 1));
  const double slices = std::floor(1 + bound * static_cast<double>(cost.whole) / overhead);
  if (slices < 2) return cost.blocks;
  const auto least = static_cast<Blocks>(std::ceil(static_cast<double>(cost.blocks) / slices));
  return grain(std::max<Blocks>(least, 1), cost.blocks, cost.wave, cost.sms);
}

SliceTuner::SliceTuner(const Options& options) : options_(options) {
  options_.sms = std::max(options_.sms, 1);
  options_.wave = std::max<Blocks>(options_.wave, 1);
  options_.blocks = std::clamp<Blocks>(options_.blocks, 1, Blocks{1} << 62);
  size_ = options_.blocks;
}

// Its own place, or the one that was used longest ago.
SliceTuner::Size& SliceTuner::take(Blocks slice) {
  Size* place = &sizes_[0];
  for (Size& size : sizes_) {
    if (size.slice == slice) return size;
    if (size.last < place->last) place = &size;
  }
  *place = Size{};
  place->slice = slice;
  return *place;
}

double SliceTuner::per_block(const Size& size) const {
  const int count = static_cast<int>(std::min<std::uint32_t>(size.count, kSamples));
  std::array<float, kSamples> times = size.times;
  std::nth_element(times.begin(), times.begin() + count / 4, times.begin() + count);
  return static_cast<double>(times[count / 4]) / static_cast<double>(size.slice);
}

// Least squares of the time per block over the inverse of the size.
SliceTuner::Line SliceTuner::line() const {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Size& size : sizes_) {
    if (size.count < kEnough || size.last + kFresh < observations_) continue;
    const double inverse = 1 / static_cast<double>(size.slice);
    const double time = per_block(size);
    count += 1;
    x += inverse;
    y += time;
    xx += inverse * inverse;
    xy += inverse * time;
  }
  const double spread = count * xx - x * x;
  if (count < 2 || spread <= 0) return {};
  const double slice = std::max((count * xy - x * y) / spread, 0.0);
  return {.block = std::max((y - slice * x) / count, y / count / 4), .slice = slice};
}

double SliceTuner::overhead(Blocks slice) const {
  const Line known = line();
  if (known.block <= 0 || slice == 0) return -1;
  return known.slice / (known.block * static_cast<double>(slice));
}

Blocks SliceTuner::round_up(double slice) const {
  const double most = static_cast<double>(options_.blocks);
  return grain(static_cast<Blocks>(std::ceil(std::clamp(slice, 1.0, most))), options_.blocks, options_.wave,
               options_.sms);
}

void SliceTuner::observe(Blocks slice, Time time) {
  if (time <= 0 || (slice != size_ && slice != options_.blocks)) return;
  Size& size = take(slice);
  size.times[size.count % kSamples] = static_cast<float>(time);
  ++size.count;
  size.last = ++observations_;
  if (slice == size_) judge(size);
}

void SliceTuner::judge(const Size& size) {
  if (size_ == options_.blocks) {
    // Whole so far: cut it by the prior, and not too finely, since that is only the first of two sizes.
    const double time = per_block(size) * static_cast<double>(options_.blocks);
    const Blocks least = minimum_slice({.whole = static_cast<Time>(time),
                                        .overhead = options_.overhead,
                                        .blocks = options_.blocks,
                                        .wave = options_.wave,
                                        .sms = options_.sms},
                                       options_.bound);
    size_ = round_up(4 * static_cast<double>(least));
    return;
  }
  if (size.count < kEnough || size.count % kEnough != 0) return;
  const Line known = line();
  const auto now = static_cast<double>(size_);
  if (known.block <= 0) {
    size_ = round_up(2 * now) < options_.blocks ? round_up(2 * now) : round_up(now / 2);
    return;
  }
  options_.overhead = std::max(static_cast<Time>(known.slice), Time{1});
  const double wanted = known.slice / (known.block * kMargin * options_.bound);
  size_ = round_up(std::clamp(wanted, now / 2, now * 2));
}

}  // namespace bandsaw::slice
