// Device memory behind managed memory: it comes when work of the device needs it, which is when it begins to count
// against the share, and goes where the share is full, after what only the device has was copied to the host.
//
// Every kernel may reach memory that is attached globally, so room for all of it is kept: what leaves none is refused
// when it is allocated, or stays in the program's memory from the beginning. Memory that is attached to the host or to
// a stream may be more than there is room for.
#include <algorithm>
#include <chrono>

#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"
#include "memory/base/clock.h"

namespace bandsaw::libcuda {
namespace {

using bandsaw::managed::Run;
using bandsaw::managed::Victim;

constexpr std::chrono::milliseconds kMoment{1};
// So much is given up at least where an allocation found no room.
constexpr uint64_t kEvictionLeast = 64u << 20;

uint64_t ns_now() { return static_cast<uint64_t>(monotonic_ns()); }

Run in_chunk(const ManagedAllocation& allocation, Run run) {
  return {allocation.base - allocation.chunk->base + run.offset, run.bytes};
}

// The part of the allocation that lies in the piece, from the allocation's beginning.
Run in_allocation(const ManagedAllocation& allocation, Run piece) {
  const uint64_t begin = allocation.base - allocation.chunk->base;
  const uint64_t first = std::max(begin, piece.offset), last = std::min(begin + allocation.bytes, piece.end());
  return {first - begin, last - first};
}

bool is_global(const ManagedAllocation& allocation) { return allocation.attach == CU_MEM_ATTACH_GLOBAL; }

bool at_work(const ManagedAllocation& allocation) {
  if (allocation.residency.all_on_host()) return false;
  const bool alone = allocation.attach == CU_MEM_ATTACH_SINGLE && !allocation.others_used;
  return alone ? !managed_work().quiet(allocation.stream) : !managed_work().all_quiet();
}

CUresult map_piece(Call& call, const ManagedChunk& chunk, Run run, uint64_t* memory) {
  vgpu_memory_props made{};
  CUresult result = wire::memory_create(call, vgpu_memory_props{}, run.bytes, memory, &made);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t address = chunk.base + run.offset;
  result = wire::memory_map(call, address, run.bytes, 0, *memory);
  if (result == CUDA_SUCCESS) {
    result = wire::memory_set_access(call, address, run.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) wire::memory_unmap(call, address, run.bytes);
  }
  if (result != CUDA_SUCCESS) wire::memory_release(call, *memory);
  return result;
}

CUresult unmap_piece(Call& call, const ManagedChunk& chunk, Run run, uint64_t memory) {
  const CUresult result = wire::memory_unmap(call, chunk.base + run.offset, run.bytes);
  const CUresult released = wire::memory_release(call, memory);
  return result == CUDA_SUCCESS ? released : result;
}

}  // namespace

// With the lock, as the next one.
void ManagedSpace::used(const Allocation& allocation, Run run) {
  allocation.chunk->backing.used(in_chunk(allocation, run), ns_now());
}

bool ManagedSpace::lacks_backing(const Allocation& allocation, const std::vector<Run>& runs) {
  return std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
    return !allocation.chunk->backing.missing(in_chunk(allocation, run)).empty();
  });
}

