// cuptiActivity*: kinds of records, buffers, names for the program's own work.
#include <cupti.h>

#include <cstring>
#include <map>
#include <mutex>

#include "guest-driver/cupti/buffers.h"
#include "guest-driver/cupti/clock.h"
#include "guest-driver/cupti/names.h"
#include "guest-driver/cupti/profile.h"
#include "guest-driver/cupti/records.h"
#include "guest-driver/cupti/result.h"
#include "memory/base/clock.h"

using namespace bandsaw;
using namespace bandsaw::cupti;

namespace {

constexpr uint32_t kAttributes = 16;  // more than any header has
constexpr size_t kAttributeBytes = 8;

// Sizes of buffers that CUPTI would keep on the device. Here there are none, so they are only remembered.
struct Attributes {
  std::mutex mutex;
  std::map<uint32_t, uint64_t> values;
};

Attributes& attributes() {
  static auto* const made = new Attributes;
  return *made;
}

bool is_external(CUpti_ExternalCorrelationKind kind) {
  return kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind <= CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;
}

void put_flush(uint64_t begin_ns) {
  OverheadRecord record;
  record.known.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.known.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  record.known.objectKind = CUPTI_ACTIVITY_OBJECT_UNKNOWN;
  record.known.start = Clock::get().convert(begin_ns);
  record.known.end = Clock::get().convert(static_cast<uint64_t>(monotonic_ns()));
  Buffers::get().put(&record, sizeof(record));
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                    CUpti_BuffersCallbackCompleteFunc completed) {
  if (!requested || !completed) return result(CUPTI_ERROR_INVALID_PARAMETER);
  Buffers::get().use(requested, completed);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) { return result(enable_kind(kind, true)); }
CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) { return result(enable_kind(kind, false)); }

CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId callback, uint8_t enable) {
  if (!name_of(driver_callbacks, driver_callbacks_count, callback)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  enable_driver_function(callback, enable != 0);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  if (!Buffers::get().ready()) return result(CUPTI_ERROR_INVALID_OPERATION);
  const bandsaw_trace_table* const table = tracer();
  if (!table) return result(CUPTI_ERROR_NOT_INITIALIZED);
  const auto begin_ns = static_cast<uint64_t>(monotonic_ns());
  table->flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
  if (is_enabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) put_flush(begin_ns);
  Buffers::get().flush();
  return CUPTI_SUCCESS;
}

// Buffers are of no context, so one of them is never flushed alone.
CUptiResult CUPTIAPI cuptiActivityFlush(CUcontext, uint32_t, uint32_t flag) { return cuptiActivityFlushAll(flag); }

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  if (!buffer || !record) return result(CUPTI_ERROR_INVALID_PARAMETER);
  size_t at = 0;
  if (*record) {
    const size_t before = static_cast<size_t>(reinterpret_cast<uint8_t*>(*record) - buffer);
    if (before >= valid_bytes || bytes_of((*record)->kind) == 0) return result(CUPTI_ERROR_INVALID_KIND);
    at = before + bytes_of((*record)->kind);
  }
  if (valid_bytes < sizeof(CUpti_Activity) || at > valid_bytes - sizeof(CUpti_Activity)) {
    return result(CUPTI_ERROR_MAX_LIMIT_REACHED);
  }
  auto* const next = reinterpret_cast<CUpti_Activity*>(buffer + at);
  const size_t bytes = bytes_of(next->kind);
  if (bytes == 0 || bytes > valid_bytes - at) return result(CUPTI_ERROR_INVALID_KIND);
  *record = next;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  if (!dropped) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *dropped = Buffers::get().take_dropped();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (!is_external(kind)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  push_external(kind, id);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t* last_id) {
  if (!is_external(kind)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  return pop_external(kind, last_id) ? CUPTI_SUCCESS : result(CUPTI_ERROR_QUEUE_EMPTY);
}

CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  if (!function) return result(CUPTI_ERROR_INVALID_PARAMETER);
  Clock::get().use(function);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  if (!bytes || !value || static_cast<uint32_t>(attribute) >= kAttributes) return result(CUPTI_ERROR_INVALID_PARAMETER);
  if (*bytes == 0 || *bytes > kAttributeBytes) return result(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
  std::lock_guard lock(attributes().mutex);
  uint64_t& kept = attributes().values[attribute];
  kept = 0;
  std::memcpy(&kept, value, *bytes);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  if (!bytes || !value || static_cast<uint32_t>(attribute) >= kAttributes) return result(CUPTI_ERROR_INVALID_PARAMETER);
  if (*bytes == 0 || *bytes > kAttributeBytes) return result(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
  std::lock_guard lock(attributes().mutex);
  std::memcpy(value, &attributes().values[attribute], *bytes);
  return CUPTI_SUCCESS;
}

}  // extern "C"
