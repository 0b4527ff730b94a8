// The least grid slice of a kernel with which slicing costs no more than a bound allows: first from what is known, then
// by measurement.
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

// Finds the least grid slice by measuring launches, whole and in grid slices. One for each kernel and shape of launch;
// of fixed size.
//
// - It begins with grid slices that fill the GPU together with those that run beside them.
// - After three launches of a size, later after more, it judges that size against the larger size, or the whole kernel,
//   that was measured last. It takes the lower quartile of each one's last launches, since a disturbance only makes a
//   launch longer. By how much a launch took longer, divided by how many more grid slices it had, is what a grid slice
//   costs.
// - A size that costs more than the bound is doubled. If that brings nothing, the time is not lost to the number of
//   grid slices: the kernel runs whole once, and by what that takes now, the least known size that is cheap is chosen.
//   If there was none three times, the kernel stays whole.
// - Now and then half a size is tried.
// - A kernel that takes several times as long as when its least size was chosen has changed, perhaps its arguments: all
//   begins anew.
//
// Calls from one thread at a time.
class GridSliceTuner {
 public:
  struct Options {
    Blocks blocks = 1;  // of the launch
    Blocks wave = 132;
    int sms = 132;
    int beside = 1;  // grid slices that run at a time
    // What a grid slice costs, until that is measured: with others beside it, the time to issue one; by itself, the
    // time until the GPU is full again.
    Time overhead = 30 * kMicrosecond;
    double bound = kOverheadBound;
  };

  explicit GridSliceTuner(const Options& options);

  // The grid slice size to use next; `blocks` while nothing better is known to pay.
  Blocks next() const { return size_; }
  // So many grid slices run beside each other from now on. If that is not what it was, all that was chosen is
  // forgotten.
  void run_beside(int slices, Time overhead);
  // `time`: how long a launch took that was cut into grid slices of that size, from the first to the last; or a whole
  // one. Ignored: sizes other than next() and the whole kernel, and times not above 0.
  void observe(Blocks slice, Time time);
  // The part of the time that grid slices of this size lose, as measured; below 0 while no larger size is known.
  double overhead(Blocks slice) const;
  // The next launch is to run whole: grid slices seem too expensive, and the last whole launches may be out of date.
  bool compares() const { return least_ != 0 && size_ == options_.blocks && !hopeless(); }
  // The kernel is slower in grid slices however large they are: it stays whole.
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
