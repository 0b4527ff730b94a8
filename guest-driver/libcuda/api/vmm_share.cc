// Descriptors of physical memory. A guest's kernel knows nothing of a GPU's memory, so the descriptor is a sealed file
// that names it: who has the file can have the memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// -1: no room for one more.
int make_file(const SharedMemoryToken& token) {
  const int file = memfd_create("bandsaw-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (write(file, &token, sizeof(token)) == static_cast<ssize_t>(sizeof(token)) &&
      fcntl(file, F_ADD_SEALS, kSeals) == 0) {
    return file;
  }
  close(file);
  return -1;
}

bool read_file(int file, SharedMemoryToken* token) {
  return fcntl(file, F_GET_SEALS) == kSeals &&
         pread(file, token, sizeof(*token), 0) == static_cast<ssize_t>(sizeof(*token)) &&
         token->magic == SharedMemoryToken::kMagic;
}

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
  const int file = make_file(token);
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
  if (!read_file(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), &token)) return CUDA_ERROR_INVALID_VALUE;
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
