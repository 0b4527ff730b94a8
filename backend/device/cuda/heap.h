// Device memory at addresses of our own choosing: a reservation of GPU address space in the window's upper half, with
// physical memory mapped behind it (CUDA driver API, Virtual Memory Management). The address of an allocation never
// changes, whatever becomes of the memory behind it.
//
// Large allocations have physical memory of their own, in units of the GPU's granularity (2 MiB); small ones share a
// slab, as the driver's own do. Where programs may allocate more than is resident, large ones are made of chunks, of
// which each lies on the device or in host memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/device/away_memory.h"
#include "backend/device/cuda/event_pool.h"
#include "backend/device/cuda/move_times.h"
#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/spare.h"
#include "backend/device/cuda/spare_maker.h"
#include "memory/base/range_allocator.h"
#include "memory/swap/book.h"
#include "memory/swap/exchange.h"

namespace bandsaw::cuda {

class MoveStreams;

// What all of the device's memory is created with: it can be exported to other processes of ours.
CUmemAllocationProp allocation_properties(CUdevice device);

// Thread-safe. The calls block as long as the driver takes to map memory.
class Heap {
 public:
  // Reserves [base, base + bytes); an error says why the driver would not.
  // `area`: allocations lie there only, and all of it and its slack is mapped.
  static Result<std::unique_ptr<Heap>> make(DriverRef driver, DeviceHost* host, CUdevice device, uint64_t base,
                                            uint64_t bytes, const ptx::GuardArea* area = nullptr);
  ~Heap();

  // Where kernels are guarded: called before memory behind addresses changes.
  void set_before_changes(std::function<void()> before) { before_changes_ = std::move(before); }
  bool is_guarded() const { return spare_ != nullptr; }
  // For somebody else's mappings in a range that reserve() gave: before they are made, and after they are gone.
  CUresult open(uint64_t address, uint64_t bytes);
  CUresult close(uint64_t address, uint64_t bytes);

  CUresult allocate(const CudaContextRef& context, uint64_t bytes, uint64_t* address);
  // CUDA_ERROR_INVALID_VALUE: nothing begins there. The caller has seen to it that nothing uses it any more.
  CUresult release(uint64_t address);
  bool empty() const;
  // Whose allocation begins at `address`; null: nothing begins there.
  CudaContextRef context_of(uint64_t address) const;
  bool begins_at(uint64_t address) const { return context_of(address) != nullptr; }
  // The physical memory behind what begins at `address`: its handle and size, and where in it that lies. From then on
  // others may have it. False: nothing begins there.
  bool share(uint64_t address, CUmemGenericAllocationHandle* handle, uint64_t* bytes, uint64_t* offset);
  // Whether anything is made of chunks: where they lie and how large they are may differ in another process.
  bool has_chunks() const;
  // Whether what begins there is made of chunks: it can be exported by none.
  bool has_chunks(uint64_t address) const;
  // As Device::chunks_move. The context is current. ILLEGAL_ADDRESS: the driver has taken the memory away.
  CUresult move_chunks(const CudaContextRef& context, const swap::Moves& moves);
  // As Device::chunks_reach. The context is current.
  CUresult reach_chunks(const std::vector<uint64_t>& chunks);
  // As Device::chunks_prepare.
  void prepare_chunks(const CudaContextRef& context, uint64_t chunk_bytes, uint64_t bytes);
  // As Device::memory_leave and memory_return, with this context for the copies. Nobody may call anything else in
  // between.
  CUresult leave(CUcontext context);
  CUresult come_back(CUcontext context);
  // As Device::memory_away: what has left.
  std::vector<AwayMemory> away() const;
  // Whether [address, address + bytes) lies in one allocation.
  bool covers(uint64_t address, uint64_t bytes) const;
  // Whether the address is one that only the heap gives out.
  bool reserves(uint64_t address) const { return address - base_ < bytes_; }
  // Addresses for somebody else's mappings, in whole granules: `reserved` bytes. Nothing: no room.
  std::optional<uint64_t> reserve(uint64_t bytes, uint64_t alignment, uint64_t* reserved);
  // Exactly these addresses, where another process had them. False: somebody has some of them.
  bool reserve_at(uint64_t address, uint64_t bytes, uint64_t* reserved);
  void unreserve(uint64_t address, uint64_t reserved) { ranges_.give_back(address, reserved); }
  // What is left of a context that is gone.
  void release_all(const CudaContextRef& context);
  // Gives the device what is kept for later allocations.
  void trim();

 private:
  struct Mapping {
    CUmemGenericAllocationHandle handle = 0;
    uint64_t address = 0, bytes = 0;
    bool on_device = true;
    uint64_t beside = 0;  // of host memory: where it stays mapped for copies, whatever chunk it is; 0: nowhere
    bool apart = false;   // of a chunk's, which is beside: nothing is mapped at the chunk's address
    bool shared = false;  // its handle was given out: other processes, or other devices, may have it mapped
  };
  struct Slab {
    explicit Slab(const Mapping& from) : mapping(from), ranges(from.address, from.bytes) {}
    Mapping mapping;
    RangeAllocator ranges;
  };
  struct Allocation {
    CudaContextRef context;
    uint64_t bytes = 0;
    std::optional<Mapping> own;  // none: in the slab, or made of chunks
    std::vector<Mapping> chunks;
    std::shared_ptr<Slab> slab;
  };

