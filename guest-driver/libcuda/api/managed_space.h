// Managed memory that moves: each allocation lies on the device at its address, and in pages of the program at the same
// address. Its blocks (memory/managed/residency.h) are on the side that used them last; they move in bulk, as copies
// between the two, before work of the device that may reach them and when the program touches them.
//
// Work of the device: DeviceWork stands around its record. While nothing is away from the device it costs two counters.
// Touches: a few threads of ours wait for them (managed_touch.cc).
//
// An allocation that is `busy` is being moved by one thread, which holds no lock meanwhile; others wait for it.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "guest-driver/libcuda/api/freed_memory.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/core/page_guard.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "memory/base/range_allocator.h"
#include "memory/managed/backing.h"
#include "memory/managed/residency.h"

namespace bandsaw::libcuda {

// Addresses of the device with pages of the program behind them: one large allocation, or room for several. Making one
// costs both sides a millisecond for each MiB, so some are kept when they are empty. Device memory comes by pieces when
// work of the device needs them, and goes where it is short (managed_backing.cc).
struct ManagedChunk {
  ManagedChunk(uint64_t size, bool whole) : bytes(size), backing(size, whole) {}
  uint64_t base = 0;
  const uint64_t bytes;  // whole units of kMapUnit
  uint64_t context = 0;  // 0: it lives as long as what lies in it
  SharedBlock block;
  bandsaw::managed::Backing backing;                   // changed with backing_mutex_ and mutex_
  std::unique_ptr<RangeAllocator> room;                // null: one allocation has it all
  std::unique_ptr<bandsaw::managed::Residency> pages;  // of the room that is free

  // There is room for several, and nobody has any.
  bool idle() const { return room && room->untouched(); }
};

struct ManagedAllocation {
  ManagedAllocation(uint64_t address, uint64_t size) : base(address), bytes(size), residency(size) {}
  ManagedAllocation(const ManagedChunk& from, uint64_t address, uint64_t size)
      : base(address), bytes(size), residency(*from.pages, {address - from.base, size}) {}

  const uint64_t base, bytes;  // whole pages
  ManagedChunk* chunk = nullptr;
  bandsaw::managed::Residency residency;
  unsigned default_attach = CU_MEM_ATTACH_GLOBAL, attach = CU_MEM_ATTACH_GLOBAL;
  bandsaw::managed::WorkStream stream;  // of CU_MEM_ATTACH_SINGLE
  bool others_used = false;             // work of other streams than the attached one may use it still
  bool prefers_host = false;            // the program has said so, of some of it at least
  unsigned lent = 0;                    // pages that host functions are being given
  bool busy = false;
  bool dying = false;
};

// Bytes that a copy or fill reaches.
struct ManagedSpan {
  uint64_t address = 0, bytes = 0;
  bool reads = false;  // and nobody writes: the program may go on reading it
};

class ManagedSpace {
 public:
  // Never freed.
  static ManagedSpace& get();

  bool any() const { return any_.load(std::memory_order_relaxed); }

  // On a device of which managed_memory_moves(). CUDA_ERROR_OUT_OF_MEMORY: the device has no room for it.
  // `context`: whose end ends it; 0: none, as for variables.
  CUresult allocate(Call& call, uint64_t bytes, unsigned attach, uint64_t context, uint64_t* address);
  // CUDA_ERROR_NOT_FOUND: it is none of this space. Waits for all work, unless none uses it (`idle`).
  CUresult release(Call& call, uint64_t base, bool idle = false);
  CUresult attach(uint64_t base, const bandsaw::managed::WorkStream& stream, unsigned flags);
  // To the device at once; to the host when the stream's work before it has ended. False: none of this space.
  bool prefetch(Call& call, ManagedSpan span, bool to_device, uint64_t stream, CUresult* result);
  // What lies there in whole blocks need not be copied until it is written. Waits for work that uses it.
  CUresult discard(Call& call, ManagedSpan span);
  bool has(uint64_t base);
  void context_ended(uint64_t context);
  void stream_ended(const bandsaw::managed::WorkStream& stream);
  // What the program may still allocate of the `free` bytes that the device says: less by what kernels will need for
  // managed memory that is on the host, more by what is kept and not needed.
  uint64_t left_of(uint64_t free);
  // CUDA_ERROR_OUT_OF_MEMORY: memory of that size would leave no room for what every kernel may reach.
  CUresult check_room(Call& call, uint64_t bytes);
  // Gives up device memory that can be done without. False: there was none.
  bool make_room(Call& call);
  // Of a range: whether it is better on the host, for the choice of what goes first.
  void prefer_host(uint64_t address, bool host);

