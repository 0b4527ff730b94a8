#include "guest-driver/libcuda/api/peer.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

enum class Reach : uint8_t { kUnknown, kYes, kNo };

struct PeerRange {
  uint64_t whole = 0;    // where the memory begins that holds the allocation
  uint64_t context = 0;  // of the allocation
};
struct PeerMapping {
  uint64_t bytes = 0;
  uint64_t ranges = 0;  // allocations in it
};

struct PeerState {
  std::mutex mutex;                                          // guards the following
  Reach reach[kGpusMax][kGpusMax]{};                         // by part: who, whose
  std::set<std::pair<Context*, Context*>> enabled;           // who, whose
  std::map<std::pair<uint32_t, uint64_t>, PeerRange> shown;  // by the part that has it, and address
  std::map<std::pair<uint32_t, uint64_t>, PeerMapping> mapped;
  std::atomic<bool> used{false};  // something was enabled once
};

PeerState& peers() {
  static PeerState& all = *new PeerState;
  return all;
}

bool own_addresses(const Call& call, uint64_t address) { return gpu_of_address(address) == &call.gpu(); }

// Some memory of `other` is lent to `gpu`, and given back.
CUresult try_reach(VirtualGpu& gpu, VirtualGpu& other) {
  Call owner(other), call(gpu);
  if (owner.failed()) return owner.status();
  uint64_t bytes = 0, memory = 0, address = 0;
  vgpu_memory_props made{};
  vgpu_exchange_key key{};
  CUresult result = wire::memory_granularity(owner, {}, CU_MEM_ALLOC_GRANULARITY_MINIMUM, &bytes);
  if (result == CUDA_SUCCESS) result = wire::memory_create(owner, {}, bytes, &memory, &made);
  if (result == CUDA_SUCCESS) result = wire::address_reserve(owner, bytes, 0, &address);
  if (result == CUDA_SUCCESS) result = wire::memory_lend(owner, memory, 0, &key, nullptr, nullptr);
  if (result == CUDA_SUCCESS) {
    result = map_borrowed(call, key, address, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result == CUDA_SUCCESS) result = unmap_borrowed(call, address, bytes);
  }
  if (address) wire::address_free(owner, address, bytes);
  if (memory) wire::memory_release(owner, memory);
  return result;
}

// With the lock held, as the following.
bool find_reach(VirtualGpu& gpu, VirtualGpu& other) {
  Reach& known = peers().reach[gpu.part][other.part];
  if (known != Reach::kUnknown) return known == Reach::kYes;
  const CUresult result = try_reach(gpu, other);
  if (result == CUDA_SUCCESS) {
    known = Reach::kYes;
  } else if (result != CUDA_ERROR_OUT_OF_MEMORY && gpu.health() == CUDA_SUCCESS && other.health() == CUDA_SUCCESS) {
    known = Reach::kNo;
  }
  if (result != CUDA_SUCCESS) {
    log(Level::kInfo, "device %d does not reach the memory of device %d: error %d", gpu.ordinal, other.ordinal, result);
  }
  return result == CUDA_SUCCESS;
}

bool may_access(const VirtualGpu& gpu, const VirtualGpu& other) {
  for (const auto& [context, peer] : peers().enabled) {
    if (context->gpu == &gpu && peer->gpu == &other) return true;
  }
  return false;
}

CUresult show_range(VirtualGpu& gpu, const Range& range) {
  if (peers().shown.count({gpu.part, range.base})) return CUDA_SUCCESS;
  Call owner(gpu_of(range)), call(gpu);
  owner.set_context(range.context);
  vgpu_exchange_key key{};
  uint64_t bytes = 0, offset = 0;
  CUresult result = owner.status();
  if (result == CUDA_SUCCESS) result = wire::memory_lend(owner, 0, range.base, &key, &bytes, &offset);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t whole = range.base - offset;
  PeerMapping& mapping = peers().mapped[{gpu.part, whole}];
  if (!mapping.ranges) result = map_borrowed(call, key, whole, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result != CUDA_SUCCESS) {
    peers().mapped.erase({gpu.part, whole});
    return result;
  }
  mapping.bytes = bytes;
  ++mapping.ranges;
  peers().shown[{gpu.part, range.base}] = {whole, range.context};
  return CUDA_SUCCESS;
}