  Heap(DriverRef driver, DeviceHost* host, CUdevice device, uint64_t base, uint64_t bytes, uint64_t granularity,
       const ptx::GuardArea* area);
  CUresult unmap_at(uint64_t address, uint64_t bytes);
  // `at`: the address that it is to have; 0: any.
  CUresult map(uint64_t bytes, uint64_t at, Mapping* mapping);
  CUresult unmap(const Mapping& mapping);
  CUresult allocate_small(uint64_t bytes, uint64_t at, Allocation* allocation, uint64_t* address);
  CUresult add_slab(uint64_t at);
  void drop_uncharged();  // with mutex_: all that is mapped for later allocations
  void give_up(const Mapping& mapping);
  bool may_keep(const Mapping& mapping) const;
  // Both with mutex_. Null: nothing of that size is kept.
  std::optional<Mapping> take_kept(uint64_t bytes);
  void drop_kept(uint64_t most = 0);  // the oldest, until no more bytes than that are left
  CUresult allocate_large(uint64_t bytes, uint64_t at, Allocation* allocation, uint64_t* address);
  CUresult give_back(uint64_t address, Allocation allocation);
  // heap_chunks.cc
  CUmemAllocationProp properties(bool on_device) const;
  CUresult map_at(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
  CUresult map_chunk(Mapping* chunk);
  CUresult allocate_chunks(const CudaContextRef& context, uint64_t bytes, swap::Book* book, uint64_t* address);
  CUresult unmap_chunks(uint64_t address, const Allocation& allocation);
  // heap_moves.cc, all but the first with mutex_
  CUresult move_all(const CudaContextRef& context, const swap::Moves& moves);
  CUresult reach_chunk(uint64_t address);
  struct ChunkMove;
  std::vector<swap::Exchange::Move> moves_of(const std::vector<uint64_t>& chunks, bool to_device);
  CUresult begin_move(const swap::Exchange::Move& what, ChunkMove* move);
  CUresult begin_coming(const swap::Exchange::Move& what, ChunkMove* move);
  CUresult end_move(ChunkMove* move);
  CUresult end_coming(ChunkMove* move);
  CUresult stay_away(const ChunkMove& move, CUresult error);
  CUresult wait_for(const CudaStream& stream);
  CUresult replace(uint64_t address, const Mapping& old, const Mapping& made);
  CUresult rehome(Mapping* chunk, const Mapping& made);
  CUresult exchange_chunks(MoveStreams* streams, swap::Exchange* exchange, const swap::Moves& moves);
  // heap_pairs.cc, all with mutex_
  struct PairMove;
  struct PairStreams;
  bool may_begin_pair(uint64_t bytes, size_t under_way);
  CUresult begin_pair(PairStreams* streams, PairMove* move);
  CUresult copy_pair(PairStreams* streams, PairMove* move);
  CUresult end_pair(PairStreams* streams, PairMove* move);
  CUresult change_places(PairStreams* streams, const PairMove& move);
  CUresult exchange_pairs(MoveStreams* streams, std::vector<swap::Pair>* pairs, const swap::Moves& moves);
  // heap_spares.cc, all with mutex_
  Mapping* find_chunk(uint64_t address, bool on_device);
  bool has_spare(uint64_t bytes) const;
  CUresult map_made(Mapping* made);
  CUresult create(Mapping* made);
  // Of memory that is apart: nothing.
  CUresult map_timed(uint64_t address, const Mapping& memory);
  CUresult unmap_timed(uint64_t address, const Mapping& memory);
  void discard(const Mapping& memory);
  CUresult vacate(uint64_t address, uint64_t bytes);
  CUresult drop(const Mapping& memory);
  void drop_spares(uint64_t most = 0);  // until no more bytes than that are left
  void trim_spares();
  uint64_t spare_bytes() const;
  bool wants_spare() const;
  bool make_spare();  // without mutex_
  // heap_away.cc
  struct AwayPages {
    void* pages = nullptr;
    uint64_t bytes = 0;
    void free();
  };
  std::vector<Mapping*> all_on_device();
  CUresult copy_away(CUcontext context, bool to_device);
  CUresult come_back_locked(CUcontext context);

  const DriverRef driver_;
  DeviceHost* const host_;
  const CUdevice device_;
  const uint64_t base_, bytes_, granularity_;
  std::unique_ptr<Spare> spare_;  // null: what is not mapped faults
  std::function<void()> before_changes_;
  RangeAllocator ranges_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Allocation> allocations_;  // guarded by mutex_
  std::vector<std::shared_ptr<Slab>> slabs_;    // guarded by mutex_
  std::shared_ptr<Slab> empty_slab_;            // guarded by mutex_: mapped for the next one; charged to nobody
  std::vector<Mapping> kept_;                   // guarded by mutex_: the same of large ones, the oldest first
  std::vector<Mapping> spares_;                 // guarded by mutex_: host memory of no chunk, for moves
  std::vector<std::shared_ptr<CudaStream>> move_streams_;  // guarded by mutex_
  EventPool move_events_;
  MoveTimes move_times_;      // guarded by mutex_: of the moves that are under way
  bool leave_apart_ = false;  // guarded by mutex_: what they take off the device
  struct Prepared {
    CudaContextRef context;
    uint64_t chunk = 0, bytes = 0;  // of each, of all
  };
  Prepared prepared_;           // guarded by mutex_
  std::vector<Mapping*> away_;  // guarded by mutex_: what has left, in the order of its bytes there
  AwayPages away_pages_;        // guarded by mutex_
  std::jthread freeing_;        // guarded by mutex_: of gigabytes of pages, which takes a while
  SpareMaker spare_maker_{[this] { return make_spare(); }};
};

}  // namespace bandsaw::cuda
