// A shape's profile from what its grid slices take while nothing else runs.
//
// Lower quartiles of the last measurements: what disturbs one makes it longer. Of fixed size; calls from one thread at
// a time.
#pragma once

#include <array>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

class Profiler {
 public:
  // `known`: what analysis and attributes say: needs, instruction mix, counts where there are any. Its times are
  // replaced.
  explicit Profiler(const KernelProfile& known) : profile_(known) {}

  // Whole kernels, or back-to-back grid slices that fill the GPU: blocks, and the GPU's time for them.
  void full(Blocks blocks, Time time) { full_.add(blocks, time); }
  // Grid slices of half the resident blocks of the GPU, one at a time.
  void half(Blocks blocks, Time time) { half_.add(blocks, time); }

  // False while nothing was measured.
  bool ready() const { return full_.count > 0; }
  KernelProfile profile() const;

 private:
  struct Times {
    static constexpr std::uint32_t kSamples = 16;
    std::array<float, kSamples> each{};  // nanoseconds per block
    std::uint32_t count = 0;

    void add(Blocks blocks, Time time);
    double quartile() const;
  };

  KernelProfile profile_;
  Times full_;
  Times half_;
};

}  // namespace bandsaw::slice
