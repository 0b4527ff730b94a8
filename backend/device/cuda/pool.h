// Stream-ordered memory that the driver manages: its pools, and what its graphs allocate. The driver takes memory in
// steps of its own and keeps some of it; what it has reserved is what counts against the virtual GPU's share. How much
// that is, it tells only afterwards, so it is asked again whenever it may have changed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/device/cuda/charge.h"
#include "backend/device/cuda/driver.h"

namespace bandsaw::cuda {

// Thread-safe. Destroyed with nothing in use: what the charge stood for is free then.
class CudaPool final : public Pool {
 public:
  CudaPool(std::shared_ptr<const Driver> driver, DeviceHost* host, CUmemoryPool pool, bool is_owned)
      : handle(pool), owned(is_owned), driver_(std::move(driver)), charge_(host) {}
  ~CudaPool() override;

  // CUDA_ERROR_OUT_OF_MEMORY: the share or the GPU has no more.
  CUresult allocate(uint64_t bytes, CUstream stream, uint64_t* address);
  CUresult trim(uint64_t keep);
  // To what it is to keep in any case. settle() counts what is left.
  void trim_to_threshold() { driver_->cuMemPoolTrimTo(handle, attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)); }
  // Counts what the pool has now. False: more than the share has room for, and it would not shrink yet.
  bool settle();
  bool holds_memory() const { return holds_; }

  const CUmemoryPool handle;
  const bool owned;  // false: the device's default pool

 private:
  uint64_t attribute(CUmemPool_attribute which) const;
  bool settle_locked();

  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;
  Charge charge_;  // guarded by mutex_
  std::atomic<bool> holds_{false};
};
using CudaPoolRef = std::shared_ptr<CudaPool>;

// The memory of allocation nodes, of all graphs of the process. Thread-safe.
class GraphMemory {
 public:
  GraphMemory(std::shared_ptr<const Driver> driver, DeviceHost* host, CUdevice device)
      : driver_(std::move(driver)), device_(device), charge_(host) {}

  // As CudaPool's.
  bool settle();
  // Gives back what no graph needs at present. A graph that was mapped before may have to be mapped again.
  void trim();
  uint64_t trims() const { return trims_; }

 private:
  bool settle_locked();

  const std::shared_ptr<const Driver> driver_;
  const CUdevice device_;
  std::atomic<uint64_t> trims_{1};
  std::mutex mutex_;
  Charge charge_;  // guarded by mutex_
};

inline CudaPool& as(const PoolRef& pool) { return static_cast<CudaPool&>(*pool); }

}  // namespace bandsaw::cuda
