#include "backend/runner/slice_size.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// A slice costs about this much: a launch, two events, the way through the gate; at most a fiftieth of it is to be
// that.
constexpr uint64_t kSliceCostNs = 4'000, kShare = 50;

}  // namespace

SliceSize::SliceSize(uint64_t wave, uint64_t blocks, uint64_t whole_ns)
    : wave_(std::max<uint64_t>(wave, 1)), blocks_(std::max<uint64_t>(blocks, 1)) {
  const double needed =
      static_cast<double>(kSliceCostNs * kShare) / static_cast<double>(std::max<uint64_t>(whole_ns, 1));
  const auto least = static_cast<uint64_t>(std::min(1.0, needed) * static_cast<double>(blocks_));
  slice_ = std::min(blocks_, (std::max(wave_, least) + wave_ - 1) / wave_ * wave_);
}

void SliceSize::learn(uint64_t slice, uint64_t sliced_ns, uint64_t whole_ns) {
  if (slice != slice_ || whole_ns == 0) return;  // of an earlier size
  best_ns_ = looks_ == 0 ? sliced_ns : std::min(best_ns_, sliced_ns);
  if (++looks_ < kLooks) return;
  looks_ = 0;
  if (best_ns_ <= whole_ns + whole_ns / 50) return;
  if (slice_ > blocks_ / 2) {
    hopeless_ = true;
  } else {
    slice_ *= 2;
  }
}

}  // namespace bandsaw::runner
