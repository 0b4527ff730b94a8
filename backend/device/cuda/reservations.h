// The guest process's own reservations of device addresses and what it has mapped there. What is its own lies inside
// the heap's reservation, so that the driver alone would let it unmap what is not its own; other virtual GPUs' memory
// lies where those have it, in a reservation of the whole part of the window that their device has.
#pragma once

#include <memory>
#include <set>

#include "backend/device/address_reservations.h"
#include "backend/device/cuda/charge.h"
#include "backend/device/cuda/heap.h"

namespace bandsaw::cuda {

class CudaMemory final : public Memory {
 public:
  CudaMemory(DriverRef driver, CUmemGenericAllocationHandle memory, uint64_t size, Charge charge)
      : handle(memory), bytes(size), charge_(std::move(charge)), driver_(std::move(driver)) {}
  ~CudaMemory() override { driver_->cuMemRelease(handle); }

  const CUmemGenericAllocationHandle handle;
  const uint64_t bytes;
  uint64_t key = 0;  // that another process will know its content by (along.h); 0: it cannot go there

 private:
  Charge charge_;  // given back after the destructor's body
  const DriverRef driver_;
};
using CudaMemoryRef = std::shared_ptr<CudaMemory>;

// Thread-safe.
class Reservations final : public AddressReservations {
 public:
  // `window`: where the whole of it begins.
  Reservations(DriverRef driver, Heap* heap, CUdevice device, uint64_t window)
      : driver_(std::move(driver)), heap_(heap), device_(device), window_(window) {}
  ~Reservations() override;

  CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, const CudaMemoryRef& memory) {
    return AddressReservations::map(address, bytes, offset, memory, memory->bytes);
  }

 private:
  std::optional<uint64_t> take_range(uint64_t bytes, uint64_t alignment, uint64_t* whole) override {
    return heap_->reserve(bytes, alignment, whole);
  }
  std::optional<uint64_t> take_range_again(uint64_t address, uint64_t bytes) override {
    uint64_t whole = 0;
    return heap_->reserve_at(address, bytes, &whole) ? std::optional<uint64_t>(whole) : std::nullopt;
  }
  bool take_range_at(uint64_t address, uint64_t bytes) override;
  void give_back_range(uint64_t address, uint64_t whole) override;
  CUresult map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) override;
  CUresult unmap_memory(uint64_t address, uint64_t bytes) override;
  CUresult protect(uint64_t address, uint64_t bytes, uint32_t access) override;
  CUresult access_at(uint64_t address, bool mapped, uint32_t* access) override;
  CUmemLocation location() const;

  const DriverRef driver_;
  Heap* const heap_;
  const CUdevice device_;
  const uint64_t window_;
  std::set<uint64_t> parts_;  // of other devices, that are reserved: where they begin; guarded by the base's mutex
};

}  // namespace bandsaw::cuda