// Gives device memory to all that the moves take. The allocations are busy. `later`: there was no room, but there will
// be once others have ended their moves, and these may wait for what the caller keeps busy.
CUresult ManagedSpace::back(Call& call, const std::vector<Move>& moves, const Reaches& reaches, bool* later) {
  for (const Move& move : moves) {
    ManagedChunk* const chunk = move.allocation->chunk;
    for (const Run& run : move.plan.take) {
      Lock lock(mutex_);
      const std::vector<size_t> missing = chunk->backing.missing(in_chunk(*move.allocation, run));
      lock.unlock();
      for (const size_t piece : missing) {
        if (const CUresult result = back_piece(call, chunk, piece, reaches, later)) return result;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult ManagedSpace::back_piece(Call& call, ManagedChunk* chunk, size_t piece, const Reaches& reaches, bool* later) {
  std::lock_guard changing(backing_mutex_);
  const auto& about = chunk->backing.pieces()[piece];
  if (about.memory) return CUDA_SUCCESS;  // another thread was faster
  uint64_t memory = 0;
  CUresult result = map_piece(call, *chunk, about.run, &memory);
  Found found = Found::kVictim;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && found == Found::kVictim) {
    found = evict(call, reaches, about.run.bytes);
    if (found == Found::kVictim) result = map_piece(call, *chunk, about.run, &memory);
  }
  *later = found == Found::kLater;
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !*later) {
    log(Level::kWarn,
        "work of the device needs more managed memory at once than the memory share has room for: attach to a stream "
        "or to the host what other work uses (cudaStreamAttachMemAsync), or give the virtual GPU more memory");
  }
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  chunk->backing.came(piece, memory, ns_now());
  if (about.returns == 1) {
    log(Level::kInfo, "managed memory at %#llx came back soon after it had to leave the device",
        static_cast<unsigned long long>(chunk->base + about.run.offset));
  }
  return CUDA_SUCCESS;
}

// With backing_mutex_ and the lock. What is being moved, is reached, or lent to a host function stays.
ManagedSpace::Found ManagedSpace::find_victim(const Reaches& reaches, Eviction* found) {
  bool later = false;
  std::vector<Victim> victims;
  std::vector<Eviction> evictions;
  for (const auto& [base, chunk] : chunks_) {
    const auto& pieces = chunk->backing.pieces();
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].memory) continue;
      Victim victim{.thrashes = pieces[i].returns != 0, .used_ns = pieces[i].used_ns};
      Eviction eviction{chunk.get(), i, 0, {}};
      bool stays = false, moves = false;
      for (auto next = allocations_.lower_bound(base); next != allocations_.end(); ++next) {
        Allocation& one = *next->second;
        if (one.base - base >= chunk->bytes || stays) break;
        const auto borrowed = borrowed_.lower_bound(one.base);
        const bool lent = one.lent || (borrowed != borrowed_.end() && borrowed->first - one.base < one.bytes);
        moves |= lent || one.busy || one.dying;
        stays = reaches(one);
        for (const Run& run : one.residency.on_device(in_allocation(one, pieces[i].run)))
          victim.copy_bytes += run.bytes;
        victim.at_work |= at_work(one);
        victim.prefers_host |= one.prefers_host;
        eviction.allocations.push_back(&one);
      }
      if (!chunk->room && eviction.allocations.empty()) moves = true;  // it is being freed
      if (!stays) later |= moves;
      if (stays || moves) continue;
      victims.push_back(victim);
      evictions.push_back(std::move(eviction));
    }
  }
  const auto chosen = bandsaw::managed::choose_victim(victims);
  if (!chosen) return later ? Found::kLater : Found::kNone;
  *found = std::move(evictions[*chosen]);
  return Found::kVictim;
}

// With backing_mutex_, without the lock. kVictim: something has gone, at best so much.
ManagedSpace::Found ManagedSpace::evict(Call& call, const Reaches& reaches, uint64_t bytes) {
  short_.store(true, std::memory_order_relaxed);
  uint64_t freed = 0;
  while (freed < bytes) {
    Eviction next;
    Lock lock(mutex_);
    const Found found = find_victim(reaches, &next);
    if (found != Found::kVictim) return freed ? Found::kVictim : found;
    for (Allocation* const allocation : next.allocations) set_busy(allocation, true);
    // From now on it has no device memory: what is allocated in it meanwhile waits for this to end.
    next.memory = next.chunk->backing.went(next.piece, ns_now());
    if (next.chunk->pages) next.chunk->pages->device_gone(next.chunk->backing.pieces()[next.piece].run);
    lock.unlock();
    freed += next.chunk->backing.pieces()[next.piece].run.bytes;
    evict_piece(call, next);
  }
  return Found::kVictim;
}

