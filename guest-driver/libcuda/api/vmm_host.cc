#include "guest-driver/libcuda/api/vmm_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/host_file.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/numa.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kHandleTag = 1ull << 63;  // no handle of a runner's has it

struct HostMemory {
  int file = -1;
  uint64_t bytes = 0;
  uint64_t references = 1, mappings = 0;
  CUmemAllocationProp prop{};
};

struct HostMapping {
  uint64_t bytes = 0, offset = 0, memory = 0;
  std::array<unsigned, kGpusMax> device_access{};  // CUmemAccess_flags by part
  unsigned host_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool shown = false;      // devices see it
  bool read_only = false;  // ... to read
};

struct HostState {
  std::mutex mutex;  // guards the following
  uint64_t next = kHandleTag | 1;
  std::map<uint64_t, HostMemory> memories;
  std::map<uint64_t, uint64_t> reservations;  // sizes by address
  std::map<uint64_t, HostMapping> mappings;   // by address
};

HostState& host_state() {
  static HostState& all = *new HostState;
  return all;
}

void* place_of(uint64_t address) { return reinterpret_cast<void*>(address); }

int node_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? location.id : kAnyNode;
}

CUmemAllocationProp prop_of_node(int node) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = node == kAnyNode ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  prop.location.id = std::max(node, 0);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// The following are called with the lock held.

HostMemory* find_memory(uint64_t handle) {
  const auto found = host_state().memories.find(handle);
  return found == host_state().memories.end() ? nullptr : &found->second;
}

uint64_t keep_memory(int file, uint64_t bytes, const CUmemAllocationProp& prop) {
  const uint64_t handle = host_state().next++;
  host_state().memories[handle] = {.file = file, .bytes = bytes, .references = 1, .mappings = 0, .prop = prop};
  return handle;
}

void drop_memory_if_unused(uint64_t handle) {
  const auto found = host_state().memories.find(handle);
  if (found->second.references || found->second.mappings) return;
  close(found->second.file);
  host_state().memories.erase(found);
}

std::map<uint64_t, uint64_t>::iterator reservation_of(uint64_t address, uint64_t bytes) {
  auto& all = host_state().reservations;
  const auto next = all.upper_bound(address);
  if (next == all.begin()) return all.end();
  const auto found = std::prev(next);
  const uint64_t offset = address - found->first;
  return offset < found->second && bytes <= found->second - offset ? found : all.end();
}

using HostMappingAt = std::map<uint64_t, HostMapping>::iterator;

bool is_free(uint64_t address, uint64_t bytes) {
  const auto next = host_state().mappings.lower_bound(address);
  if (next != host_state().mappings.end() && next->first - address < bytes) return false;
  return next == host_state().mappings.begin() || address - std::prev(next)->first >= std::prev(next)->second.bytes;
}

// Mappings that cover exactly [address, address + bytes).
bool find_host_mappings(uint64_t address, uint64_t bytes, std::vector<HostMappingAt>* found) {
  auto& all = host_state().mappings;
  uint64_t at = address;
  for (auto next = all.find(address); at - address < bytes; ++next) {
    if (next == all.end() || next->first != at || next->second.bytes > bytes - (at - address)) return false;
    at += next->second.bytes;
    found->push_back(next);
  }
  return !found->empty();
}

