// The part of a GPU's SMs that a process has to itself, by green contexts.
//
// A green context lies over the device's primary context and shares all of it but the SMs: memory, code, events and
// limits. Kernels of whatever stream or graph run on its SMs only, as long as they were begun while it was current.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class Partition {
 public:
  // Of the groups that the configuration names, which has a step; the driver splits alike in every process.
  static Result<std::unique_ptr<Partition>> make(DriverRef driver, CUdevice device, const DeviceConfig& config);

  uint32_t sms() const { return sms_; }
  // A context over `base`, a primary one, which is current.
  CUresult make_context(const CudaContextRef& base, bool primary, CudaContextRef* made);
  // Its streams go, and it may be current nowhere; what else was made with it stays with its base.
  CUresult destroy(CudaContext& context);
  // How many contexts there are.
  int contexts() const { return contexts_; }

 private:
  Partition(DriverRef driver, CUdevice device) : driver_(std::move(driver)), device_(device) {}
  Status choose(const DeviceConfig& config);

  const DriverRef driver_;
  const CUdevice device_;
  std::vector<CUdevResource> parts_;
  uint32_t sms_ = 0;
  std::atomic<int> contexts_{0};
};

}  // namespace bandsaw::cuda
