// Virtual memory management: reserved addresses, physical memory, and the one mapped at the other.
#include "guest-driver/libcuda/api/vmm.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/host_file.h"
#include "guest-driver/libcuda/api/peer.h"
#include "guest-driver/libcuda/api/vmm_host.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Its handle stays on the wire until the program has released it and nothing is mapped: then cuMemRetainAllocation-
// Handle finds the same handle again.
struct MemoryRecord {
  uint64_t handle = 0;
  uint64_t references = 1, mappings = 0;  // guarded by Memories::mutex
  CUmemAllocationProp prop{};
};

// One mapping, in the runners of its memory's device and of those that may access it.
struct MappingRecord {
  uint64_t bytes = 0, offset = 0;
  uint64_t memory = 0;
  uint32_t parts = 0;  // a bit for each device that has it mapped
};

struct Memories {
  HandleTable<MemoryRecord> table;
  std::mutex mutex;
  std::map<uint64_t, MappingRecord> mappings;  // by address; guarded by mutex
  std::map<uint64_t, uint64_t> reservations;   // sizes by address; guarded by mutex
};

Memories& memories() {
  static Memories& all = *new Memories;
  return all;
}

CUresult check_prop(const CUmemAllocationProp& prop) {
  if (prop.type == CU_MEM_ALLOCATION_TYPE_INVALID || prop.location.type == CU_MEM_LOCATION_TYPE_INVALID) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (is_host_location(prop.location.type)) return check_host_prop(prop);
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED || prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    log_unsupported("cuMemCreate of managed memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop.win32HandleMetaData) return CUDA_ERROR_INVALID_VALUE;
  const bool exported = prop.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (exported || prop.allocFlags.gpuDirectRDMACapable || prop.allocFlags.usage) {
    log_unsupported("cuMemCreate for other handles than descriptors, peer DMA or tiles");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return check_device(prop.location.id);
}

vgpu_memory_props wire_props(const CUmemAllocationProp& prop) { return {prop.allocFlags.compressionType, 0}; }

// Releases the memory on the host when nobody holds it any more. Called with the lock held.
CUresult drop_if_unused(Call& call, MemoryRecord* record) {
  if (record->references || record->mappings) return CUDA_SUCCESS;
  const uint64_t handle = record->handle;
  const CUresult result = wire::memory_release(call, handle);
  memories().table.remove(handle);
  return result;
}

// Reserved addresses are a device's.
void go_to_owner(Call& call, uint64_t address) {
  if (VirtualGpu* const gpu = gpu_of_address(address)) call.go_to(*gpu);
}

uint32_t bit_of(const VirtualGpu& gpu) { return 1u << gpu.part; }

// With the lock held, as the following.
std::optional<Reservation> reserved_around(uint64_t address) {
  const auto next = memories().reservations.upper_bound(address);
  if (next == memories().reservations.begin()) return std::nullopt;
  const auto& [base, size] = *std::prev(next);
  return address - base <= size ? std::optional(Reservation{base, size}) : std::nullopt;
}

bool is_reserved(uint64_t address, uint64_t bytes) {
  const auto around = reserved_around(address);
  return around && bytes <= around->bytes - (address - around->base);
}

using MappingAt = std::map<uint64_t, MappingRecord>::iterator;

// All mappings of a range. False: it cuts one.
bool find_within(uint64_t address, uint64_t bytes, std::vector<MappingAt>* found) {
  auto& all = memories().mappings;
  auto next = all.lower_bound(address);
  if (next != all.begin()) {
    const auto& [base, before] = *std::prev(next);
    if (address - base < before.bytes) return false;
  }
  for (; next != all.end() && next->first - address < bytes; ++next) {
    if (next->second.bytes > bytes - (next->first - address)) return false;
    found->push_back(next);
  }
  return true;
}

// Those that cover all of [address, address + bytes).
bool find_mappings(uint64_t address, uint64_t bytes, std::vector<MappingAt>* found) {
  if (!find_within(address, bytes, found) || found->empty()) return false;
  uint64_t covered = 0;
  for (const MappingAt& at : *found) covered += at->second.bytes;
  return covered == bytes;
}

// In the runner of the memory's own device, which need not be that of the addresses.
CUresult map_at_home(Call& call, uint64_t address, const MappingRecord& mapping) {
  VirtualGpu* const home = gpu_of_part(part_of_handle(mapping.memory));
  if (!home) return CUDA_ERROR_INVALID_VALUE;
  call.go_to(*home);
  const bool apart = gpu_of_address(address) != home;
  CUresult result = apart ? wire::address_adopt(call, address, mapping.bytes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  result = wire::memory_map(call, address, mapping.bytes, mapping.offset, mapping.memory);
  if (result != CUDA_SUCCESS && apart) wire::address_free(call, address, mapping.bytes);
  return result;
}

// From all devices that have it.
CUresult unmap_everywhere(uint64_t address, const MappingRecord& mapping) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t part = 0; part < kGpusMax; ++part) {
    VirtualGpu* const gpu = mapping.parts & 1u << part ? gpu_of_part(part) : nullptr;
    if (!gpu) continue;
    const bool home = part == part_of_handle(mapping.memory);
    Call there(*gpu);
    const CUresult one = unmap_borrowed(there, address, mapping.bytes);
    if (home && result == CUDA_SUCCESS) result = one;  // elsewhere it may be gone already, with its device
  }
  return result;
}

CUresult set_access_on(VirtualGpu& gpu, uint64_t address, MappingRecord* mapping, uint32_t access) {
  Call there(gpu);
  if (there.failed()) return there.status();
  if (mapping->parts & bit_of(gpu)) return wire::memory_set_access(there, address, mapping->bytes, access);
  if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_SUCCESS;
  VirtualGpu* const home = gpu_of_part(part_of_handle(mapping->memory));
  if (!home) return CUDA_ERROR_INVALID_VALUE;
  Call owner(*home);
  vgpu_exchange_key key{};
  CUresult result = wire::memory_lend(owner, mapping->memory, 0, &key, nullptr, nullptr);
  if (result == CUDA_SUCCESS) {
    result = map_borrowed(there, key, address, mapping->bytes, mapping->offset, access);
  }
  if (result == CUDA_SUCCESS) mapping->parts |= bit_of(gpu);
  return result;
}

CUresult set_host_space_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc* access, size_t count) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = HostSpace::get().set_access(address, bytes, access[i]);
  }
  return result;
}

}  // namespace

