// Chunks of managed memory: addresses with pages of the program behind them, what of them is free, and what is kept.
#include <algorithm>

#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

using bandsaw::managed::kMapUnit;

// A program that needs several chunks gets larger ones.
constexpr uint64_t kChunkMost = 32u << 20;
constexpr uint64_t kIdleMost = 64u << 20;

}  // namespace

// Our copies go on streams of their own: neither captured nor in the order of the program's.
CUresult ManagedSpace::streams_of(Call& call, uint64_t context) {
  std::lock_guard lock(mutex_);
  Streams& streams = streams_[context];
  const int32_t priority = call.gpu().info.greatest_priority;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t* stream : {&streams.in, &streams.out}) {
    if (result == CUDA_SUCCESS && !*stream) {
      result = wire::stream_create(call, CU_STREAM_NON_BLOCKING, priority, stream);
    }
  }
  return result;
}

// The context whose streams copy it: its own, or any that is alive. 0: there is none.
uint64_t ManagedSpace::working_context(Call& call, const ManagedChunk& chunk) {
  if (chunk.context) return chunk.context;
  const Context* const context = any_context(call.gpu());
  return context ? context->handle : 0;
}

// `whole`: its device memory comes and goes as one.
CUresult ManagedSpace::new_chunk(Call& call, uint64_t bytes, bool whole, uint64_t context, ManagedChunk** chunk) {
  auto made = std::make_unique<ManagedChunk>((bytes + kMapUnit - 1) / kMapUnit * kMapUnit, whole);
  made->context = context;
  CUresult result = context ? streams_of(call, context) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = wire::address_reserve(call, made->bytes, 0, &made->base);
  if (result != CUDA_SUCCESS) return result;
  result = call.gpu().memory->back(made->base, made->bytes, &made->block);
  if (result != CUDA_SUCCESS) {
    wire::address_free(call, made->base, made->bytes);
    return result;
  }
  *chunk = made.get();
  std::lock_guard lock(mutex_);
  chunks_[made->base] = std::move(made);
  return CUDA_SUCCESS;
}

// `if_idle`: unless somebody has taken room in it meanwhile.
CUresult ManagedSpace::drop_chunk(Call& call, uint64_t base, bool if_idle) {
  std::lock_guard changing(backing_mutex_);
  Lock lock(mutex_);
  const auto found = chunks_.find(base);
  if (found == chunks_.end() || (if_idle && !found->second->idle())) return CUDA_SUCCESS;
  const auto gone = std::move(found->second);
  chunks_.erase(found);
  guard_->forget(gone->base, gone->bytes);
  lock.unlock();
  // The device's addresses last: from then on another thread may be given them.
  const CUresult dropped = gone->block.memory->unback(gone->block);
  release_device(call, gone.get());
  return dropped;
}

// With mutex_. Null: there is no room. `had`: bytes of all chunks.
ManagedChunk* ManagedSpace::find_room(uint64_t bytes, uint64_t context, uint64_t* address, uint64_t* had) {
  *had = 0;
  for (const auto& [begin, one] : chunks_) {
    if (!one->room || one->context != context) continue;
    *had += one->bytes;
    const auto base = one->room->take(bytes, kPage);
    if (!base) continue;
    *address = *base;
    return one.get();
  }
  return nullptr;
}

// Where there is room, or in a new chunk, of which the program has at most as much again as it has already. Making one
// takes milliseconds, for which those who find room do not wait.
CUresult ManagedSpace::take_room(Call& call, uint64_t bytes, uint64_t context, ManagedChunk** chunk,
                                 uint64_t* address) {
  uint64_t had = 0;
  Lock lock(mutex_);
  if ((*chunk = find_room(bytes, context, address, &had))) return CUDA_SUCCESS;
  lock.unlock();
  std::lock_guard grow(grow_mutex_);
  lock.lock();
  if ((*chunk = find_room(bytes, context, address, &had))) return CUDA_SUCCESS;
  lock.unlock();
  const uint64_t least = (bytes + kMapUnit - 1) / kMapUnit * kMapUnit;
  uint64_t wanted = std::max(least, std::min(had / kMapUnit * kMapUnit, kChunkMost));
  CUresult result = check_promise(call, wanted);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = check_promise(call, wanted = least);
  if (result == CUDA_SUCCESS) result = new_chunk(call, wanted, true, context, chunk);
  if (result != CUDA_SUCCESS) return result;
  auto room = std::make_unique<RangeAllocator>((*chunk)->base, (*chunk)->bytes);
  *address = *room->take(bytes, kPage);
  lock.lock();
  (*chunk)->pages = std::make_unique<bandsaw::managed::Residency>((*chunk)->bytes, kPage);
  (*chunk)->room = std::move(room);
  return CUDA_SUCCESS;
}

// With mutex_. Whether the chunk is to go: more than enough are kept.
bool ManagedSpace::give_back_room(ManagedChunk* chunk, uint64_t address, uint64_t bytes) {
  chunk->room->give_back(address, bytes);
  if (!chunk->idle()) return false;
  uint64_t idle = 0;
  for (const auto& [begin, one] : chunks_) idle += one->idle() ? one->bytes : 0;
  return idle > kIdleMost;
}

bool ManagedSpace::drop_idle(Call& call) {
  std::vector<uint64_t> idle;
  Lock lock(mutex_);
  for (const auto& [base, chunk] : chunks_) {
    if (chunk->idle()) idle.push_back(base);
  }
  lock.unlock();
  for (const uint64_t base : idle) static_cast<void>(drop_chunk(call, base, true));
  return !idle.empty();
}

}  // namespace bandsaw::libcuda