using ShownAt = std::map<std::pair<uint32_t, uint64_t>, PeerRange>::iterator;

ShownAt hide_range(ShownAt shown, bool wait) {
  const uint32_t part = shown->first.first;
  const auto mapped = peers().mapped.find({part, shown->second.whole});
  const auto next = peers().shown.erase(shown);
  VirtualGpu* const gpu = gpu_of_part(part);
  if (!gpu || mapped == peers().mapped.end() || --mapped->second.ranges) return next;
  Call call(*gpu);
  if (wait && any_context(*gpu)) wire::settle(call);  // its work may use the memory; other threads may be capturing
  // Where the device that lent it is gone, it is unmapped already.
  unmap_borrowed(call, mapped->first.second, mapped->second.bytes);
  peers().mapped.erase(mapped);
  return next;
}

template <typename Gone>
void hide_if(const Gone& gone, bool wait = true) {
  for (auto next = peers().shown.begin(); next != peers().shown.end();) {
    next = gone(*next) ? hide_range(next, wait) : std::next(next);
  }
}

// What this device no longer may access.
void hide_disabled(const VirtualGpu& gpu, const VirtualGpu& other) {
  if (may_access(gpu, other)) return;
  hide_if(
      [&](const auto& shown) { return shown.first.first == gpu.part && gpu_of_address(shown.first.second) == &other; });
}

void forget_peers(Context* context) {
  if (!peers().used) return;
  std::lock_guard lock(peers().mutex);
  hide_if([context](const auto& shown) { return shown.second.context == context->handle; });
  std::vector<std::pair<Context*, Context*>> gone;
  for (const auto& pair : peers().enabled) {
    if (pair.first == context || pair.second == context) gone.push_back(pair);
  }
  for (const auto& [who, whose] : gone) {
    peers().enabled.erase({who, whose});
    hide_disabled(*who->gpu, *whose->gpu);
  }
}

}  // namespace

CUresult map_borrowed(Call& call, const vgpu_exchange_key& key, uint64_t address, uint64_t bytes, uint64_t offset,
                      uint32_t access) {
  uint64_t memory = 0, whole = 0;
  CUresult result = wire::memory_borrow(call, key, &memory, &whole);
  if (result != CUDA_SUCCESS) return result;
  const bool own = own_addresses(call, address);
  if (!own) result = wire::address_adopt(call, address, bytes);
  const bool adopted = !own && result == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    result = wire::memory_map(call, address, bytes, offset, memory);
    if (result == CUDA_SUCCESS) {
      result = wire::memory_set_access(call, address, bytes, access);
      if (result != CUDA_SUCCESS) wire::memory_unmap(call, address, bytes);
    }
  }
  if (result != CUDA_SUCCESS && adopted) wire::address_free(call, address, bytes);
  wire::memory_release(call, memory);  // the mapping holds it
  return result;
}

CUresult unmap_borrowed(Call& call, uint64_t address, uint64_t bytes) {
  const CUresult result = wire::memory_unmap(call, address, bytes);
  const CUresult freed = own_addresses(call, address) ? CUDA_SUCCESS : wire::address_free(call, address, bytes);
  return result == CUDA_SUCCESS ? freed : result;
}

bool can_reach(VirtualGpu& gpu, VirtualGpu& other) {
  std::lock_guard lock(peers().mutex);
  return &gpu != &other && find_reach(gpu, other);
}

