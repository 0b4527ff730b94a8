// Which process of a virtual GPU makes room on the device for another one of it. A function without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bandsaw::swap {

// What it has on the device that may leave it, and when it had work last.
struct Neighbour {
  uint64_t on_device = 0;
  int64_t worked_at = 0;
};

inline constexpr size_t kNobody = SIZE_MAX;
// Without work for so long, it is taken to rest.
inline constexpr int64_t kRests = 20'000'000;

// Of those that rest, the one that has rested for longest; else the one that has most, if the asker has less than an
// equal part and that one more, or if what is asked for can lie nowhere else (`must`). So what works does not take
// memory from each other in turns.
size_t who_gives(std::span<const Neighbour> all, size_t asker, bool must, int64_t now);

}  // namespace bandsaw::swap
