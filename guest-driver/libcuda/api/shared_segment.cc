// Shared segments (bandsaw_shm.h). An id stands for a name on one virtual GPU; what is attached is memory of the
// runner's, mapped at addresses that are reserved for it, as memory of other processes is.
#include "guest-driver/libcuda/api/bandsaw_shm.h"

#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/opened.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

static_assert(CU_SHM_NAME_MAX == VGPU_SEGMENT_NAME_BYTES && CU_SHM_READ_ONLY == VGPU_SEGMENT_READ_ONLY &&
              CU_SHM_CREATE == VGPU_SEGMENT_CREATE && CU_SHM_EXCLUSIVE == VGPU_SEGMENT_EXCLUSIVE &&
              int{CU_SHM_ACCESS_READ} == int{VGPU_SEGMENT_ACCESS_READ} &&
              int{CU_SHM_ACCESS_READ_WRITE} == int{VGPU_SEGMENT_ACCESS_WRITE});

struct NamedSegment {
  std::string name;
  VirtualGpu* gpu = nullptr;
};

struct AttachedSegment {
  uint64_t memory = 0;  // the runner's handle
  OpenedMemory opened;
};

struct AllSegments {
  std::mutex mutex;
  std::vector<NamedSegment> named;               // by id; guarded by mutex
  std::map<uint64_t, AttachedSegment> attached;  // by address; guarded by mutex
};

AllSegments& all_segments() {
  static AllSegments& all = *new AllSegments;
  return all;
}

int id_of(const NamedSegment& wanted) {
  AllSegments& all = all_segments();
  std::lock_guard lock(all.mutex);
  for (size_t id = 0; id < all.named.size(); ++id) {
    if (all.named[id].name == wanted.name && all.named[id].gpu == wanted.gpu) return static_cast<int>(id);
  }
  all.named.push_back(wanted);
  return static_cast<int>(all.named.size() - 1);
}

bool segment_of(int id, NamedSegment* found) {
  AllSegments& all = all_segments();
  std::lock_guard lock(all.mutex);
  if (id < 0 || static_cast<size_t>(id) >= all.named.size()) return false;
  *found = all.named[static_cast<size_t>(id)];
  return true;
}

CUresult get_segment(int* id, const char* name, size_t bytes, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  const size_t length = name ? strnlen(name, CU_SHM_NAME_MAX) : 0;
  constexpr unsigned kKnown = CU_SHM_CREATE | CU_SHM_EXCLUSIVE;
  if (!id || length == 0 || length >= CU_SHM_NAME_MAX || (flags & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_SHM_CREATE && bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t size = 0;
  uint32_t access = 0;
  const CUresult result = wire::segment_get(call, bytes, flags, name, &size, &access);
  if (result == CUDA_SUCCESS) *id = id_of({name, &call.gpu()});
  return result;
}

CUresult map_segment(Call& call, const NamedSegment& segment, unsigned flags, AttachedSegment* made) {
  uint64_t bytes = 0;
  uint32_t access = 0;
  CUresult result = wire::segment_attach(call, flags, segment.name.c_str(), &made->memory, &bytes, &access);
  if (result != CUDA_SUCCESS) return result;
  const bool writes = access == VGPU_SEGMENT_ACCESS_WRITE && !(flags & CU_SHM_READ_ONLY);
  result = map_opened(call, made->memory, bytes, &made->opened,
                      writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ);
  if (result != CUDA_SUCCESS) wire::segment_detach(call, made->memory);
  return result;
}

// The memory may be revoked already: then nothing of it is mapped, and only its addresses are given back.
CUresult unmap_segment(Call& call, const AttachedSegment& gone) {
  CUresult result = wire::context_synchronize(call, call.context());
  const CUresult detached = wire::segment_detach(call, gone.memory);
  if (result == CUDA_SUCCESS) result = detached;
  const CUresult freed = wire::address_free(call, gone.opened.base, gone.opened.bytes);
  return result == CUDA_SUCCESS ? freed : result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuShmGet(int* id, int key, size_t bytes, unsigned flags) {
  if (key < 0) return CUDA_ERROR_INVALID_VALUE;
  return get_segment(id, ("shm-" + std::to_string(key)).c_str(), bytes, flags);
}

CUresult cuShmGetNamed(int* id, const char* name, size_t bytes, unsigned flags) {
  return get_segment(id, name, bytes, flags);
}

CUresult cuShmAt(CUdeviceptr* address, int id, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  NamedSegment segment;
  if (!address || (flags & ~unsigned{CU_SHM_READ_ONLY}) || !segment_of(id, &segment)) return CUDA_ERROR_INVALID_VALUE;
  if (segment.gpu != &call.gpu()) return CUDA_ERROR_INVALID_CONTEXT;
  AttachedSegment made;
  const CUresult result = map_segment(call, segment, flags, &made);
  if (result != CUDA_SUCCESS) return result;
  *address = made.opened.base;
  AddressMap::get().add(
      {.base = *address, .bytes = made.opened.bytes, .kind = RangeKind::kOpened, .context = call.context()});
  AllSegments& all = all_segments();
  std::lock_guard lock(all.mutex);
  all.attached[*address] = made;
  return CUDA_SUCCESS;
}

CUresult cuShmDt(CUdeviceptr address) {
  Call call;
  if (!call.require_context()) return call.status();
  const CUresult allowed = check_may_wait();
  if (allowed != CUDA_SUCCESS) return allowed;
  AttachedSegment gone;
  {
    AllSegments& all = all_segments();
    std::lock_guard lock(all.mutex);
    const auto found = all.attached.find(address);
    if (found == all.attached.end()) return CUDA_ERROR_INVALID_VALUE;
    gone = found->second;
    all.attached.erase(found);
  }
  AddressMap::get().remove(address);
  if (VirtualGpu* const gpu = gpu_of_address(address)) call.go_to(*gpu);
  return unmap_segment(call, gone);
}

CUresult cuShmCtl(int id, CUshmCommand command, CUshmInfo* info) {
  Call call;
  if (call.failed()) return call.status();
  NamedSegment segment;
  if (!segment_of(id, &segment)) return CUDA_ERROR_INVALID_VALUE;
  call.go_to(*segment.gpu);
  if (command == CU_SHM_REMOVE && !info) return wire::segment_remove(call, segment.name.c_str());
  if (command != CU_SHM_STAT || !info) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = 0;
  uint32_t access = 0;
  const CUresult result = wire::segment_get(call, 0, 0, segment.name.c_str(), &bytes, &access);
  if (result != CUDA_SUCCESS) return result;
  std::memset(info, 0, sizeof(*info));
  segment.name.copy(info->name, CU_SHM_NAME_MAX - 1);
  info->bytes = bytes;
  info->access = static_cast<CUshmAccess>(access);
  return CUDA_SUCCESS;
}

}  // extern "C"
