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

CUresult ManagedSpace::drop_chunk(Call& call, ManagedChunk* chunk) {
  std::lock_guard changing(backing_mutex_);
  Lock lock(mutex_);
  const auto gone = chunks_.extract(chunk->base);
  guard_->forget(chunk->base, chunk->bytes);
  lock.unlock();
  // The device's addresses last: from then on another thread may be given them.
  const CUresult dropped = chunk->block.memory->unback(chunk->block);
  release_device(call, chunk);
  return dropped;
}

// Where there is room, or in a new chunk, of which the program has at most as much again as it has already.
CUresult ManagedSpace::take_room(Call& call, uint64_t bytes, uint64_t context, ManagedChunk** chunk,
                                 uint64_t* address) {
  std::lock_guard grow(grow_mutex_);
  Lock lock(mutex_);
  uint64_t had = 0;
  for (const auto& [begin, one] : chunks_) {
    if (!one->room || one->context != context) continue;
    had += one->bytes;
    const auto base = one->room->take(bytes, kPage);
    if (!base) continue;
    *chunk = one.get();
    *address = *base;
    return CUDA_SUCCESS;
  }
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

CUresult ManagedSpace::give_back_room(Call& call, ManagedChunk* chunk, uint64_t address, uint64_t bytes) {
  std::lock_guard grow(grow_mutex_);
  chunk->room->give_back(address, bytes);
  return chunk->room->untouched() && idle_bytes() > kIdleMost ? drop_chunk(call, chunk) : CUDA_SUCCESS;
}

uint64_t ManagedSpace::idle_bytes() {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [begin, chunk] : chunks_) bytes += chunk->room && chunk->room->untouched() ? chunk->bytes : 0;
  return bytes;
}

// With grow_mutex_.
bool ManagedSpace::drop_idle(Call& call) {
  std::vector<ManagedChunk*> idle;
  Lock lock(mutex_);
  for (const auto& [begin, chunk] : chunks_) {
    if (chunk->room && chunk->room->untouched()) idle.push_back(chunk.get());
  }
  lock.unlock();
  for (ManagedChunk* const chunk : idle) static_cast<void>(drop_chunk(call, chunk));
  return !idle.empty();
}

}  // namespace bandsaw::libcuda
