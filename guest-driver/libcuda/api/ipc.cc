// Handles of memory and events for other processes of the same virtual GPU.
//
// Another process's memory is physical memory that is imported, mapped at a reservation of this process, and unmapped
// again: the calls of cuMemMap and so on do all of it.
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/opened.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct EventToken {
  static constexpr uint64_t kMagic = 0x3174766577617362;  // "bsawevt1"
  uint64_t magic = kMagic;
  vgpu_exchange_key key{};
};
static_assert(sizeof(EventToken) <= CU_IPC_HANDLE_SIZE);

std::string text(const vgpu_exchange_key& key) { return {reinterpret_cast<const char*>(key.bytes), sizeof(key.bytes)}; }

struct Opened {
  std::string key;
  OpenedMemory memory;
  uint64_t references = 1;
};

struct Shared {
  std::mutex mutex;
  std::set<std::string> own;          // keys of what this process gave away; guarded by mutex
  std::map<uint64_t, Opened> opened;  // by the address that the program has; guarded by mutex
};

Shared& shared() {
  static Shared& all = *new Shared;
  return all;
}

template <typename Token, typename Handle>
void put_token(const Token& token, Handle* handle) {
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &token, sizeof(token));
}

template <typename Token, typename Handle>
bool get(const Handle& handle, Token* token) {
  std::memcpy(static_cast<void*>(token), &handle, sizeof(*token));
  return token->magic == Token::kMagic;
}

void remember_own(const vgpu_exchange_key& key) {
  std::lock_guard lock(shared().mutex);
  shared().own.insert(text(key));
}

CUresult open_memory(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  SharedMemoryToken token;
  if (!address || (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) || !get(handle, &token)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Shared& all = shared();
  std::lock_guard lock(all.mutex);  // two threads that open the same thing map it once
  if (all.own.count(text(token.key))) return CUDA_ERROR_INVALID_CONTEXT;  // CUDA does not open a process's own memory
  for (auto& [at, opened] : all.opened) {
    if (opened.key != text(token.key)) continue;
    ++opened.references;
    *address = at;
    return CUDA_SUCCESS;
  }
  Opened opened;
  const CUresult result = import_opened(call, token, &opened.memory);
  if (result != CUDA_SUCCESS) return result;
  opened.key = text(token.key);
  *address = opened.memory.base + token.offset;
  AddressMap::get().add(
      {.base = *address, .bytes = token.length, .kind = RangeKind::kOpened, .context = call.context()});
  all.opened.emplace(*address, std::move(opened));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!can_share_memory()) {
    log_unsupported("sharing memory with other processes on this device");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto range = AddressMap::get().find(address);
  if (!handle || !range || range->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  SharedMemoryToken token;
  const CUresult result = wire::memory_export(call, 0, range->base, &token.key, &token.bytes, &token.offset);
  if (result != CUDA_SUCCESS) return result;
  token.length = range->bytes;
  remember_own(token.key);
  put_token(token, handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Call call;
  if (!call.require_context()) return call.status();
  const CUresult allowed = check_may_wait();
  if (allowed != CUDA_SUCCESS) return allowed;
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  const auto found = all.opened.find(address);
  if (found == all.opened.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references) return CUDA_SUCCESS;
  const Opened gone = std::move(found->second);
  all.opened.erase(found);
  AddressMap::get().remove(address);
  return unmap_opened(call, gone.memory);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  Call call;
  if (!call.require_context()) return call.status();
  const EventRecord* const record = events().find(event);
  if (!handle || !record) return CUDA_ERROR_INVALID_HANDLE;
  // Programs that look at the handle and not at the result find it empty.
  *handle = {};
  if (!(record->flags & CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_HANDLE;
  EventToken token;
  const CUresult result = wire::event_export(call, to_wire(event), &token.key);
  if (result != CUDA_SUCCESS) return result;
  remember_own(token.key);
  put_token(token, handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  Call call;
  if (!call.require_context()) return call.status();
  EventToken token;
  if (!event || !get(handle, &token)) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(shared().mutex);
    if (shared().own.count(text(token.key))) return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto record = std::make_unique<EventRecord>();
  const CUresult result = wire::event_import(call, token.key, &record->handle);
  if (result != CUDA_SUCCESS) return result;
  record->context = call.context();
  record->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  *event = from_wire<CUevent>(record->handle);
  return events().insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

}  // extern "C"
