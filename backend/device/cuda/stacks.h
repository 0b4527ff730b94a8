// The memory of threads' stacks. The driver keeps as much of it as all threads that the GPU holds may need, 260 MiB of
// an H200 by default, half of what a context takes. Where a context leaves the GPU, the driver would copy it out and in
// again, at 2 GB/s, although nothing is in it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class Stacks {
 public:
  explicit Stacks(DriverRef driver) : driver_(std::move(driver)) {}

  // A context beside the first.
  void add(const CudaContextRef& context);
  // What nothing that runs needs is given back, of `first` and of those that were added. The context that is current
  // may be another one afterwards.
  void give_back(const CudaContextRef& first);
  // They may be as large as before, from the next launch on. The same.
  CUresult allow_again();

 private:
  void give_back_one(const CudaContextRef& context);

  const DriverRef driver_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<CudaContext>> others_;             // guarded by mutex_
  std::vector<std::pair<CudaContextRef, size_t>> given_back_;  // guarded by mutex_: bytes of a thread
};

}  // namespace bandsaw::cuda
