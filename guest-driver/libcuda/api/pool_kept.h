// Pools whose memory libcuda keeps itself: those of pinned host memory and of managed memory. Memory that was freed in
// stream order is known by an event on that stream; it is given out again in the order of the same stream at once, to
// others when the event has come. What is more than the pool's release threshold goes when the program has waited for
// a stream, an event or a context.
#pragma once

#include <cuda.h>

#include <array>
#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/pool_file.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "memory/managed/work_table.h"

namespace bandsaw::libcuda {

// What a pool gives, and where it lies or, of managed memory, prefers to lie.
struct PoolPlace {
  CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemLocationType where = CU_MEM_LOCATION_TYPE_DEVICE;
  int id = 0;  // of a device or a NUMA node, else 0

  auto operator<=>(const PoolPlace&) const = default;
  bool managed() const { return type == CU_MEM_ALLOCATION_TYPE_MANAGED; }
  bool on_device() const { return !managed() && where == CU_MEM_LOCATION_TYPE_DEVICE; }
  CUmemLocation location() const;
};

// CUDA_ERROR_INVALID_VALUE: there are no pools of that kind; CUDA_ERROR_INVALID_DEVICE.
CUresult find_place(const CUmemLocation* location, CUmemAllocationType type, PoolPlace* place);

// Thread-safe.
class KeptPool {
 public:
  // `handle` is the program's; `max_bytes`: 0 for as much as there is; `file`: what other processes may have of it.
  KeptPool(uint64_t handle, const PoolPlace& place, uint64_t max_bytes, std::unique_ptr<PoolFile> file);

  // On the stream's device. CUDA_ERROR_OUT_OF_MEMORY: also of the pool's own limit. May wait for freed memory then.
  CUresult allocate(Call& call, uint64_t bytes, uint64_t stream, CUdeviceptr* address);
  // Of memory of this pool. In the order of the stream; the address is not the program's any more.
  CUresult free(Call& call, const Range& range, uint64_t stream);
  // All work that uses it has ended.
  CUresult free_now(const Range& range);
  // Gives back what was freed and nobody uses any more, down to `keep` bytes.
  void trim(uint64_t keep);
  // As trim, down to the release threshold.
  void trim_to_threshold();
  // The program has destroyed it. True: nothing of it is left.
  bool abandon();

  // Of usage and reuse only; false or nothing: it is none of these.
  std::optional<uint64_t> attribute(CUmemPool_attribute attribute);
  bool set_attribute(CUmemPool_attribute attribute, uint64_t value);

  // What the program has said of a device. Devices reach the memory whatever it is.
  CUmemAccess_flags access(const VirtualGpu& gpu);
  void set_access(const VirtualGpu& gpu, CUmemAccess_flags flags);

  const PoolPlace& place() const { return place_; }
  PoolFile* file() const { return file_.get(); }  // null: nobody else may have it
  // Of another process's pool: memory that it has allocated, `bytes` of it the program's.
  CUresult map(Call& call, const FileRange& range, uint64_t bytes, CUdeviceptr* address);

 private:
  using StreamKey = decltype(bandsaw::managed::WorkStream{}.key());
  struct Block {
    uint64_t base = 0, bytes = 0;
    uint64_t used = 0;                // of the program's
    uint64_t event = 0, context = 0;  // after the work that may use it; once made it is kept, for that context
    StreamKey freed_on{};
    bool idle = true;  // the event has come
  };
  using Blocks = std::list<Block>;

  // With the lock.
  CUresult make(Call& call, uint64_t bytes);
  CUresult take(Call& call, uint64_t bytes, uint64_t stream);
  CUresult take_after_waiting(Call& call, uint64_t bytes, uint64_t stream);
  Blocks::iterator find_free(uint64_t bytes, const StreamKey* stream);
  CUresult mark(Call& call, Block* block, uint64_t stream);
  bool is_idle(Block* block);
  void release(uint64_t keep);
  Blocks::iterator find_used(uint64_t base);
  void give(uint64_t bytes, CUdeviceptr* address);
  void freed(Blocks::iterator block);

  const uint64_t handle_;
  const PoolPlace place_;
  const uint64_t max_bytes_;
  const std::unique_ptr<PoolFile> file_;

  std::mutex mutex_;  // guards the following
  Blocks used_;       // the one given out last is first
  Blocks free_;       // the one freed first is first
  uint64_t used_bytes_ = 0, most_used_ = 0, reserved_ = 0, most_reserved_ = 0;
  uint64_t threshold_ = 0;
  bool follow_events_ = true, opportunistic_ = true, internal_ = true;
  bool abandoned_ = false;
  std::array<CUmemAccess_flags, kGpusMax> access_{};  // by part
};

// The pool is known by its handle until it is abandoned and nothing of it is left.
std::shared_ptr<KeptPool> make_kept_pool(uint64_t handle, const PoolPlace& place, uint64_t max_bytes,
                                         std::unique_ptr<PoolFile> file = nullptr);
// The pool that this memory is of; null: it is of none that is kept here.
std::shared_ptr<KeptPool> kept_pool_of(const Range& range);
void abandon_kept_pool(uint64_t handle);

}  // namespace bandsaw::libcuda
