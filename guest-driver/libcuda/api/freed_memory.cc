#include "guest-driver/libcuda/api/freed_memory.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Pools give memory in units of it.
constexpr uint64_t kUnit = 512;

uint64_t units(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit; }

// What leaves is published with the lock: a stream may be destroyed or captured by whoever has had it next.
struct Freed {
  std::mutex mutex;
  FreedMemory memory;            // guarded by mutex
  std::atomic<bool> any{false};  // changed with the lock; what other threads do just now may be missed without it

  void changed() { any = !memory.empty(); }
};

Freed& freed() {
  static Freed& all = *new Freed;
  return all;
}

// With which the stream goes.
uint64_t context_of(const Call& call, uint64_t stream) {
  const StreamRecord* const made = stream > VGPU_STREAM_PER_THREAD ? streams().find(stream) : nullptr;
  return made ? made->context->handle : call.context();
}

void publish(const std::vector<FreedBlock>& blocks) {
  for (const FreedBlock& block : blocks) {
    VirtualGpu* const gpu = gpu_of_part(part_of_handle(block.pool));
    if (!gpu) continue;
    Call call(*gpu);
    call.set_context(block.context);
    if (!call.failed()) wire::memory_free_async(call, block.base, block.stream);
  }
}

bool give_back_if(const std::function<bool(const FreedBlock&)>& goes) {
  Freed& all = freed();
  std::lock_guard lock(all.mutex);
  const auto gone = all.memory.remove_if(goes);
  all.changed();
  publish(gone);
  return !gone.empty();
}

void give_back_of_context(Context* context) {
  give_back_if([&](const FreedBlock& block) { return block.context == context->handle; });
}

void give_back_before_wait() {
  if (freed().any.load(std::memory_order_relaxed)) give_back_freed();
}

}  // namespace

std::vector<FreedBlock> FreedMemory::keep(const FreedBlock& block) {
  if (block.bytes > kBlockMost) return {block};
  blocks_.push_back(block);
  bytes_ += block.bytes;
  size_t blocks = blocks_.size();
  uint64_t bytes = bytes_;
  return remove_if([&](const FreedBlock& older) {
    if (bytes <= kBytesMost && blocks <= kBlocksMost) return false;
    bytes -= older.bytes;
    --blocks;
    return true;
  });
}

uint64_t FreedMemory::take(const FreedBlock& wanted) {
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const FreedBlock& block) {
    return block.pool == wanted.pool && block.stream == wanted.stream && block.context == wanted.context &&
           block.bytes >= wanted.bytes && units(block.bytes) == units(wanted.bytes);
  });
  if (found == blocks_.rend()) return 0;
  const uint64_t base = found->base;
  bytes_ -= found->bytes;
  blocks_.erase(std::next(found).base());
  return base;
}

std::vector<FreedBlock> FreedMemory::remove_if(const std::function<bool(const FreedBlock&)>& goes) {
  std::vector<FreedBlock> gone;
  std::erase_if(blocks_, [&](const FreedBlock& block) {
    if (!goes(block)) return false;
    gone.push_back(block);
    bytes_ -= block.bytes;
    return true;
  });
  return gone;
}

CUresult free_in_order(Call& call, const Range& range, uint64_t stream) {
  static const bool hooked = (on_context_ended(give_back_of_context), on_synchronising(give_back_before_wait), true);
  static_cast<void>(hooked);
  Freed& all = freed();
  std::lock_guard lock(all.mutex);
  // No other thread could give back what is freed on this thread's own stream.
  if (range.kind != RangeKind::kPool || stream == VGPU_STREAM_PER_THREAD || active_captures != 0) {
    return wire::memory_free_async(call, range.base, stream);
  }
  publish(all.memory.keep({range.base, range.bytes, range.pool, stream, context_of(call, stream)}));
  all.changed();
  return CUDA_SUCCESS;
}

uint64_t allocate_freed(Call& call, uint64_t pool, uint64_t bytes, uint64_t stream) {
  Freed& all = freed();
  if (!all.any.load(std::memory_order_relaxed)) return 0;
  std::lock_guard lock(all.mutex);
  const uint64_t base = all.memory.take({0, bytes, pool, stream, context_of(call, stream)});
  all.changed();
  return base;
}

bool give_back_freed() {
  return give_back_if([](const FreedBlock&) { return true; });
}

void give_back_freed_of_stream(uint64_t stream) {
  give_back_if([&](const FreedBlock& block) { return block.stream == stream; });
}

}  // namespace bandsaw::libcuda
