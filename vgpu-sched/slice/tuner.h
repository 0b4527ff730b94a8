// The least grid slice of a kernel that keeps the cost of slicing within a bound: first from what is known, then from
// measurements.
//
// Source: Kernelet, section 4.1: the least grid slice whose overhead is at most p %, p = 2.
#pragma once

#include <array>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

inline constexpr double kOverheadBound = 0.02;

struct GridSliceCost {
  Time whole = 0;     // of the whole kernel
  Time overhead = 0;  // that each further grid slice adds
  Blocks blocks = 0;
  Blocks wave = 0;  // resident blocks of the whole GPU
  int sms = 132;
};

// The least multiple of the SM count, above one wave of whole waves, for which all cuts but the first, times the
// overhead, stay within `bound` of the kernel; `blocks` where no cut does, or where a value makes no sense.
Blocks minimum_grid_slice(const GridSliceCost& cost, double bound = kOverheadBound);

// The same, refined by what launches take whole and in grid slices. One for each kernel and shape of launch; of fixed
// size.
//
// It begins with grid slices that fill the GPU together with those beside them. After three launches of a size, more of
// them later, it is judged against the larger size, or the whole kernel, that was measured last, each by the lower
// quartile of its last launches, as what disturbs a measurement makes it longer: what the launch took longer, for each
// grid slice that it had more, is the cost of a grid slice. A size that costs more than the bound's part is doubled. If
// that brings nothing, it is not the grid slices that take the time: then the kernel runs whole once, and with what
// that takes now, the least known size that is cheap is chosen. Where there is none three times, it stays whole. Now
// and then half a size is tried. A kernel that takes several times as long as when its least size was chosen (its
// arguments may have changed) begins anew.
//
// Calls from one thread at a time.
class GridSliceTuner {
 public:
  struct Options {
    Blocks blocks = 1;  // of the launch
    Blocks wave = 132;
    int sms = 132;
    int beside = 1;  // grid slices that run at a time
    // Of a grid slice, until it is measured: with others beside it, what it takes to issue one; else until the GPU is
    // full again.
    Time overhead = 30 * kMicrosecond;
    double bound = kOverheadBound;
  };

  explicit GridSliceTuner(const Options& options);

  // The grid slice size to use next; `blocks` while nothing better is known to pay.
  Blocks next() const { return size_; }
  // Forgets what was chosen if it is not what it was: other grid slices run beside each other now.
  void run_beside(int slices, Time overhead);
  // `time`: how long a launch took, cut into grid slices of that size, first to last; or whole.
  // Of sizes other than next() and the whole kernel, and of times not above 0, nothing is learnt.
  void observe(Blocks slice, Time time);
  // The part of the time that grid slices of this size lose, as measured; below 0 while no larger size is known.
  double overhead(Blocks slice) const;
  // The next launch is to be whole, as grid slices seem too dear, and what the last whole ones took may say nothing of
  // today.
  bool compares() const { return least_ != 0 && size_ == options_.blocks && !hopeless(); }
  // It stays whole: in grid slices it is slower, however large they are.
  bool hopeless() const { return strikes_ >= kStrikes; }

 private:
  static constexpr int kSamples = 8;
  static constexpr int kSizes = 8;
  static constexpr int kEnough = 3,
                       kEnoughCalm = 8;  // launches of a size before it is judged, first and once one was kept
  static constexpr int kStrikes = 3;
  static constexpr std::uint64_t kFresh = 512;     // launches after which those of a size are old
  static constexpr std::uint64_t kTryAgain = 128;  // launches until half a size is tried, at least

  struct Size {
    Blocks slice = 0;  // 0: empty
    std::array<float, kSamples> times{};
    std::uint32_t count = 0;
    std::uint64_t last = 0;  // observation
  };

  Size& take(Blocks slice);
  const Size* fresh(Blocks slice) const;
  double time_of(const Size& size) const;
  double slices_of(Blocks slice) const { return static_cast<double>((options_.blocks - 1) / slice + 1); }
  Blocks round_up(double slice) const;
  Blocks larger() const;
  bool is_within(Blocks slice, double bound) const;
  bool is_noisy(Blocks slice) const;
  void begin_anew(Time whole);
  void go(Blocks slice, Blocks from);
  void judge();
  void judge_whole();
  void settle();

  Options options_;
  Blocks size_, least_ = 0;  // 0: not cut yet
  Time basis_ = 0;           // of the whole kernel, when least_ was chosen
  int longer_ = 0;           // launches in a row that took several times as long
  Blocks from_ = 0;          // the smaller size that was left for this one; 0: none
  int launches_seen_ = 0;    // launches of size_ since it is
  int strikes_ = 0;
  std::uint64_t next_whole_ = 0, whole_pause_ = kTryAgain;  // observations until it is compared with the whole again
  bool calm_ = false;                                       // some size has been found cheap
  std::uint64_t settled_ = 0;                               // launches since it was found cheap
  std::uint64_t retry_after_ = kTryAgain;                   // until half of it is tried
  std::array<Size, kSizes> sizes_{};
  std::uint64_t observations_ = 0;
};

}  // namespace bandsaw::slice
