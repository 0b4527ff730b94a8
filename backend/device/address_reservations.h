// The guest process's own reservations of device addresses and what it has mapped there, for both devices: what may be
// mapped, unmapped and protected is decided here, so that a guest reaches nothing but what it reserved.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "backend/device/gives_again.h"

namespace bandsaw {

// Thread-safe. CUDA_ERROR_INVALID_VALUE: an address or size that is not what the guest reserved or mapped.
class AddressReservations {
 public:
  virtual ~AddressReservations() = default;
  AddressReservations() = default;
  AddressReservations(const AddressReservations&) = delete;
  AddressReservations& operator=(const AddressReservations&) = delete;

  CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t* address);
  // Exactly this range, where another virtual GPU reserves addresses.
  CUresult adopt(uint64_t address, uint64_t bytes);
  CUresult free(uint64_t address, uint64_t bytes);
  // `size`: of the memory in bytes.
  CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory, uint64_t size);
  CUresult unmap(uint64_t address, uint64_t bytes);
  // Unmaps it wherever it is mapped, for good.
  void revoke(const MemoryRef& memory);
  // CUDA_ERROR_NOT_PERMITTED: writing to memory that is read-only.
  CUresult set_access(uint64_t address, uint64_t bytes, uint32_t access);
  CUresult get_access(uint64_t address, uint32_t* access);
  // All that there is, and the same again: an empty range where it was, for map() and set_access().
  std::vector<ReservedAgain> all();
  CUresult reserve_again(uint64_t address, uint64_t bytes);
  // Whether there is memory behind all of [address, address + bytes).
  bool covers(uint64_t address, uint64_t bytes);

 protected:
  // Of a derived class's destructor: nothing is mapped or reserved any more.
  void clear();

  // What the device does, asked only for ranges that were checked; called with the lock held but for take_range and
  // give_back_range. `whole`: what the range really takes, in bytes. Nothing: no room.
  virtual std::optional<uint64_t> take_range(uint64_t bytes, uint64_t alignment, uint64_t* whole) = 0;
  // The same, where take_range() had it in another process. Nothing: it is not free.
  virtual std::optional<uint64_t> take_range_again(uint64_t /*address*/, uint64_t /*bytes*/) { return std::nullopt; }
  // False: it is not elsewhere in the window, or somebody has it.
  virtual bool take_range_at(uint64_t address, uint64_t bytes) = 0;
  virtual void give_back_range(uint64_t address, uint64_t whole) = 0;
  virtual CUresult map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) = 0;
  virtual CUresult unmap_memory(uint64_t address, uint64_t bytes) = 0;  // exactly one mapping
  virtual CUresult protect(uint64_t address, uint64_t bytes, uint32_t access) = 0;
  // Of an address in a reservation; `mapped`: there is memory behind it, last given `access` by set_access.
  virtual CUresult access_at(uint64_t address, bool mapped, uint32_t* access) = 0;

 private:
  struct Mapping {
    uint64_t bytes = 0, offset = 0;
    MemoryRef memory;
    uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  struct Reservation {
    uint64_t asked = 0, bytes = 0;
    std::map<uint64_t, Mapping> mappings;  // by address
  };
  Reservation* holder(uint64_t address, uint64_t bytes);
  bool is_mapped(const Reservation& reservation, uint64_t address, uint64_t bytes) const;

  std::mutex mutex_;
  std::map<uint64_t, Reservation> reservations_;  // guarded by mutex_, by address
};

}  // namespace bandsaw
