// How many blocks a slice of one kernel and shape has: as few as cost at most 2 % of the kernel's speed.
//
// A local rule: it begins with a wave, or with what takes long enough for a slice's fixed cost, and doubles while whole
// launches were faster by more than that.
#pragma once

#include <cstdint>

namespace bandsaw::runner {

class SliceSize {
 public:
  // `wave`: blocks that are resident at once; `whole_ns`: what a whole launch of `blocks` blocks takes.
  SliceSize(uint64_t wave, uint64_t blocks, uint64_t whole_ns);

  uint64_t blocks() const { return slice_; }
  // Larger slices do not help: the kernel is to run whole.
  bool hopeless() const { return hopeless_; }
  // A launch through slices of so many blocks took so long, and nobody else had the engine meanwhile.
  void learn(uint64_t slice, uint64_t sliced_ns, uint64_t whole_ns);

 private:
  static constexpr int kLooks = 3;  // before it is changed: the fastest of them counts

  const uint64_t wave_, blocks_;
  uint64_t slice_ = 0;
  uint64_t best_ns_ = 0;
  int looks_ = 0;
  bool hopeless_ = false;
};

}  // namespace bandsaw::runner
