#include "backend/runner/memory/address_range.h"

#include <sys/mman.h>

#include <iterator>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

void* reserve(uint64_t base, uint64_t bytes, int extra) {
  return mmap(reinterpret_cast<void*>(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra, -1,
              0);
}

}  // namespace

Result<Reservation> Reservation::make(uint64_t bytes, const std::vector<uint64_t>& bases) {
  for (const uint64_t base : bases) {
    void* at = reserve(base, bytes, MAP_FIXED_NOREPLACE);
    if (at == MAP_FAILED) continue;
    if (reinterpret_cast<uint64_t>(at) == base) return Reservation(base, bytes);
    munmap(at, bytes);  // a kernel older than the flag takes the address as a hint only
  }
  if (bases.size() > 0) return Status::error(ENOMEM, "no candidate base is free for a window of {} bytes", bytes);
  void* at = reserve(0, bytes, 0);
  if (at == MAP_FAILED) return Status::system("reserving {} bytes of address space", bytes);
  return Reservation(reinterpret_cast<uint64_t>(at), bytes);
}

Reservation::Reservation(Reservation&& other) noexcept : base_(other.base_), bytes_(other.bytes_) {
  other.base_ = other.bytes_ = 0;
}

Reservation::~Reservation() {
  if (bytes_ != 0) munmap(reinterpret_cast<void*>(base_), bytes_);
}

void Reservation::release(uint64_t address, uint64_t length) const { munmap(reinterpret_cast<void*>(address), length); }

void Reservation::seal(uint64_t address, uint64_t length) const {
  if (reserve(address, length, MAP_FIXED) == MAP_FAILED) {
    // Leaving guest pages mapped would break the promise that they are let go of.
    log::critical("cannot unmap guest pages at {:#x}: {}", address, std::strerror(errno));
    std::abort();
  }
}

bool Reservation::fill_gap(uint64_t address, uint64_t length) {
  void* const at = reserve(address, length, MAP_FIXED_NOREPLACE);
  if (at != MAP_FAILED && reinterpret_cast<uint64_t>(at) != address) munmap(at, length);
  return reinterpret_cast<uint64_t>(at) == address;
}

}  // namespace bandsaw::runner
