// Descriptors of physical memory.
#include <map>
#include <mutex>
#include <string>

#include "guest-driver/libcuda/api/token_file.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/api/vmm_host.h"
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

// What this process has exported. It may import it again, for another device of its own: then that is the same memory.
struct ExportedMemory {
  std::mutex mutex;
  std::map<std::string, uint64_t> handles;  // by key; guarded by mutex
};

ExportedMemory& exported_memory() {
  static ExportedMemory& all = *new ExportedMemory;
  return all;
}

std::string key_text(const vgpu_exchange_key& key) {
  return {reinterpret_cast<const char*>(key.bytes), sizeof(key.bytes)};
}

bool import_own(const vgpu_exchange_key& key, CUmemGenericAllocationHandle* memory) {
  std::lock_guard lock(exported_memory().mutex);
  const auto found = exported_memory().handles.find(key_text(key));
  if (found == exported_memory().handles.end()) return false;
  if (!retain_memory(found->second)) {
    exported_memory().handles.erase(found);
    return false;
  }
  *memory = found->second;
  return true;
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
  const bool host = HostSpace::get().is_memory(memory);
  if (!shareable || flags || (!host && !is_memory(memory))) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_type(type);
  if (result == CUDA_SUCCESS && host) return HostSpace::get().share(memory, static_cast<int*>(shareable));
  SharedMemoryToken token;
  if (result == CUDA_SUCCESS) {
    result = wire::memory_export(call, memory, 0, &token.key, &token.bytes, nullptr);
  }
  if (result != CUDA_SUCCESS) return result;
  token.length = token.bytes;
  {
    std::lock_guard lock(exported_memory().mutex);
    exported_memory().handles[key_text(token.key)] = memory;
  }
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
  const int file = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  result = HostSpace::get().import(file, memory);
  if (result != CUDA_ERROR_NOT_FOUND) return result;
  SharedMemoryToken token;
  if (!read_token_file(file, &token)) return CUDA_ERROR_INVALID_VALUE;
  if (import_own(token.key, memory)) return CUDA_SUCCESS;
  uint64_t handle = 0;
  result = wire::memory_import(call, token.key, &handle, nullptr);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = call.gpu().ordinal;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *memory = handle;
  return adopt_memory(handle, prop);
}

}  // extern "C"
