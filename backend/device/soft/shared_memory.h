// Physical memory of the software device: sealed files in memory, which programs map where they reserved addresses and
// pass to other processes of the same virtual GPU.
#pragma once

#include <memory>

#include "backend/device/address_reservations.h"
#include "backend/device/soft/memory_table.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::soft {

// What memory is created and mapped in multiples of, in bytes: programs have a GPU's 2 MiB in mind.
inline constexpr uint64_t kGranule = 2 << 20;

// A file of `bytes` bytes, zero, that nobody can make shorter or longer. Empty: the system has none.
UniqueFd make_sealed_file(const char* name, uint64_t bytes);
// Whether it is such a file of just this size: reading it cannot fail later.
bool is_sealed_file(int fd, uint64_t bytes);

// Counts against the memory share for as long as it lives, unless it is borrowed.
class PhysicalMemory final : public bandsaw::Memory {
 public:
  // Creates it, or takes over a file that another process made. OUT_OF_MEMORY, INVALID_VALUE (not such a file).
  static CUresult create(const std::shared_ptr<soft::Memory>& table, uint64_t bytes, MemoryRef* memory);
  static CUresult import(const std::shared_ptr<soft::Memory>& table, int fd, uint64_t bytes, MemoryRef* memory);
  // The same for what another virtual GPU is charged for.
  static CUresult borrow(const std::shared_ptr<soft::Memory>& table, int fd, uint64_t bytes, MemoryRef* memory);
  // The same memory in another process, for its contents to come back: with the key that it had.
  static CUresult again(const std::shared_ptr<soft::Memory>& table, uint64_t key, uint64_t bytes, MemoryRef* memory);
  ~PhysicalMemory() override {
    table_->leave_physical(key);
    if (counted_) table_->uncount(bytes);
  }

  // Other processes may have it from now on.
  void share() const { table_->leave_physical(key); }
  // Which it is among those that nobody else has; 0: others may.
  uint64_t own_key() const { return table_->has_physical(key) ? key : 0; }

  const UniqueFd file;
  const uint64_t bytes;
  const uint64_t key;

 private:
  PhysicalMemory(UniqueFd file_, uint64_t bytes_, uint64_t key_, std::shared_ptr<soft::Memory> table, bool counted)
      : file(std::move(file_)), bytes(bytes_), key(key_), table_(std::move(table)), counted_(counted) {}
  static CUresult create(const std::shared_ptr<soft::Memory>& table, uint64_t key, uint64_t bytes, MemoryRef* memory);
  const std::shared_ptr<soft::Memory> table_;
  const bool counted_;
};

// Thread-safe.
class SoftReservations final : public AddressReservations {
 public:
  explicit SoftReservations(std::shared_ptr<soft::Memory> table) : table_(std::move(table)) {}
  ~SoftReservations() override { clear(); }

 private:
  std::optional<uint64_t> take_range(uint64_t bytes, uint64_t alignment, uint64_t* whole) override;
  std::optional<uint64_t> take_range_again(uint64_t address, uint64_t bytes) override;
  bool take_range_at(uint64_t address, uint64_t bytes) override {
    return (address | bytes) % kPage == 0 && table_->is_elsewhere(address, bytes);
  }
  void give_back_range(uint64_t address, uint64_t whole) override {
    if (!table_->is_elsewhere(address, whole)) table_->give_back_addresses(address, whole);
  }
  CUresult map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) override;
  CUresult unmap_memory(uint64_t address, uint64_t bytes) override;
  CUresult protect(uint64_t address, uint64_t bytes, uint32_t access) override;
  CUresult access_at(uint64_t, bool mapped, uint32_t*) override {
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

  const std::shared_ptr<soft::Memory> table_;
};

}  // namespace bandsaw::soft
