// Descriptors of physical memory.
#include "guest-driver/libcuda/api/token_file.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

CUresult check_type(CUmemAllocationHandleType type) {
  if (type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && can_share_memory()) return CUDA_SUCCESS;
  log_unsupported("shareable handles of this kind");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle memory,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!shareable || flags || !is_memory(memory)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_type(type);
  SharedMemoryToken token;
  if (result == CUDA_SUCCESS) {
    result = wire::memory_export(call, memory, 0, &token.key, &token.bytes, nullptr);
  }
  if (result != CUDA_SUCCESS) return result;
  token.length = token.bytes;
  const int file = make_token_file("bandsaw-memory", token);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = file;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* memory, void* shareable,
                                        CUmemAllocationHandleType type) {
  Call call;
  if (call.failed()) return call.status();
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_type(type);
  if (result != CUDA_SUCCESS) return result;
  SharedMemoryToken token;
  if (!read_token_file(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), &token))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  result = wire::memory_import(call, token.key, &handle, nullptr);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *memory = handle;
  return adopt_memory(handle, prop);
}

}  // extern "C"