CUresult adopt_memory(uint64_t handle, const CUmemAllocationProp& prop) {
  auto record = std::make_unique<MemoryRecord>();
  record->handle = handle;
  record->prop = prop;
  return memories().table.insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

bool retain_memory(uint64_t handle) {
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(handle);
  if (!record || (!record->references && !record->mappings)) return false;
  ++record->references;
  return true;
}

bool is_mapped_on(const VirtualGpu& gpu, const Range& range) {
  std::lock_guard lock(memories().mutex);
  const auto found = memories().mappings.find(range.base);
  return found != memories().mappings.end() && found->second.parts & bit_of(gpu);
}

std::optional<Reservation> reservation_around(uint64_t address) {
  std::lock_guard lock(memories().mutex);
  return reserved_around(address);
}

bool is_memory(uint64_t handle) { return memories().table.find(handle) != nullptr; }

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

// The wanted address is ignored, which NVIDIA's driver may do too.
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || bytes % kPage || (alignment & (alignment - 1)) || flags) return CUDA_ERROR_INVALID_VALUE;
  const CUresult host = HostSpace::get().reserve(bytes, alignment, address);
  if (host != CUDA_ERROR_NOT_FOUND) return host;
  uint64_t base = 0;
  const CUresult result = wire::address_reserve(call, bytes, alignment, &base);
  if (result != CUDA_SUCCESS) return result;
  *address = base;
  std::lock_guard lock(memories().mutex);
  memories().reservations[base] = bytes;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (HostSpace::get().reserves(address)) return HostSpace::get().free(address, bytes);
  go_to_owner(call, address);
  std::lock_guard lock(memories().mutex);
  const auto mapping = memories().mappings.lower_bound(address);
  if (mapping != memories().mappings.end() && mapping->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::address_free(call, address, bytes);
  if (result == CUDA_SUCCESS) memories().reservations.erase(address);
  return result;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  Call call;
  if (call.failed()) return call.status();
  if (!bytes || !prop) return CUDA_ERROR_INVALID_VALUE;
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = check_prop(*prop);
  if (result == CUDA_SUCCESS && is_host_location(prop->location.type)) {
    *bytes = kHostGranularity;
    return CUDA_SUCCESS;
  }
  uint64_t size = 0;
  if (result == CUDA_SUCCESS) call.go_to(gpu_at(prop->location.id));
  if (result == CUDA_SUCCESS) result = wire::memory_granularity(call, wire_props(*prop), option, &size);
  if (result == CUDA_SUCCESS) *bytes = size;
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* memory, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!memory || !bytes || !prop || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_prop(*prop);
  if (result != CUDA_SUCCESS) return result;
  if (is_host_location(prop->location.type)) return HostSpace::get().create(bytes, *prop, memory);
  uint64_t handle = 0;
  call.go_to(gpu_at(prop->location.id));
  vgpu_memory_props made{};
  result = wire::memory_create(call, wire_props(*prop), bytes, &handle, &made);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp is = *prop;
  is.allocFlags.compressionType = static_cast<unsigned char>(made.compression);
  *memory = handle;
  return adopt_memory(handle, is);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  Call call;
  if (call.failed()) return call.status();
  if (HostSpace::get().is_memory(memory)) return HostSpace::get().release(memory);
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(memory);
  if (!record || !record->references) return CUDA_ERROR_INVALID_VALUE;
  --record->references;
  return drop_if_unused(call, record);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* memory, void* address) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  const auto range = AddressMap::get().find(reinterpret_cast<uint64_t>(address));
  if (!memory || !range) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == RangeKind::kHost && range->owner) {
    *memory = range->owner;
    return HostSpace::get().retain(range->owner);
  }
  if (range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(range->owner);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  ++record->references;
  *memory = record->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle memory) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (prop && HostSpace::get().is_memory(memory)) return HostSpace::get().properties(memory, prop);
  const MemoryRecord* const record = memories().table.find(memory);
  if (!prop || !record) return CUDA_ERROR_INVALID_VALUE;
  *prop = record->prop;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                  unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || flags) return CUDA_ERROR_INVALID_VALUE;
  if (HostSpace::get().is_memory(memory)) return HostSpace::get().map(address, bytes, offset, memory);
  if (HostSpace::get().reserves(address)) {
    log_unsupported("device memory at addresses that were reserved for host memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(memory);
  if (!record || !record->references || !is_reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  MappingRecord mapping{.bytes = bytes, .offset = offset, .memory = memory};
  mapping.parts = 1u << part_of_handle(memory);
  const CUresult result = map_at_home(call, address, mapping);
  if (result != CUDA_SUCCESS) return result;
  ++record->mappings;  // from now on it stays when the program releases it
  memories().mappings[address] = mapping;
  AddressMap::get().add({.base = address, .bytes = bytes, .kind = RangeKind::kMapped, .owner = memory});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  if (HostSpace::get().reserves(address)) return HostSpace::get().unmap(address, bytes);
  std::lock_guard lock(memories().mutex);
  std::vector<MappingAt> found;
  // As with NVIDIA's driver, there may be nothing in a part of it.
  if (!bytes || !is_reserved(address, bytes) || !find_within(address, bytes, &found)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (const MappingAt at : found) {
    const CUresult unmapped = unmap_everywhere(at->first, at->second);
    AddressMap::get().remove(at->first);
    MemoryRecord* const record = memories().table.find(at->second.memory);
    if (record) --record->mappings;
    const CUresult dropped = record ? drop_if_unused(call, record) : CUDA_SUCCESS;
    for (const CUresult one : {unmapped, dropped}) {
      if (result == CUDA_SUCCESS) result = one;
    }
    memories().mappings.erase(at);
  }
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || !access || !count) return CUDA_ERROR_INVALID_VALUE;
  if (HostSpace::get().reserves(address)) return set_host_space_access(address, bytes, access, count);
  std::lock_guard lock(memories().mutex);
  std::vector<MappingAt> found;
  if (!find_mappings(address, bytes, &found)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_device(access[i].location.id);
    for (const MappingAt at : found) {
      if (result != CUDA_SUCCESS) return result;
      result = set_access_on(gpu_at(access[i].location.id), at->first, &at->second, access[i].flags);
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  Call call;
  if (call.failed()) return call.status();
  if (flags && location && HostSpace::get().reserves(address)) {
    return HostSpace::get().access(address, *location, flags);
  }
  if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_device(location->id);
  uint32_t access = 0;
  VirtualGpu* const home = gpu_of_address(address);
  const auto range = AddressMap::get().find(address);
  if (result == CUDA_SUCCESS) {
    VirtualGpu& gpu = gpu_at(location->id);
    const bool there = range && range->kind == RangeKind::kMapped ? is_mapped_on(gpu, *range) : &gpu == home;
    call.go_to(gpu);
    if (there) result = wire::memory_get_access(call, address, &access);
  }
  if (result == CUDA_SUCCESS) *flags = access;
  return result;
}

}  // extern "C"
