// Address space that this process holds reserved (PROT_NONE), so that guest pages are only ever mapped where nothing
// of the runner's own can come to lie: a stale pointer into it faults or meets the same guest process's pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::runner {

// An owned PROT_NONE mapping. Immutable, so any thread may use it.
class Reservation {
 public:
  // At the first of `bases` that is free; with no bases anywhere.
  static Result<Reservation> make(uint64_t bytes, const std::vector<uint64_t>& bases = {});
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
  // Reserves what a mapping that failed may have left unreserved. False: something lies there, maybe the reservation.
  static bool fill_gap(uint64_t address, uint64_t length);
  // Gives a part up for somebody else to reserve; `contains` still counts it as the window's.
  void release(uint64_t address, uint64_t length) const;

 private:
  Reservation(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  uint64_t base_ = 0, bytes_ = 0;
};

}  // namespace bandsaw::runner
