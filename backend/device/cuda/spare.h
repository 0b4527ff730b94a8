// Memory of nobody's behind addresses where nothing is allocated, so that guarded kernels do not fault there: one piece
// of memory, mapped over and over.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class Spare {
 public:
  static constexpr uint64_t kPieceBytes = 32u << 20;

  // Behind all of [begin, begin + bytes), which is reserved; both are multiples of the granularity.
  static Result<std::unique_ptr<Spare>> make(DriverRef driver, CUdevice device, uint64_t begin, uint64_t bytes);
  ~Spare();

  // The range has no memory any more: something else is to be mapped there.
  CUresult open(uint64_t address, uint64_t bytes);
  // It has none of somebody else's.
  CUresult close(uint64_t address, uint64_t bytes);

 private:
  Spare(DriverRef driver, CUdevice device, CUmemGenericAllocationHandle memory)
      : driver_(std::move(driver)), device_(device), memory_(memory) {}
  CUresult fill(uint64_t address, uint64_t bytes);

  const DriverRef driver_;
  const CUdevice device_;
  const CUmemGenericAllocationHandle memory_;  // of kPieceBytes
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> pieces_;  // guarded by mutex_: mapped there, each in one call; address, bytes
};

}  // namespace bandsaw::cuda
