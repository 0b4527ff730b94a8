// Waiting for and writing of memory words in stream order.
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/memory_op.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {

CUresult check_word(CUdeviceptr address, uint32_t bytes) {
  const auto range = range_around(address);
  if (!range || !range->holds(address, bytes) || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  // NVIDIA's driver refuses these kinds too.
  const bool refused = range->kind == RangeKind::kPool || range->kind == RangeKind::kManaged;
  return refused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult wire_operation(const CUstreamBatchMemOpParams& from, vgpu_memory_op* made) {
  const auto& wait = from.waitValue;
  const auto& write = from.writeValue;
  switch (from.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      *made = {wait.address, wait.value, VGPU_MEMORY_OP_WAIT, 4, wait.flags, 0};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      *made = {wait.address, wait.value64, VGPU_MEMORY_OP_WAIT, 8, wait.flags, 0};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      *made = {write.address, write.value, VGPU_MEMORY_OP_WRITE, 4, write.flags, 0};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      *made = {write.address, write.value64, VGPU_MEMORY_OP_WRITE, 8, write.flags, 0};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_BARRIER:
      *made = {0, 0, VGPU_MEMORY_OP_BARRIER, 0, from.memoryBarrier.flags, 0};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

namespace {

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t bytes, unsigned flags,
                    const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  constexpr unsigned kComparison = 3;
  if (flags & ~(kComparison | unsigned{CU_STREAM_WAIT_VALUE_FLUSH})) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;  // as where the attribute says no
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result == CUDA_SUCCESS) result = check_word(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  const DeviceWork work(call, on, {{address, bytes}});
  return work.status() == CUDA_SUCCESS ? wire::stream_wait_value(call, on, address, value, bytes, flags)
                                       : work.status();
}

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t bytes, unsigned flags,
                     const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  if (flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result == CUDA_SUCCESS) result = check_word(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  const DeviceWork work(call, on, {{address, bytes}});
  return work.status() == CUDA_SUCCESS ? wire::stream_write_value(call, on, address, value, bytes, flags)
                                       : work.status();
}

CUresult one_operation(CUstream stream, const CUstreamBatchMemOpParams& from) {
  vgpu_memory_op operation{};
  if (const CUresult result = wire_operation(from, &operation); result != CUDA_SUCCESS) return result;
  if (operation.kind == VGPU_MEMORY_OP_BARRIER) return CUDA_SUCCESS;  // stream order is a barrier here
  const auto work = operation.kind == VGPU_MEMORY_OP_WAIT ? wait_value : write_value;
  return work(stream, operation.address, operation.value, operation.bytes, operation.flags, "cuStreamBatchMemOp_v2");
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return wait_value(stream, address, value, 4, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return wait_value(stream, address, value, 8, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return write_value(stream, address, value, 4, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return write_value(stream, address, value, 8, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  constexpr unsigned kMost = 256;
  if ((count && !operations) || count > kMost || flags) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = one_operation(stream, operations[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