  // The calling thread runs the program's host functions: what it touches goes back before the device goes on.
  void host_function_begins();
  void host_function_ended(VirtualGpu& gpu);

 private:
  friend class DeviceWork;
  using Lock = std::unique_lock<std::mutex>;
  using Allocation = ManagedAllocation;
  struct Move {
    Allocation* allocation;
    bandsaw::managed::ToDevice plan;
    bool reads;
  };
  // A page that a host function has touched, apart from the tables: work of the device may go on in its block.
  struct Borrowed {
    uint64_t allocation = 0;
    uint32_t thread = 0;
    bool written = false;
  };
  struct Streams {
    uint64_t in = 0, out = 0;
  };

  // managed_space.cc
  Allocation* find(uint64_t address);
  // The same once it is not busy; waits for that with the lock given up.
  Allocation* find_idle(Lock& lock, uint64_t address);
  void add(std::unique_ptr<Allocation> allocation);
  void recount(Allocation* allocation);
  void set_busy(Allocation* allocation, bool busy);

  // managed_pool.cc
  CUresult streams_of(Call& call, uint64_t context);
  CUresult new_chunk(Call& call, uint64_t bytes, bool whole, uint64_t context, ManagedChunk** chunk);
  CUresult drop_chunk(Call& call, uint64_t base, bool if_idle);
  ManagedChunk* find_room(uint64_t bytes, uint64_t context, uint64_t* address, uint64_t* had);
  CUresult take_room(Call& call, uint64_t bytes, uint64_t context, ManagedChunk** chunk, uint64_t* address);
  uint64_t working_context(Call& call, const ManagedChunk& chunk);
  bool give_back_room(ManagedChunk* chunk, uint64_t address, uint64_t bytes);
  bool drop_idle(Call& call);
  void release_device(Call& call, ManagedChunk* chunk);

  // managed_backing.cc. Whether work reaches an allocation, for what may not go meanwhile.
  using Reaches = std::function<bool(const Allocation&)>;
  struct Eviction {
    ManagedChunk* chunk = nullptr;
    size_t piece = 0;
    uint64_t memory = 0;                   // that it had
    std::vector<Allocation*> allocations;  // that lie in it
  };
  void used(const Allocation& allocation, bandsaw::managed::Run run);
  bool lacks_backing(const Allocation& allocation, const std::vector<bandsaw::managed::Run>& runs);
  CUresult back(Call& call, const std::vector<Move>& moves, const Reaches& reaches, bool* later);
  CUresult back_piece(Call& call, ManagedChunk* chunk, size_t piece, const Reaches& reaches, bool* later);
  // kNone: nothing could go; kLater: only what is being moved or lent to a host function just now.
  enum class Found : uint8_t { kVictim, kNone, kLater };
  Found find_victim(const Reaches& reaches, Eviction* found);
  Found evict(Call& call, const Reaches& reaches, uint64_t bytes);
  void evict_piece(Call& call, const Eviction& eviction);
  void await_move();
  CUresult check_promise(Call& call, uint64_t bytes);
  uint64_t promised() const;
  uint64_t spare() const;

