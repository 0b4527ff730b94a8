#include "backend/runner/swap/giving.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// Chunks that go in one move; where none can go, it is tried again after a while.
constexpr size_t kAtOnce = 8 * swap::Exchange::kUnderWayMost;
constexpr std::chrono::milliseconds kAgain{100};

}  // namespace

uint64_t Giving::wanted() const {
  return std::max(page_.excess(), page_.asked_of_this(static_cast<int64_t>(nanoseconds(clock_.now()))));
}

bool Giving::begins() {
  if (!book_.any() || wanted() == 0 || clock_.now() < not_before_) return false;
  if (!book_.with_chunks([](const swap::Chunks& chunks) { return chunks.make_way(1, 1).empty(); })) return true;
  failed();
  return false;
}

swap::Chunks::Plan Giving::next() {
  const uint64_t bytes = wanted();
  return book_.with_chunks([&](const swap::Chunks& chunks) { return chunks.make_way(bytes, kAtOnce); });
}

void Giving::failed() { not_before_ = clock_.now() + kAgain; }

void Giving::prepare(Device* device) {
  const int64_t movable = std::max<int64_t>(0, page_.slot().movable.load(std::memory_order_relaxed));
  const uint64_t chunk = book_.chunk_bytes();
  const uint64_t most = std::min(static_cast<uint64_t>(movable), page_.lendable());
  const uint64_t may_go = chunk == 0 ? 0 : most / chunk * chunk;
  if (may_go == prepared_) return;
  prepared_ = may_go;
  device->chunks_prepare(chunk, may_go);
}

}  // namespace bandsaw::runner
