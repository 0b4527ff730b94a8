// Batches of memory operations between the runner's form and the driver's.
#pragma once

#include <cuda.h>

#include <vector>

#include "backend/device/device.h"

namespace bandsaw::cuda {

// What cuGraphAddBatchMemOpNode and its like take; params() is valid as long as this lives.
class MemoryOperations {
 public:
  MemoryOperations(const NodeContent& content, CUcontext context);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params() const { return &params_; }

 private:
  std::vector<CUstreamBatchMemOpParams> operations_;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params_{};
};

std::vector<vgpu_memory_op> operations_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params);

}  // namespace bandsaw::cuda
