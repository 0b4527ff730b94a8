#include "memory/swap/ahead.h"

#include <algorithm>

namespace bandsaw::swap {

void Ahead::waits(const Chunks& chunks, const std::vector<uint64_t>& wanted) {
  const bool foreseen = since_ != 0 && chunks.follows(wanted, since_);
  most_ = foreseen ? std::clamp(2 * most_, kFirst, kMost) : 0;
  since_ = chunks.last_use(wanted);
}

}  // namespace bandsaw::swap
