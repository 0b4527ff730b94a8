#include "backend/runner/slice_size.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// A launch of many slices tells as much of one as so many measurements.
constexpr uint64_t kObservationsMost = 8;

slice::SliceTuner::Options options(uint64_t blocks, uint64_t wave, uint32_t sms) {
  slice::SliceTuner::Options made;
  made.blocks = blocks;
  made.wave = wave;
  made.sms = static_cast<int>(sms);
  return made;
}

}  // namespace

SliceSize::SliceSize(uint64_t blocks, uint64_t wave, uint32_t sms)
    : blocks_(std::max<uint64_t>(blocks, 1)), tuner_(options(blocks_, wave, sms)) {}

void SliceSize::learn_whole(uint64_t nanoseconds) {
  whole_ns_ = whole_ns_ == 0 || wants_whole_ ? nanoseconds : std::min(whole_ns_, nanoseconds);
  wants_whole_ = false;
  tuner_.observe(blocks_, static_cast<slice::Time>(nanoseconds));
}

void SliceSize::learn_sliced(uint64_t slice, uint64_t nanoseconds) {
  if (slice == 0 || slice >= blocks_ || slice != blocks()) return;  // of an earlier size
  if (slice != slice_) looks_ = 0;
  slice_ = slice;
  sliced_ns_ = looks_ == 0 ? nanoseconds : std::min(sliced_ns_, nanoseconds);
  ++looks_;
  const double each = static_cast<double>(nanoseconds) * static_cast<double>(slice) / static_cast<double>(blocks_);
  const uint64_t slices = (blocks_ + slice - 1) / slice;
  for (uint64_t i = 0; i < std::min(slices, kObservationsMost) && blocks() == slice; ++i) {
    tuner_.observe(slice, static_cast<slice::Time>(each));
  }
  if (looks_ < kLooks || whole_ns_ == 0) return;
  looks_ = 0;
  const double cost = std::max(tuner_.overhead(slice), 0.0);
  const double allowed = 1 + slice::kOverheadBound + std::min(cost, slice::kOverheadBound);
  const bool slower = static_cast<double>(sliced_ns_) > allowed * static_cast<double>(whole_ns_);
  strikes_ = !slower ? 0 : compared_ ? strikes_ + 1 : strikes_;
  wants_whole_ = compared_ = slower;  // a neighbour may have come since
}

}  // namespace bandsaw::runner
