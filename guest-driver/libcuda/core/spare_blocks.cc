#include "guest-driver/libcuda/core/spare_blocks.h"

#include <utility>

namespace bandsaw::libcuda {

std::vector<SharedBlock> SpareBlocks::put(const SharedBlock& block) {
  std::vector<SharedBlock> gone;
  blocks_.push_back(block);
  bytes_ += block.bytes;
  while (bytes_ > kBytesMost || blocks_.size() > kCountMost) {
    bytes_ -= blocks_.front().bytes;
    gone.push_back(blocks_.front());
    blocks_.pop_front();
  }
  return gone;
}

std::optional<SharedBlock> SpareBlocks::take(uint64_t bytes, uint32_t flags) {
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    if (it->flags != flags || it->bytes < bytes || it->bytes / 2 > bytes) continue;
    if (best == blocks_.end() || it->bytes < best->bytes) best = it;
  }
  if (best == blocks_.end()) return std::nullopt;
  const SharedBlock block = *best;
  blocks_.erase(best);
  bytes_ -= block.bytes;
  return block;
}

std::vector<SharedBlock> SpareBlocks::take_all() {
  bytes_ = 0;
  std::vector<SharedBlock> all(blocks_.begin(), blocks_.end());
  blocks_.clear();
  return all;
}

}  // namespace bandsaw::libcuda
