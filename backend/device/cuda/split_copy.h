// Copies to the GPU from host memory that is not registered, as split transactions (Kato et al., "Gdev", USENIX ATC
// 2012, section 4.1): in chunks through registered memory of our own, so that a chunk crosses the link while the
// processor moves the next one. Faster than the driver's own staging in this direction (15 against 11 GB/s on an H200),
// not in the other one (15 against 19), which is left to it.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "backend/device/cuda/event_pool.h"
#include "backend/device/cuda/pinned.h"

namespace bandsaw::cuda {

// Thread-safe; one copy at a time. A call blocks for as long as the copy takes.
class SplitCopy {
 public:
  struct Sizes {
    uint64_t chunk_bytes;
    unsigned chunks;  // at least two
  };
  // As measured: see tools/benchmarks/programs/split.cc.
  static constexpr Sizes kSizes{512u << 10, 4};

  SplitCopy(DriverRef driver, Pinned* pinned, Sizes sizes = kSizes);
  ~SplitCopy();

  // In stream order. The stream's context is current. When it returns, all bytes are there, or the code says why not.
  // CUDA_ERROR_OUT_OF_MEMORY: there is no registered memory to go through.
  CUresult to_device(const std::shared_ptr<CudaStream>& stream, uint64_t device, const std::byte* host, uint64_t bytes);

 private:
  class Run;
  bool make_chunks();

  const DriverRef driver_;
  Pinned* const pinned_;
  const Sizes sizes_;
  EventPool events_;
  std::mutex mutex_;
  std::byte* memory_ = nullptr;  // guarded by mutex_: the chunks, one behind the other
};

}  // namespace bandsaw::cuda
