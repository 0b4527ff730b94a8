// Where the program's plain allocations lie, to tell whether pointers lead to different ones. No two of them share
// memory, which cannot be said of what is mapped, opened or managed: that is not here.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "vgpu-sched/ptx/idempotence.h"

namespace bandsaw::runner {

// Thread-safe.
class Allocations {
 public:
  void add(uint64_t address, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    ends_[address] = address + bytes;
  }
  void remove(uint64_t address) {
    std::lock_guard lock(mutex_);
    ends_.erase(address);
  }
  void clear() {
    std::lock_guard lock(mutex_);
    ends_.clear();
  }
  // The one that an address lies in.
  std::optional<ptx::MemoryRange> find(uint64_t address) const {
    std::lock_guard lock(mutex_);
    auto next = ends_.upper_bound(address);
    if (next == ends_.begin() || (--next)->second <= address) return std::nullopt;
    return ptx::MemoryRange{next->first, next->second};
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ends_;  // by begin
};

}  // namespace bandsaw::runner