CUresult enable_peer(Context& context, Context& peer) {
  static const bool hooked = (on_context_ended(forget_peers), true);
  static_cast<void>(hooked);
  std::lock_guard lock(peers().mutex);
  if (context.gpu == peer.gpu || !find_reach(*context.gpu, *peer.gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const bool first = !may_access(*context.gpu, *peer.gpu);
  if (!peers().enabled.insert({&context, &peer}).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  peers().used = true;
  if (!first) return CUDA_SUCCESS;
  const auto ranges = AddressMap::get().select(
      [&](const Range& range) { return range.kind == RangeKind::kDevice && &gpu_of(range) == peer.gpu; });
  for (const Range& range : ranges) {
    const CUresult result = show_range(*context.gpu, range);
    if (result == CUDA_SUCCESS || !AddressMap::get().find(range.base)) continue;
    peers().enabled.erase({&context, &peer});
    hide_disabled(*context.gpu, *peer.gpu);
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult disable_peer(Context& context, Context& peer) {
  std::lock_guard lock(peers().mutex);
  if (!peers().enabled.erase({&context, &peer})) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  hide_disabled(*context.gpu, *peer.gpu);
  return CUDA_SUCCESS;
}

CUresult show_to_peers(const Range& range) {
  if (!peers().used) return CUDA_SUCCESS;
  std::lock_guard lock(peers().mutex);
  VirtualGpu& owner = gpu_of(range);
  for (int i = 0; i < gpu_count(); ++i) {
    VirtualGpu& gpu = gpu_at(i);
    if (&gpu == &owner || gpu.health() != CUDA_SUCCESS || !may_access(gpu, owner)) continue;
    if (const CUresult result = show_range(gpu, range); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void hide_from_peers(const Range& range) {
  if (!peers().used) return;
  std::lock_guard lock(peers().mutex);
  hide_if([&](const auto& shown) { return shown.first.second == range.base; });
}

CUresult show_on(VirtualGpu& gpu, const Range& range) {
  std::lock_guard lock(peers().mutex);
  peers().used = true;
  return show_range(gpu, range);
}

void hide_on(const VirtualGpu& gpu, const Range& range) {
  if (!peers().used) return;
  std::lock_guard lock(peers().mutex);
  hide_if([&](const auto& shown) { return shown.first.first == gpu.part && shown.first.second == range.base; }, false);
}

bool is_shown(const VirtualGpu& gpu, const Range& range) {
  if (!peers().used) return false;
  std::lock_guard lock(peers().mutex);
  return peers().shown.count({gpu.part, range.base});
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

namespace {

// Two different devices.
CUresult check_pair(CUdevice one, CUdevice other) {
  if (const CUresult result = check_device(one); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_device(other); result != CUDA_SUCCESS) return result;
  return one == other ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Where device and host share one memory and its caches, so do two devices. What a link between two GPUs does is not
// known here.
bool has_peer_atomics(CUdevice device, CUdevice other) {
  constexpr auto kAsOnHost = CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED;
  return device_attribute(kAsOnHost, device) && device_attribute(kAsOnHost, other);
}

CUresult contexts_of_peers(CUcontext peer_context, Context** context, Context** peer) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  *context = current_context();
  *peer = peer_context ? from_program(peer_context) : nullptr;
  if (!*context || !*peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(*context)->alive() || !(*peer)->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const CUresult result = (*context)->gpu->health();
  return result == CUDA_SUCCESS ? (*peer)->gpu->health() : result;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (!canAccessPeer) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_device(peerDev); result != CUDA_SUCCESS) return result;
  *canAccessPeer = can_reach(gpu_at(dev), gpu_at(peerDev));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                         CUdevice dstDevice) {
  if (!value || attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check_pair(srcDevice, dstDevice); result != CUDA_SUCCESS) return result;
  const bool reach = can_reach(gpu_at(srcDevice), gpu_at(dstDevice));
  *value = 0;
  if (attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED) *value = reach;
  if (attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
    *value = reach && has_peer_atomics(srcDevice, dstDevice);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                                  unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
  if (!capabilities || !operations || !count) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_pair(srcDevice, dstDevice); result != CUDA_SUCCESS) return result;
  const bool native = has_peer_atomics(srcDevice, dstDevice) && can_reach(gpu_at(srcDevice), gpu_at(dstDevice));
  for (unsigned i = 0; i < count; i++) {
    if (operations[i] < 0 || operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    capabilities[i] = native ? native_atomics(operations[i]) : 0;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  if (Flags) return CUDA_ERROR_INVALID_VALUE;
  Context *context = nullptr, *peer = nullptr;
  const CUresult result = contexts_of_peers(peerContext, &context, &peer);
  if (result == CUDA_SUCCESS && context == peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return result == CUDA_SUCCESS ? enable_peer(*context, *peer) : result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext) {
  Context *context = nullptr, *peer = nullptr;
  const CUresult result = contexts_of_peers(peerContext, &context, &peer);
  if (result == CUDA_SUCCESS && context == peer) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return result == CUDA_SUCCESS ? disable_peer(*context, *peer) : result;
}

}  // extern "C"
