#include "vgpu-sched/slice/tuner.h"

#include <algorithm>
#include <cmath>

namespace bandsaw::slice {
namespace {

constexpr double kMargin = 0.6;  // of the bound: launches are measured through noise
constexpr Time kLonger = 3;      // times its length makes it another kernel

// To whole rows of one block per SM, above a wave to whole waves; `blocks` where there are not so many.
Blocks grain(Blocks slice, Blocks blocks, Blocks wave, int sms) {
  const Blocks step = slice > wave ? wave : static_cast<Blocks>(sms);
  if (slice >= blocks || blocks - slice < step) return blocks;
  return (slice + step - 1) / step * step;
}

}  // namespace

Blocks minimum_grid_slice(const GridSliceCost& cost, double bound) {
  if (cost.whole <= 0 || cost.sms <= 0 || cost.wave == 0 || !(bound > 0)) return cost.blocks;
  const double overhead = static_cast<double>(std::max<Time>(cost.overhead, 1));
  const double slices = std::floor(1 + bound * static_cast<double>(cost.whole) / overhead);
  if (slices < 2) return cost.blocks;
  const auto least = static_cast<Blocks>(std::ceil(static_cast<double>(cost.blocks) / slices));
  return grain(std::max<Blocks>(least, 1), cost.blocks, cost.wave, cost.sms);
}

GridSliceTuner::GridSliceTuner(const Options& options) : options_(options) {
  options_.sms = std::max(options_.sms, 1);
  options_.beside = std::max(options_.beside, 1);
  options_.wave = std::max<Blocks>(options_.wave, 1);
  options_.blocks = std::clamp<Blocks>(options_.blocks, 1, Blocks{1} << 62);
  size_ = options_.blocks;
}

void GridSliceTuner::run_beside(int slices, Time overhead) {
  if (slices == options_.beside && overhead == options_.overhead) return;
  options_.beside = slices;
  options_.overhead = overhead;
  const Size* whole = fresh(options_.blocks);
  begin_anew(whole ? static_cast<Time>(time_of(*whole)) : 0);
}

void GridSliceTuner::begin_anew(Time whole) {
  *this = GridSliceTuner(Options(options_));
  observe(options_.blocks, whole);
}

// Its own place, or the one that was used longest ago.
GridSliceTuner::Size& GridSliceTuner::take(Blocks slice) {
  Size* place = &sizes_[0];
  for (Size& size : sizes_) {
    if (size.slice == slice) return size;
    if (size.last < place->last) place = &size;
  }
  *place = Size{};
  place->slice = slice;
  return *place;
}

// Null: it is not known, or no more.
const GridSliceTuner::Size* GridSliceTuner::fresh(Blocks slice) const {
  for (const Size& size : sizes_) {
    if (size.slice == slice && size.count != 0 && size.last + kFresh >= observations_) return &size;
  }
  return nullptr;
}

double GridSliceTuner::time_of(const Size& size) const {
  const int count = static_cast<int>(std::min<std::uint32_t>(size.count, kSamples));
  std::array<float, kSamples> times = size.times;
  std::nth_element(times.begin(), times.begin() + count / 4, times.begin() + count);
  return static_cast<double>(times[count / 4]);
}

double GridSliceTuner::overhead(Blocks slice) const {
  const Size* const size = slice == 0 ? nullptr : fresh(slice);
  if (!size) return -1;
  const Size* against = nullptr;
  for (const Size& other : sizes_) {
    if (other.slice > slice && fresh(other.slice) && (!against || other.last > against->last)) against = &other;
  }
  if (!against) return slice == options_.blocks ? 0 : -1;
  const double slices = slices_of(slice), fewer = slices_of(against->slice);
  if (slices <= fewer) return -1;
  const double time = time_of(*size), each = std::max(time - time_of(*against), 0.0) / (slices - fewer);
  const double lost = each * (slices - 1);
  return lost / std::max(time - lost, time / 4);
}

bool GridSliceTuner::is_within(Blocks slice, double bound) const {
  const double cost = overhead(slice);
  return cost >= 0 && cost <= bound;
}

// Half of its launches took longer than the shortest by more than what is to be seen.
bool GridSliceTuner::is_noisy(Blocks slice) const {
  const Size* const size = fresh(slice);
  if (!size || size->count < kEnough) return false;
  const int count = static_cast<int>(std::min<std::uint32_t>(size->count, kSamples));
  std::array<float, kSamples> times = size->times;
  std::sort(times.begin(), times.begin() + count);
  return static_cast<double>(times[(count - 1) / 2]) > (1 + 2 * options_.bound) * static_cast<double>(times[0]);
}

Blocks GridSliceTuner::round_up(double slice) const {
  const double most = static_cast<double>(options_.blocks);
  return grain(static_cast<Blocks>(std::ceil(std::clamp(slice, 1.0, most))), options_.blocks, options_.wave,
               options_.sms);
}

// The whole kernel, where there would not be two grid slices of twice the size.
Blocks GridSliceTuner::larger() const {
  const Blocks twice = round_up(2 * static_cast<double>(size_));
  return twice > options_.blocks / 2 ? options_.blocks : twice;
}

void GridSliceTuner::go(Blocks slice, Blocks from) {
  size_ = slice;
  from_ = from;
  take(slice).count = 0;  // what it took long ago says nothing
  launches_seen_ = 0;
  settled_ = 0;
}

void GridSliceTuner::observe(Blocks slice, Time time) {
  if (time <= 0 || (slice != size_ && slice != options_.blocks)) return;
  longer_ = least_ != 0 && time / kLonger > basis_ ? longer_ + 1 : 0;
  if (longer_ == kEnough) return begin_anew(time);
  Size& size = take(slice);
  // What it took before it was cut may say nothing of today.
  if (slice == options_.blocks && slice == size_ && least_ != 0) size.count = 0;
  size.times[size.count % kSamples] = static_cast<float>(time);
  ++size.count;
  size.last = ++observations_;
  if (slice != size_ || hopeless()) return;
  if (slice == options_.blocks) return judge_whole();
  if (++launches_seen_ % (calm_ ? kEnoughCalm : kEnough) == 0) judge();
}

void GridSliceTuner::judge_whole() {
  if (least_ == 0) {
    const auto time = static_cast<Time>(time_of(*fresh(options_.blocks)));
    const Blocks least = minimum_grid_slice({.whole = time,
                                             .overhead = options_.overhead,
                                             .blocks = options_.blocks,
                                             .wave = options_.wave,
                                             .sms = options_.sms},
                                            options_.bound);
    const auto filling = static_cast<double>(options_.wave) / options_.beside;
    const Blocks slice = std::max(least, round_up(filling));
    basis_ = time;
    if (slice <= options_.blocks / 2) go(least_ = slice, 0);
    return;
  }
  Blocks cheap = 0;
  for (const Size& size : sizes_) {
    if (size.slice >= least_ && size.slice < options_.blocks && is_within(size.slice, options_.bound)) {
      cheap = cheap == 0 ? size.slice : std::min(cheap, size.slice);
    }
  }
  if (cheap == 0 && ++strikes_ >= kStrikes) return;
  if (cheap != 0) {  // so it was for nothing
    strikes_ = 0;
    next_whole_ = observations_ + whole_pause_;
    whole_pause_ = std::min(2 * whole_pause_, 16 * kFresh);
  }
  go(cheap != 0 ? cheap : std::max(least_, round_up(static_cast<double>(options_.blocks) / 8)), 0);
}

// A size that was kept once goes only if it is clearly too dear.
void GridSliceTuner::judge() {
  if (is_noisy(size_)) return from_ != 0 ? go(from_, 0) : void();
  const double allowed = (calm_ && from_ < size_ ? 1 : kMargin) * options_.bound;
  if (from_ != 0 && from_ < size_ && is_within(from_, allowed)) {
    // More is no faster: so was the smaller one good, unless by itself it is slower than the whole.
    const bool slower = overhead(size_) > options_.bound && observations_ >= next_whole_;
    return slower ? go(options_.blocks, from_) : go(from_, 0);
  }
  const double cost = overhead(size_);
  const bool dear = cost < 0 || cost > allowed;
  if (dear && (larger() != options_.blocks || observations_ >= next_whole_)) return go(larger(), size_);
  settle();
}

// Where it is cheap, half of it may be too.
void GridSliceTuner::settle() {
  if (from_ > size_) retry_after_ = kTryAgain;  // it was half of that
  if (from_ != 0 && from_ < size_) retry_after_ = std::min(2 * retry_after_, 2 * kFresh);
  from_ = 0;
  settled_ += kEnoughCalm;
  calm_ = true;
  if (size_ <= least_ || settled_ < retry_after_) return;
  go(std::max(least_, round_up(static_cast<double>(size_) / 2)), size_);
}

}  // namespace bandsaw::slice
