// External memory: descriptors of cuMemExportToShareableHandle, as an interface that knows no CUDA would hand them
// over. Those of graphics interfaces name memory that no virtual GPU has.
#include <unistd.h>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/opened.h"
#include "guest-driver/libcuda/api/token_file.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct ExternalRecord {
  uint64_t handle = 0;  // of the memory
  uint64_t bytes = 0;   // of the memory
  uint64_t used = 0;    // of these, those that the program named
};

HandleTable<ExternalRecord>& external_memories() {
  static HandleTable<ExternalRecord>& table = *new HandleTable<ExternalRecord>;
  return table;
}

CUresult check_external_desc(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC& about) {
  if (about.type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) {
    log_unsupported("external memory that is not a file descriptor");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!about.size || (about.flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED})) return CUDA_ERROR_INVALID_VALUE;
  return can_share_memory() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* about) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!memory || !about) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_external_desc(*about); result != CUDA_SUCCESS) return result;
  SharedMemoryToken token;
  if (!read_token_file(about->handle.fd, &token)) return CUDA_ERROR_INVALID_HANDLE;
  auto record = std::make_unique<ExternalRecord>();
  record->used = about->size;
  CUresult result = wire::memory_import(call, token.key, &record->handle, &record->bytes);
  if (result != CUDA_SUCCESS) return result;
  if (record->used > record->bytes) {
    wire::memory_release(call, record->handle);
    return CUDA_ERROR_INVALID_VALUE;
  }
  close(about->handle.fd);  // it is CUDA's once it is imported
  *memory = from_wire<CUexternalMemory>(record->handle);
  return external_memories().insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!address || !buffer || buffer->flags || !buffer->size) return CUDA_ERROR_INVALID_VALUE;
  const ExternalRecord* const record = external_memories().find(memory);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  if (buffer->size > record->used || buffer->offset > record->used - buffer->size) return CUDA_ERROR_INVALID_VALUE;
  OpenedMemory opened;
  const CUresult result = map_opened(call, record->handle, record->bytes, &opened);
  if (result != CUDA_SUCCESS) return result;
  *address = opened.base + buffer->offset;
  note_opened({.base = *address, .bytes = buffer->size, .kind = RangeKind::kDevice, .context = call.context()}, opened);
  return CUDA_SUCCESS;
}

// Buffers that are mapped stay until cuMemFree.
CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  Call call;
  if (call.failed()) return call.status();
  if (!external_memories().find(memory)) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t handle = to_wire(memory);
  external_memories().remove(handle);
  return wire::memory_release(call, handle);
}

}  // extern "C"
