// Attributes of streams: hints to this device, kept for the program to read back.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {
namespace {

// Those of the streams that a context has by itself, which have no record.
struct Defaults {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, StreamAttributes> all;  // by context and stream_id()
};

Defaults& defaults() {
  static Defaults& kept = *new Defaults;
  return kept;
}

bool storable(CUstreamAttrID attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

// As it is stored. False: no stream may have it.
bool adjust(CUstreamAttrID attribute, CUstreamAttrValue* value) {
  const vgpu_device_info& info = current_gpu().info;
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return value->syncPolicy >= CU_SYNC_POLICY_AUTO && value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = std::clamp(value->priority, info.greatest_priority, info.least_priority);
      return true;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return are_sync_domains(value->memSyncDomainMap);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return is_sync_domain(value->memSyncDomain);
    default:
      return true;
  }
}

// Calls `use(attributes, record)` with what a stream has, locked; the record is null for a default stream.
template <typename Use>
CUresult with_attributes(Call& call, CUstream stream, Use use) {
  StreamRecord* record = nullptr;
  CUresult result = find_stream(stream, &record);
  if (result != CUDA_SUCCESS) return result;
  if (record) {
    std::lock_guard lock(record->mutex);
    use(&record->attributes, record);
    return CUDA_SUCCESS;
  }
  uint64_t on = 0;
  result = check_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(defaults().mutex);
  use(&defaults().all[{call.context(), stream_id(on)}], nullptr);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!value || !storable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  return with_attributes(call, stream, [&](StreamAttributes* attributes, const StreamRecord* record) {
    std::memset(value, 0, sizeof(*value));
    if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value->syncPolicy = CU_SYNC_POLICY_AUTO;
    if (attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY && record) value->priority = record->priority;
    if (const auto set = attributes->find(attribute); set != attributes->end()) *value = set->second;
  });
}

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!value || !storable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  CUstreamAttrValue stored = *value;
  if (!adjust(attribute, &stored)) return CUDA_ERROR_INVALID_VALUE;
  return with_attributes(call, stream,
                         [&](StreamAttributes* attributes, const StreamRecord*) { (*attributes)[attribute] = stored; });
}

CUresult cuStreamCopyAttributes(CUstream destination, CUstream source) {
  Call call;
  if (!call.require_context()) return call.status();
  StreamAttributes copied;
  const CUresult result = with_attributes(
      call, source, [&](const StreamAttributes* attributes, const StreamRecord*) { copied = *attributes; });
  if (result != CUDA_SUCCESS) return result;
  return with_attributes(call, destination,
                         [&](StreamAttributes* attributes, const StreamRecord*) { *attributes = std::move(copied); });
}

}  // extern "C"
