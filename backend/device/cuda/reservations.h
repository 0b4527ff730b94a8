// The guest process's own reservations of device addresses and what it has mapped there. All of it lies inside the
// heap's reservation, so that the driver alone would let it unmap what is not its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>

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

 private:
  Charge charge_;  // given back after the destructor's body
  const DriverRef driver_;
};
using CudaMemoryRef = std::shared_ptr<CudaMemory>;

// Thread-safe. CUDA_ERROR_INVALID_VALUE: an address or size that is not what the guest reserved or mapped.
class Reservations {
 public:
  Reservations(DriverRef driver, Heap* heap, CUdevice device)
      : driver_(std::move(driver)), heap_(heap), device_(device) {}
  ~Reservations();

  CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t* address);
  CUresult free(uint64_t address, uint64_t bytes);
  CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, const CudaMemoryRef& memory);
  CUresult unmap(uint64_t address, uint64_t bytes);
  CUresult set_access(uint64_t address, uint64_t bytes, uint32_t access);
  CUresult get_access(uint64_t address, uint32_t* access);
  // Whether there is memory behind all of [address, address + bytes).
  bool covers(uint64_t address, uint64_t bytes);

 private:
  struct Mapping {
    uint64_t bytes = 0;
    CudaMemoryRef memory;
  };
  struct Reservation {
    uint64_t asked = 0, bytes = 0;
    std::map<uint64_t, Mapping> mappings;  // by address
  };
  CUmemLocation location() const;
  Reservation* holder(uint64_t address, uint64_t bytes);
  bool is_mapped(const Reservation& reservation, uint64_t address, uint64_t bytes) const;

  const DriverRef driver_;
  Heap* const heap_;
  const CUdevice device_;
  std::mutex mutex_;
  std::map<uint64_t, Reservation> reservations_;  // guarded by mutex_, by address
};

}  // namespace bandsaw::cuda