  // managed_work.cc
  unsigned enter();
  void leave(unsigned parity) { issuing_[parity].fetch_sub(1); }
  bool nothing_away() const { return away_.load() == 0; }
  void drain();
  template <typename ForEach>
  CUresult make_resident(Call& call, ForEach for_each, const Reaches& reaches, unsigned* parity);
  CUresult carry_out(Call& call, const std::vector<Move>& moves);
  void moved(const Move& move);

  // managed_touch.cc
  CUresult start_threads(VirtualGpu& gpu);
  static void* serve(void* gpu);
  void touched(VirtualGpu& gpu, const PageTouch& touch);
  bool lend(Lock& lock, VirtualGpu& gpu, Allocation* allocation, const PageTouch& touch);
  CUresult fetch(Lock& lock, Call& call, Allocation* allocation, bandsaw::managed::Run run, bool* writable);
  CUresult bring_back(Call& call, Allocation* allocation, const std::vector<bandsaw::managed::Run>& runs,
                      bool* writable);
  int give(uint64_t address, uint64_t bytes, bool* writable);
  void open(Lock& lock, Allocation* allocation, bandsaw::managed::Run run);
  CUresult settle(Call& call, const Allocation& allocation);
  CUresult copy(Call& call, const Allocation& allocation, const std::vector<bandsaw::managed::Run>& runs,
                bool to_device, Bounce* last);
  CUresult copy_and_wait(Call& call, const Allocation& allocation, const std::vector<bandsaw::managed::Run>& runs,
                         bool to_device);

  std::mutex mutex_;
  std::condition_variable changed_;  // an allocation is not busy any more
  // All guarded by mutex_.
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::map<uint64_t, std::unique_ptr<ManagedChunk>> chunks_;
  // Those that some kernel may reach and that are not all the device's, or are being moved.
  std::set<Allocation*> away_from_device_;
  std::map<uint64_t, Streams> streams_;    // by context: for our copies, in no order with the program's
  std::map<uint64_t, Borrowed> borrowed_;  // by page
  std::vector<uint32_t> function_threads_;

  PageGuard* guard_ = nullptr;  // set before the first allocation
  std::atomic<bool> any_{false};
  std::atomic<uint64_t> away_{0};  // how many are in away_from_device_
  // Threads that put records of work into their rings, in two sets; drain() waits for both in turn.
  std::array<std::atomic<uint64_t>, 2> issuing_{};
  std::atomic<unsigned> epoch_{0};
  std::mutex drain_mutex_;
  std::mutex grow_mutex_;           // one thread makes chunks
  std::mutex backing_mutex_;        // one thread changes what has device memory; taken before mutex_, after grow_mutex_
  std::atomic<bool> short_{false};  // device memory was short once: who uses what is noted from then on
};

// Stands around the record of work that the device does: what it may reach is on the device before, and stays until the
// record is published. Check status() first. No memory of the program may be touched while one stands.
class DeviceWork {
 public:
  // Kernels on a stream (on several, of a graph): they reach all but what is attached to the host or to others.
  DeviceWork(Call& call, uint64_t stream, bool graph = false);
  // A copy or fill on a stream that reaches only these.
  DeviceWork(Call& call, uint64_t stream, std::initializer_list<ManagedSpan> spans);
  ~DeviceWork() {
    if (!entered_) return;
    work_->published();
    space_.leave(parity_);
  }
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  CUresult status() const { return status_; }

 private:
  void entered();

  ManagedSpace& space_;
  const std::shared_ptr<bandsaw::managed::StreamWork> work_;
  unsigned parity_ = 0;
  bool entered_ = false;
  CUresult status_ = CUDA_SUCCESS;
};

// Takes device memory, again where managed memory could do without what it has.
template <typename Take>
CUresult with_room_made(Call& call, uint64_t bytes, Take take) {
  CUresult result = ManagedSpace::get().check_room(call, bytes);
  if (result == CUDA_SUCCESS) result = take();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && give_back_freed()) result = take();
  while (result == CUDA_ERROR_OUT_OF_MEMORY && ManagedSpace::get().make_room(call)) result = take();
  return result;
}

}  // namespace bandsaw::libcuda
