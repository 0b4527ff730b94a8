// How a thread that asks whether the GPU is done passes the time until it asks again.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace bandsaw::cuda {

// So long there is no pause.
inline constexpr std::chrono::microseconds kUnpaused{100};

// At first without a pause: the latency of small copies. Then whoever else wants the core has it; a sleep of a few
// microseconds may take ten times as long in a virtual machine. Later a nap costs little beside the work itself: a part
// of the wait so far. Naps take a third of a processor at most, and the driver's own waits a whole one. The thread's
// timer slack should be a microsecond.
inline void nap(std::chrono::steady_clock::duration waited) {
  using std::chrono::microseconds;
  constexpr microseconds kYields{5000}, kNap{10}, kLongestNap{50};
  constexpr int kNapPart = 256;
  if (waited < kUnpaused) return _mm_pause();
  if (waited < kYields) return std::this_thread::yield();
  std::this_thread::sleep_for(std::clamp<std::chrono::steady_clock::duration>(waited / kNapPart, kNap, kLongestNap));
}

}  // namespace bandsaw::cuda
