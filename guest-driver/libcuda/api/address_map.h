// Every address range that CUDA knows in this process: what unified addressing and pointer attributes answer from.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

enum class RangeKind : uint8_t {
  kDevice,      // cuMemAlloc
  kPool,        // stream-ordered
  kGraph,       // a graph's allocation node
  kMapped,      // cuMemMap
  kOpened,      // another process's memory, cuIpcOpenMemHandle
  kGlobal,      // a module's or library's variable
  kHost,        // cuMemHostAlloc: shared with the runner at its own address
  kRegistered,  // cuMemHostRegister: the program's own pages, shared with the runner
  kManaged,     // cuMemAllocManaged and __managed__ variables
};

struct Range {
  uint64_t base = 0, bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  bool sync_memops = false;
  uint32_t flags = 0;  // of the call that made it
  uint64_t context = 0, pool = 0;
  uint64_t id = 0;         // never used twice in a process
  uint64_t owner = 0;      // of variables: the library or module; of mappings: the memory
  bool in_pieces = false;  // kRegistered: the host has it in several regions, so that no copy reaches all of it
  bool uncounted = false;  // managed memory in the program's pages because the device had no room: takes none there

  bool on_device() const { return kind <= RangeKind::kGlobal; }
  bool holds(uint64_t address, uint64_t length) const {
    return address >= base && address - base <= bytes && length <= bytes - (address - base);
  }
};

// The device that the memory belongs to; of host memory that for which it was made.
VirtualGpu& gpu_of(const Range& range);

// Thread-safe. Ranges never overlap.
class AddressMap {
 public:
  static AddressMap& get();

  // Adds the range under a new id. Removes ranges that it overlaps: they are stale, because their context was
  // destroyed.
  void add(Range range);
  std::optional<Range> find(uint64_t address) const;  // the range that holds this address
  // Whether all of [address, address + length) lies in `range` or, if `range` is a mapping, in it and the mappings that
  // follow it.
  bool covers(const Range& range, uint64_t address, uint64_t length) const;
  bool remove(uint64_t base);  // exactly this base
  // Removes a range that find() returned before its memory was freed. If another thread has been given the same address
  // since, the range there has another id and stays.
  void forget(const Range& range);
  std::optional<Range> take(uint64_t base);
  // Changes the range that holds `address` in place; false if there is none.
  bool update(uint64_t address, const std::function<void(Range&)>& change);
  // Those for which `wanted` is true.
  std::vector<Range> select(const std::function<bool(const Range&)>& wanted) const;
  // Removes the ranges for which `gone` is true.
  void remove_if(const std::function<bool(const Range&)>& gone);

 private:
  using Map = std::map<uint64_t, Range>;
  Map::const_iterator holder(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  Map ranges_;
  uint64_t next_id_ = 1;
};

// The range that holds this address: also a variable of code in the current context that the program never asked for
// by its name, as a text in a kernel. For that the host is asked, but not about memory of the process.
std::optional<Range> range_around(uint64_t address);

}  // namespace bandsaw::libcuda
