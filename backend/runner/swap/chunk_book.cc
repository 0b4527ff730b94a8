#include "backend/runner/swap/chunk_book.h"

#include <algorithm>
#include <thread>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kChunksWanted = 16;
// Chunks that may come before anything has gone.
constexpr uint64_t kHeadroomChunks = swap::Exchange::kUnderWayMost;
// Others are not waited for if they give nothing for so long.
constexpr std::chrono::milliseconds kFixedWaits{500};

}  // namespace

// Several fit on the device, whatever its size.
uint64_t ChunkBook::chunk_bytes() const {
  if (!page_.swaps()) return 0;
  const uint64_t fair = page_.reserved() / kChunksWanted / kMapUnit * kMapUnit;
  return std::clamp(fair, kMapUnit, swap::kLargestChunk);
}

uint64_t ChunkBook::headroom() const {
  return std::min(page_.reserved() / kChunksWanted, swap::kLargestChunk) * kHeadroomChunks;
}

uint64_t ChunkBook::free_room() const {
  const uint64_t room = page_.room_on_device(), keep = headroom();
  return room > keep ? room - keep : 0;
}

bool ChunkBook::charge(int64_t bytes, bool on_device) {
  if (!on_device) return page_.charge_swapped(bytes);
  if (bytes > 0 && free_room() < static_cast<uint64_t>(bytes)) return false;
  return page_.charge(bytes);
}

bool ChunkBook::charge_fixed(int64_t bytes) {
  if (page_.charge(bytes)) return true;
  const auto wanted = static_cast<uint64_t>(bytes);
  std::lock_guard lock(fixed_);
  uint64_t room = page_.room_on_device();
  const auto possible = [&] { return page_.within_share(wanted) && wanted <= page_.resident(); };
  for (auto last = std::chrono::steady_clock::now(); page_.swaps() && possible();) {
    const auto now = std::chrono::steady_clock::now();
    if (page_.room_on_device() > room) last = now;
    room = page_.room_on_device();
    const auto at = static_cast<int64_t>(nanoseconds(now));
    if (now - last > kFixedWaits || !page_.somebody_gives(UsagePageView::kMust, at)) break;
    page_.ask(UsagePageView::kMust, wanted);
    ask();
    std::this_thread::sleep_for(kAsksAgain);
    if (!page_.charge(bytes)) continue;
    page_.ask(UsagePageView::kMust, 0);
    return true;
  }
  page_.ask(UsagePageView::kMust, 0);
  return page_.charge(bytes);
}

bool ChunkBook::charge_move(uint64_t bytes, bool to_device) {
  if (!page_.move(bytes, to_device)) return false;
  count(to_device ? page_.slot().swapped_in : page_.slot().swapped_out, bytes);
  return true;
}

void ChunkBook::exchanged(uint64_t bytes) {
  count(page_.slot().swapped_in, bytes);
  count(page_.slot().swapped_out, bytes);
}

void ChunkBook::add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) {
  std::lock_guard lock(mutex_);
  chunks_.add(address, {.allocation = allocation, .bytes = bytes, .on_device = on_device});
  changed();
}

void ChunkBook::remove(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.remove(address);
  changed();
}

void ChunkBook::pin(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.pin(address);
  changed();
}

void ChunkBook::moved(uint64_t address, bool to_device, bool apart) {
  std::lock_guard lock(mutex_);
  chunks_.moved(address, to_device, nanoseconds(clock_.now()), apart);
  changed();
}

void ChunkBook::reached(const std::vector<uint64_t>& chunks) {
  count(page_.slot().swap_mapped, chunks.size());
  std::lock_guard lock(mutex_);
  chunks_.reached(chunks);
}

void ChunkBook::changed() {
  any_ = !chunks_.empty();
  page_.set_movable(chunks_.movable());
}

}  // namespace bandsaw::runner
