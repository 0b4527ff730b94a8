#include "backend/runner/slicing/grid_slice_size.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// What a grid slice costs, until it is measured (both figures: an H200). Beside each other: the GPU never waits if each
// lasts longer than it takes to issue the next. One after the other: it empties and fills again between two.
constexpr slice::Time kBesideNs = 1'000, kAloneNs = 30'000;

slice::GridSliceTuner::Options options(uint64_t blocks, uint64_t wave, uint32_t sms) {
  slice::GridSliceTuner::Options made;
  made.blocks = blocks;
  made.wave = wave;
  made.sms = static_cast<int>(sms);
  made.overhead = kBesideNs;
  return made;
}

}  // namespace

GridSliceSize::GridSliceSize(uint64_t blocks, uint64_t wave, uint32_t sms)
    : blocks_(std::max<uint64_t>(blocks, 1)), tuner_(options(blocks_, wave, sms)) {}

// One of the grid slices on the device waits there to take the place of the first that ends: it does not count.
void GridSliceSize::run_beside(uint32_t slices, bool apart) {
  const bool overlap = apart && slices > 1;
  tuner_.run_beside(overlap ? static_cast<int>(slices) - 1 : 1, overlap ? kBesideNs : kAloneNs);
}

}  // namespace bandsaw::runner