int protection_of(unsigned access) {
  if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
  return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

bool protect(uint64_t address, const HostMapping& mapping, int protection) {
  return mprotect(place_of(address), mapping.bytes, protection) == 0;
}

CUresult hide_mapping(uint64_t address, HostMapping* mapping) {
  if (!std::exchange(mapping->shown, false)) return CUDA_SUCCESS;
  return host_blocks().unpin(place_of(address));
}

// Shows the pages to devices as the most that any of them may do. Pages are pinned with the program's own rights, so
// it has them meanwhile.
CUresult show_mapping(VirtualGpu& gpu, uint64_t address, HostMapping* mapping) {
  unsigned most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const unsigned one : mapping->device_access) most = std::max(most, one);
  const bool wanted = most != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool read_only = most == CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (wanted == mapping->shown && (!wanted || read_only == mapping->read_only)) return CUDA_SUCCESS;
  CUresult result = hide_mapping(address, mapping);
  if (result != CUDA_SUCCESS || !wanted) return result;
  const FilePages pages{find_memory(mapping->memory)->file, mapping->offset, mapping->bytes};
  if (!protect(address, *mapping, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OPERATING_SYSTEM;
  result = host_blocks().share_file(gpu, pages, place_of(address),
                                    VGPU_REGION_DEVICE_VISIBLE | (read_only ? VGPU_REGION_READ_ONLY : 0));
  protect(address, *mapping, protection_of(mapping->host_access));
  mapping->shown = result == CUDA_SUCCESS;
  mapping->read_only = read_only;
  return result;
}

CUresult set_device_access(uint64_t address, HostMapping* mapping, const CUmemAccessDesc& access) {
  if (const CUresult result = check_device(access.location.id); result != CUDA_SUCCESS) return result;
  VirtualGpu& gpu = gpu_at(access.location.id);
  const unsigned before = std::exchange(mapping->device_access[gpu.part], access.flags);
  const CUresult result = show_mapping(gpu, address, mapping);
  if (result != CUDA_SUCCESS) mapping->device_access[gpu.part] = before;
  return result;
}

CUresult set_host_access(uint64_t address, HostMapping* mapping, unsigned access) {
  if (!protect(address, *mapping, protection_of(access))) return CUDA_ERROR_OPERATING_SYSTEM;
  mapping->host_access = access;
  return CUDA_SUCCESS;
}

CUresult unmap_one(HostMappingAt at) {
  const CUresult result = hide_mapping(at->first, &at->second);
  AddressMap::get().remove(at->first);
  Window::close(at->first, at->second.bytes);
  HostMemory* const memory = find_memory(at->second.memory);
  --memory->mappings;
  drop_memory_if_unused(at->second.memory);
  host_state().mappings.erase(at);
  return result;
}

}  // namespace

bool is_host_location(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult check_host_prop(const CUmemAllocationProp& prop) {
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED || prop.win32HandleMetaData) return CUDA_ERROR_INVALID_VALUE;
  if (prop.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    log_unsupported("host memory of cuMemCreate for other handles than descriptors");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop.allocFlags.usage || prop.allocFlags.compressionType) return CUDA_ERROR_INVALID_VALUE;
  if (!device_attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    log_unsupported("host memory of cuMemCreate by this host");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool wrong_node = prop.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
                          (prop.location.id < 0 || !has_numa_node(prop.location.id));
  return wrong_node ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

HostSpace& HostSpace::get() {
  static HostSpace space;
  return space;
}

bool HostSpace::is_memory(CUmemGenericAllocationHandle memory) const { return memory & kHandleTag; }

CUresult HostSpace::create(size_t bytes, const CUmemAllocationProp& prop, CUmemGenericAllocationHandle* memory) {
  if (bytes % kHostGranularity) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > VGPU_WINDOW_DEVICE_OFFSET) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = make_host_file(bytes, node_of(prop.location));
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(host_state().mutex);
  *memory = keep_memory(file, bytes, prop);
  return CUDA_SUCCESS;
}

CUresult HostSpace::release(CUmemGenericAllocationHandle memory) {
  std::lock_guard lock(host_state().mutex);
  HostMemory* const found = find_memory(memory);
  if (!found || !found->references) return CUDA_ERROR_INVALID_VALUE;
  --found->references;
  drop_memory_if_unused(memory);
  return CUDA_SUCCESS;
}

CUresult HostSpace::retain(CUmemGenericAllocationHandle memory) {
  std::lock_guard lock(host_state().mutex);
  HostMemory* const found = find_memory(memory);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  ++found->references;
  return CUDA_SUCCESS;
}

CUresult HostSpace::properties(CUmemGenericAllocationHandle memory, CUmemAllocationProp* prop) const {
  std::lock_guard lock(host_state().mutex);
  const HostMemory* const found = find_memory(memory);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->prop;
  return CUDA_SUCCESS;
}

CUresult HostSpace::share(CUmemGenericAllocationHandle memory, int* file) const {
  std::lock_guard lock(host_state().mutex);
  const HostMemory* const found = find_memory(memory);
  if (!found || !(found->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *file = fcntl(found->file, F_DUPFD_CLOEXEC, 0);
  return *file < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult HostSpace::import(int file, CUmemGenericAllocationHandle* memory) {
  uint64_t bytes = 0;
  int node = kAnyNode;
  if (!is_host_file(file, &bytes, &node)) return CUDA_ERROR_NOT_FOUND;
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::lock_guard lock(host_state().mutex);
  *memory = keep_memory(own, bytes, prop_of_node(node));
  return CUDA_SUCCESS;
}

CUresult HostSpace::reserve(size_t bytes, size_t alignment, CUdeviceptr* address) {
  std::lock_guard lock(host_state().mutex);
  const auto& all = host_state().memories;
  const bool waits = std::any_of(all.begin(), all.end(), [bytes](const auto& entry) {
    return entry.second.references && !entry.second.mappings && entry.second.bytes == bytes;
  });
  if (!waits) return CUDA_ERROR_NOT_FOUND;
  Window& window = guest_window();
  const uint64_t offset = window.take(bytes, std::max(alignment, kHostGranularity));
  if (offset == Window::kNone) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = window.base() + offset;
  host_state().reservations[*address] = bytes;
  return CUDA_SUCCESS;
}

bool HostSpace::reserves(CUdeviceptr address) const {
  std::lock_guard lock(host_state().mutex);
  return reservation_of(address, 1) != host_state().reservations.end();
}

CUresult HostSpace::free(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(host_state().mutex);
  const auto found = host_state().reservations.find(address);
  if (found == host_state().reservations.end() || found->second != bytes || !is_free(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  host_state().reservations.erase(found);
  guest_window().give_back(address - guest_window().base(), bytes);
  return CUDA_SUCCESS;
}

CUresult HostSpace::map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory) {
  std::lock_guard lock(host_state().mutex);
  HostMemory* const found = find_memory(memory);
  if (!found || !found->references || (address | bytes | offset) % kHostGranularity || bytes > found->bytes ||
      offset > found->bytes - bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (reservation_of(address, bytes) == host_state().reservations.end()) {
    if (!gpu_of_address(address)) return CUDA_ERROR_INVALID_VALUE;
    log_unsupported("host memory at addresses that were reserved before it was created, or with another size,");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!is_free(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(place_of(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->file, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    Window::close(address, bytes);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  prefer_node(address, bytes, node_of(found->prop.location));
  ++found->mappings;
  HostMapping& mapping = host_state().mappings[address];
  mapping.bytes = bytes;
  mapping.offset = offset;
  mapping.memory = memory;
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = RangeKind::kHost;
  range.owner = memory;
  AddressMap::get().add(range);
  return CUDA_SUCCESS;
}

CUresult HostSpace::unmap(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(host_state().mutex);
  std::vector<HostMappingAt> found;
  if (!find_host_mappings(address, bytes, &found)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (const HostMappingAt at : found) {
    const CUresult one = unmap_one(at);
    if (result == CUDA_SUCCESS) result = one;
  }
  return result;
}

CUresult HostSpace::set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc& access) {
  const bool known = access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                     access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const bool device = access.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!known || (!device && !is_host_location(access.location.type))) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(host_state().mutex);
  std::vector<HostMappingAt> found;
  if (!find_host_mappings(address, bytes, &found)) return CUDA_ERROR_INVALID_VALUE;
  for (const HostMappingAt at : found) {
    const CUresult result = device ? set_device_access(at->first, &at->second, access)
                                   : set_host_access(at->first, &at->second, access.flags);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult HostSpace::access(CUdeviceptr address, const CUmemLocation& location, unsigned long long* flags) const {
  std::lock_guard lock(host_state().mutex);
  auto next = host_state().mappings.upper_bound(address);
  if (next == host_state().mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, mapping] = *std::prev(next);
  if (address - base >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
  if (is_host_location(location.type)) {
    *flags = mapping.host_access;
    return CUDA_SUCCESS;
  }
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(location.id); result != CUDA_SUCCESS) return result;
  *flags = mapping.device_access[gpu_at(location.id).part];
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
