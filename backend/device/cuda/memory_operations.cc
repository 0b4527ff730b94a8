#include "backend/device/cuda/memory_operations.h"

namespace bandsaw::cuda {
namespace {

CUstreamBatchMemOpParams to_driver_operation(const vgpu_memory_op& from) {
  CUstreamBatchMemOpParams made{};
  if (from.kind == VGPU_MEMORY_OP_BARRIER) {
    made.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    made.memoryBarrier.flags = from.flags;
  } else if (from.kind == VGPU_MEMORY_OP_WAIT) {
    made.waitValue.operation = from.bytes == 8 ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    made.waitValue.address = from.address;
    made.waitValue.value64 = from.value;
    made.waitValue.flags = from.flags;
  } else {
    made.writeValue.operation = from.bytes == 8 ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    made.writeValue.address = from.address;
    made.writeValue.value64 = from.value;
    made.writeValue.flags = from.flags;
  }
  return made;
}

vgpu_memory_op from_driver_operation(const CUstreamBatchMemOpParams& from) {
  const auto& wait = from.waitValue;
  const auto& write = from.writeValue;
  switch (from.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return {wait.address, wait.value, VGPU_MEMORY_OP_WAIT, 4, wait.flags, 0};
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return {wait.address, wait.value64, VGPU_MEMORY_OP_WAIT, 8, wait.flags, 0};
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return {write.address, write.value, VGPU_MEMORY_OP_WRITE, 4, write.flags, 0};
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return {write.address, write.value64, VGPU_MEMORY_OP_WRITE, 8, write.flags, 0};
    default:
      return {0, 0, VGPU_MEMORY_OP_BARRIER, 0, from.memoryBarrier.flags, 0};
  }
}

}  // namespace

MemoryOperations::MemoryOperations(const NodeContent& content, CUcontext context) {
  for (const vgpu_memory_op& operation : content.operations) operations_.push_back(to_driver_operation(operation));
  params_.ctx = context;
  params_.count = static_cast<unsigned>(operations_.size());
  params_.paramArray = operations_.data();
}

std::vector<vgpu_memory_op> operations_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params) {
  std::vector<vgpu_memory_op> made;
  for (unsigned i = 0; i < params.count; ++i) made.push_back(from_driver_operation(params.paramArray[i]));
  return made;
}

}  // namespace bandsaw::cuda
