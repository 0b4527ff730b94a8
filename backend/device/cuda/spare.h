// Memory of nobody's behind addresses where nothing is allocated, so that guarded kernels do not fault there: two
// pieces of memory, mapped over and over. The driver maps a piece as a whole or not at all, so there is a large one for
// most of the range and one of a granule for what the large one does not fit into.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class Spare {
 public:
  // What both hold of the device.
  static uint64_t held(uint64_t granularity) { return kPieceBytes + granularity; }
  // Behind all of [begin, begin + bytes), which is reserved; both are multiples of the granularity.
  static Result<std::unique_ptr<Spare>> make(DriverRef driver, CUdevice device, uint64_t granularity, uint64_t begin,
                                             uint64_t bytes);
  ~Spare();

  // The range has no memory any more: something else is to be mapped there.
  CUresult open(uint64_t address, uint64_t bytes);
  // It has none of somebody else's.
  CUresult close(uint64_t address, uint64_t bytes);

 private:
  static constexpr uint64_t kPieceBytes = 32u << 20;

  Spare(DriverRef driver, CUdevice device, uint64_t granularity)
      : driver_(std::move(driver)), device_(device), granularity_(granularity) {}
  CUresult create();
  CUresult fill(uint64_t address, uint64_t bytes);

  const DriverRef driver_;
  const CUdevice device_;
  const uint64_t granularity_;
  CUmemGenericAllocationHandle piece_ = 0, granule_ = 0;  // of kPieceBytes, of the granularity; 0: not made
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> pieces_;  // guarded by mutex_: mapped there, each in one call; address, bytes
};

}  // namespace bandsaw::cuda
