// Address space that this process holds reserved (PROT_NONE), so that guest pages are only ever mapped where nothing
// of the runner's own can come to lie: a stale pointer into it faults or meets the same guest process's pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "memory/base/status.h"

namespace bandsaw::runner {

// An owned PROT_NONE mapping. Immutable, so any thread may use it.
class Reservation {
 public:
  // At the first of `bases` that is free; with no bases anywhere.
  static Result<Reservation> make(uint64_t bytes, std::initializer_list<uint64_t> bases = {});
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  bool contains(uint64_t address, uint64_t length) const {
    return address >= base_ && length <= bytes_ && address - base_ <= bytes_ - length;
  }
  // Puts PROT_NONE back over a part that was mapped over.
  void seal(uint64_t address, uint64_t length) const;

 private:
  Reservation(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  uint64_t base_ = 0, bytes_ = 0;
};

// First-fit allocation of page ranges in a reservation. Thread-safe.
class RangeAllocator {
 public:
  RangeAllocator(uint64_t base, uint64_t bytes) { free_[base] = bytes; }
  std::optional<uint64_t> take(uint64_t bytes);
  void give_back(uint64_t address, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // guarded by mutex_: start -> length, never adjacent
};

}  // namespace bandsaw::runner
