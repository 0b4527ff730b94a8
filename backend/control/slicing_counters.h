// What a runner has to say about cutting kernels into grid slices: part of its slot in the usage page, for people.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bandsaw {

// Why kernels run whole, in words. Printable; ends with NUL, cut off if it is too long; empty: not used.
struct SlicingRefusal {
  char text[88];
  std::atomic<uint64_t> kernels;
};

inline constexpr size_t kSlicingRefusals = 16;

// Zeroed by who makes the usage page. Written with relaxed order by one runner; who reads does not believe the texts.
struct SlicingCounters {
  std::atomic<uint64_t> kernels;    // that were to be cut
  std::atomic<uint64_t> sliceable;  // of these: rewritten, and taken by the device
  std::atomic<uint64_t> launches, grid_slices;
  std::atomic<uint64_t> fallbacks;  // launches that were to be cut, but ran whole
  // A kernel counts once for each of its reasons. What finds no room counts as the last.
  std::array<SlicingRefusal, kSlicingRefusals> refused;
};

}  // namespace bandsaw