// The allocations in it are busy.
void ManagedSpace::evict_piece(Call& call, const Eviction& eviction) {
  ManagedChunk* const chunk = eviction.chunk;
  const Run piece = chunk->backing.pieces()[eviction.piece].run;
  const uint64_t asking = call.context();
  drain();
  for (Allocation* const allocation : eviction.allocations) {
    const std::vector<Run> runs = allocation->residency.on_device(in_allocation(*allocation, piece));
    bool writable = true;
    static_cast<void>(bring_back(call, allocation, runs, &writable));  // waits for who reads what both sides have, too
    std::lock_guard lock(mutex_);
    for (const Run& run : runs) allocation->residency.came_to_host(run, true);
    allocation->residency.device_gone(in_allocation(*allocation, piece));
    recount(allocation);
  }
  call.set_context(asking);
  const CUresult result = unmap_piece(call, *chunk, piece, eviction.memory);
  if (result != CUDA_SUCCESS) log(Level::kWarn, "device memory cannot be given up: error %d", static_cast<int>(result));
  std::lock_guard lock(mutex_);
  for (Allocation* const allocation : eviction.allocations) set_busy(allocation, false);
}

// Of a chunk that nothing is in and nobody finds any more.
void ManagedSpace::release_device(Call& call, ManagedChunk* chunk) {
  const auto& pieces = chunk->backing.pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].memory) static_cast<void>(unmap_piece(call, *chunk, pieces[i].run, pieces[i].memory));
  }
  static_cast<void>(wire::address_free(call, chunk->base, chunk->bytes));
}

// With the lock: bytes that kernels will need for memory that they all may reach.
uint64_t ManagedSpace::promised() const {
  uint64_t bytes = 0;
  for (const auto& [base, chunk] : chunks_) {
    const auto own = allocations_.find(base);
    const bool counts = chunk->room ? !chunk->room->untouched() : own != allocations_.end() && is_global(*own->second);
    if (counts) bytes += chunk->bytes - chunk->backing.backed_bytes();
  }
  return bytes;
}

// With the lock: what could be given up without breaking that.
uint64_t ManagedSpace::spare() const {
  uint64_t bytes = 0;
  for (const auto& [base, chunk] : chunks_) {
    const auto own = allocations_.find(base);
    const bool counts = chunk->room ? chunk->room->untouched() : own != allocations_.end() && !is_global(*own->second);
    if (counts) bytes += chunk->backing.backed_bytes();
  }
  return bytes;
}

uint64_t ManagedSpace::left_of(uint64_t free) {
  if (!any()) return free;
  std::lock_guard lock(mutex_);
  const uint64_t all = free + spare(), needed = promised();
  return all > needed ? all - needed : 0;
}

CUresult ManagedSpace::check_room(Call& call, uint64_t bytes) {
  if (!any()) return CUDA_SUCCESS;
  {
    std::lock_guard lock(mutex_);
    if (promised() == 0) return CUDA_SUCCESS;
  }
  return check_promise(call, bytes);
}

// The same also where nothing has been promised yet.
CUresult ManagedSpace::check_promise(Call& call, uint64_t bytes) {
  uint64_t free = 0, total = 0;
  const CUresult result = wire::memory_info(call, &free, &total);
  if (result != CUDA_SUCCESS) return result;
  return bytes <= left_of(free) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool ManagedSpace::make_room(Call& call) {
  if (!any()) return false;
  if (drop_idle(call)) return true;
  std::unique_lock changing(backing_mutex_);
  const Found found = evict(call, is_global, kEvictionLeast);
  changing.unlock();
  if (found == Found::kLater) await_move();
  return found != Found::kNone;
}

// Returns soon after somebody has ended a move, at the latest in a moment.
void ManagedSpace::await_move() {
  Lock lock(mutex_);
  changed_.wait_for(lock, kMoment);
}

void ManagedSpace::prefer_host(uint64_t address, bool host) {
  std::lock_guard lock(mutex_);
  if (Allocation* const allocation = find(address)) allocation->prefers_host = host;
}

}  // namespace bandsaw::libcuda
