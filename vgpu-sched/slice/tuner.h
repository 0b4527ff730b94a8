// The least slice of a kernel that keeps the cost of slicing within a bound: first from what is known, then from
// measurements.
//
// Source: Kernelet, section 4.1: the least slice whose overhead is at most p %, p = 2.
#pragma once

#include <array>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

inline constexpr double kOverheadBound = 0.02;

struct SliceCost {
  Time whole = 0;     // of the kernel in one piece
  Time overhead = 0;  // that each further slice adds
  Blocks blocks = 0;
  Blocks wave = 0;  // resident blocks of the whole GPU
  int sms = 132;
};

// The least multiple of the SM count, above one wave of whole waves, for which (slices - 1) * overhead stays within
// `bound` of the kernel; `blocks` where no cut does, or where a value makes no sense.
Blocks minimum_slice(const SliceCost& cost, double bound = kOverheadBound);

// The same, refined by what slices really take. One for each kernel and shape of launch; of fixed size.
//
// A block takes t and a slice o beside, so that a block of a slice of s takes t + o / s: a line through the sizes that
// were measured, of each the lower quartile of its last 32 times, since what disturbs a measurement makes it longer.
// The size goes to where o is the bound's part of s t, by a factor of two at most each time it is judged. Two sizes are
// needed for a line; where the second one's measurements have become old, it is visited again.
//
// Only slices that ran with no other tenant beside them are to be told. Calls from one thread at a time.
class SliceTuner {
 public:
  struct Options {
    Blocks blocks = 1;  // of the launch
    Blocks wave = 132;
    int sms = 132;
    Time overhead = 3 * kMicrosecond;  // of a slice, until it is measured
    double bound = kOverheadBound;
  };

  explicit SliceTuner(const Options& options);

  // The slice size to use next; `blocks` while nothing better is known to pay.
  Blocks next() const { return size_; }
  // `time`: how long the GPU was at the slice; with several in flight, from the end of the one before to its own end.
  // Of sizes other than next() and the whole kernel, and of times not above 0, nothing is learnt.
  void observe(Blocks slice, Time time);
  // The part of the time that slices of this size lose, as measured; below 0 while less than two sizes are known.
  double overhead(Blocks slice) const;

 private:
  static constexpr int kSamples = 32;
  static constexpr int kSizes = 8;
  static constexpr int kEnough = 16;                // measurements of a size before it is judged
  static constexpr std::uint64_t kFresh = 1 << 11;  // measurements of any size, after which those of a size are old

  struct Size {
    Blocks slice = 0;  // 0: empty
    std::array<float, kSamples> times{};
    std::uint32_t count = 0;
    std::uint64_t last = 0;  // observation
  };
  // Nanoseconds of a block and of a slice beside its blocks.
  struct Line {
    double block = 0;  // 0: less than two sizes are known
    double slice = 0;
  };

  Size& take(Blocks slice);
  double per_block(const Size& size) const;
  Line line() const;
  Blocks round_up(double slice) const;
  void judge(const Size& size);

  Options options_;
  Blocks size_;
  std::array<Size, kSizes> sizes_{};
  std::uint64_t observations_ = 0;
};

}  // namespace bandsaw::slice
