#include "memory/swap/neighbours.h"

namespace bandsaw::swap {

size_t who_gives(std::span<const Neighbour> all, size_t asker, bool must, int64_t now) {
  size_t rests = kNobody, most = kNobody;
  uint64_t sum = 0, count = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Neighbour& one = all[i];
    sum += one.on_device;
    count += i == asker || one.on_device != 0;
    if (i == asker || one.on_device == 0) continue;
    if (now - one.worked_at >= kRests && (rests == kNobody || one.worked_at < all[rests].worked_at)) rests = i;
    if (most == kNobody || one.on_device > all[most].on_device) most = i;
  }
  if (rests != kNobody || most == kNobody || must) return rests != kNobody ? rests : most;
  const uint64_t part = sum / count;
  return all[most].on_device > part && all[asker].on_device < part ? most : kNobody;
}

}  // namespace bandsaw::swap
