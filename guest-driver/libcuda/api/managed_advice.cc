// What programs have said of managed memory, by pages, and what they read back.
//
// No advice changes a result. Memory that stays with the program, and variables, can be advised too; it moves nothing
// there. Else the preferred location decides what a touch brings along and what leaves the device first, and what is
// mostly read stays on both sides when it is prefetched. The rest has no meaning where every access is local.
#include <cstring>
#include <map>
#include <mutex>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/managed.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/window.h"
#include "memory/managed/advice.h"

namespace bandsaw::libcuda {
namespace {

using bandsaw::managed::Advice;
using bandsaw::managed::AdviceTable;

struct AdviceTables {
  std::mutex mutex;
  std::map<uint64_t, AdviceTable> of_range;  // guarded by mutex: by the range's id; none: nothing was said of it
};

AdviceTables& advice_tables() {
  static AdviceTables& tables = *new AdviceTables;
  return tables;
}

bandsaw::managed::Place place_of(const CUmemLocation& location) {
  return {static_cast<uint32_t>(location.type), location.id};
}

int32_t ordinal_of(const bandsaw::managed::Place& place) {
  if (place.type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
  return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
}

void change_advice(const Range& range, uint64_t address, uint64_t bytes, const std::function<void(Advice&)>& change) {
  AdviceTables& tables = advice_tables();
  std::lock_guard lock(tables.mutex);
  tables.of_range.try_emplace(range.id, range.bytes, kPage).first->second.change({address - range.base, bytes}, change);
}

Advice advice_of(const Range& range, uint64_t address, uint64_t bytes) {
  AdviceTables& tables = advice_tables();
  std::lock_guard lock(tables.mutex);
  const auto found = tables.of_range.find(range.id);
  return found == tables.of_range.end() ? Advice{} : found->second.of({address - range.base, bytes});
}

CUresult list_accessing(void* data, size_t bytes, const Advice& advice) {
  if (!bytes || bytes % sizeof(int32_t)) return CUDA_ERROR_INVALID_VALUE;
  auto* const list = static_cast<int32_t*>(data);
  const size_t room = bytes / sizeof(int32_t);
  size_t count = 0;
  if (advice.accessed_by_device && count < room) list[count++] = 0;
  if (advice.accessed_by_host && count < room) list[count++] = CU_DEVICE_CPU;
  while (count < room) list[count++] = CU_DEVICE_INVALID;
  return CUDA_SUCCESS;
}

CUresult range_attribute(void* data, size_t bytes, CUmem_range_attribute attribute, const Advice& advice) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) return list_accessing(data, bytes, advice);
  int32_t value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = advice.read_mostly;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = ordinal_of(advice.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = ordinal_of(advice.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = static_cast<int32_t>(advice.preferred.type);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = advice.preferred.type ? advice.preferred.id : CU_DEVICE_INVALID;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = static_cast<int32_t>(advice.prefetched.type);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = advice.prefetched.type ? advice.prefetched.id : CU_DEVICE_INVALID;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

struct AttributeQuestions {
  void* const* data;
  const size_t* bytes;
  const CUmem_range_attribute* attributes;
  size_t count;
};

CUresult range_attributes(const AttributeQuestions& asked, uint64_t address, uint64_t bytes) {
  CUresult result = check_managed(address, bytes);
  const auto range = AddressMap::get().find(address);
  if (result != CUDA_SUCCESS || !range) return result;
  const Advice advice = advice_of(*range, address, bytes);
  for (size_t i = 0; i < asked.count && result == CUDA_SUCCESS; ++i) {
    result = range_attribute(asked.data[i], asked.bytes[i], asked.attributes[i], advice);
  }
  return result;
}

}  // namespace

bandsaw::managed::Bias bias_of(uint64_t page) {
  using bandsaw::managed::Bias;
  const auto range = AddressMap::get().find(page);
  if (!range) return Bias::kNone;
  const Advice advice = advice_of(*range, page, 1);
  if (advice.preferred.type == CU_MEM_LOCATION_TYPE_DEVICE) return Bias::kDevice;
  return advice.preferred.type || advice.read_mostly ? Bias::kHost : Bias::kNone;
}

bool is_read_mostly(uint64_t address, uint64_t bytes) {
  const auto range = AddressMap::get().find(address);
  return range && range->holds(address, bytes) && advice_of(*range, address, bytes).read_mostly;
}

CUresult check_location(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return check_device(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location.id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult check_managed(CUdeviceptr address, size_t bytes) {
  const auto range = AddressMap::get().find(address);
  const bool inside = range && range->kind == RangeKind::kManaged && bytes && range->holds(address, bytes);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void prefetched_to(CUdeviceptr address, size_t bytes, const CUmemLocation& location) {
  const auto range = AddressMap::get().find(address);
  if (!range || !range->holds(address, bytes)) return;
  change_advice(*range, address, bytes, [place = place_of(location)](Advice& of) { of.prefetched = place; });
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  const bool uses_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                             advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  CUresult result = uses_location ? check_location(location) : CUDA_SUCCESS;
  if (result == CUDA_ERROR_INVALID_DEVICE) result = CUDA_ERROR_INVALID_VALUE;  // unlike prefetching
  if (result == CUDA_SUCCESS) result = check_managed(address, bytes);
  const auto range = AddressMap::get().find(address);
  if (result != CUDA_SUCCESS || !range) return result;
  const bool device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  std::function<void(Advice&)> change;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change = [set = advice == CU_MEM_ADVISE_SET_READ_MOSTLY](Advice& of) { of.read_mostly = set; };
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      change = [place = place_of(location)](Advice& of) { of.preferred = place; };
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change = [](Advice& of) { of.preferred = {}; };
      break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      change = [device, set = advice == CU_MEM_ADVISE_SET_ACCESSED_BY](Advice& of) {
        (device ? of.accessed_by_device : of.accessed_by_host) = set;
      };
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  change_advice(*range, address, bytes, change);
  if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
    ManagedSpace::get().prefer_host(address, advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION && !device);
  }
  return CUDA_SUCCESS;
}

void forget_advice(const Range& range) {
  AdviceTables& tables = advice_tables();
  std::lock_guard lock(tables.mutex);
  tables.of_range.erase(range.id);
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  Call call;
  return call.require_context() ? advise(address, bytes, advice, location) : call.status();
}

CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr address,
                                size_t bytes) {
  Call call;
  return call.require_context() ? range_attributes({&data, &data_bytes, &attribute, 1}, address, bytes) : call.status();
}

CUresult cuMemRangeGetAttributes(void** data, size_t* data_bytes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr address, size_t bytes) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!data || !data_bytes || !attributes || !count) return CUDA_ERROR_INVALID_VALUE;
  return range_attributes({data, data_bytes, attributes, count}, address, bytes);
}

}  // extern "C"
