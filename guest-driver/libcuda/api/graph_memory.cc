// The memory that allocation nodes of graphs have together.
#include <cstring>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/wire_client.h"

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (!value || attribute < 0 || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  Call call(gpu_at(device));
  uint64_t bytes = 0;
  const CUresult result = wire::graph_memory_get(call, attribute, &bytes);
  if (result == CUDA_SUCCESS) std::memcpy(value, &bytes, sizeof(bytes));
  return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  uint64_t bytes = 0;
  if (value) std::memcpy(&bytes, value, sizeof(bytes));
  if (!value || !high || bytes) return CUDA_ERROR_INVALID_VALUE;  // a high-water mark can only be reset
  Call call(gpu_at(device));
  return wire::graph_memory_reset(call, attribute);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  Call call(gpu_at(device));
  return wire::graph_memory_trim(call);
}

}  // extern "C"
