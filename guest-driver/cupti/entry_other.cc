// Versions, results, ids and times.
#include <cupti.h>

#include "guest-driver/cupti/clock.h"
#include "guest-driver/cupti/names.h"
#include "guest-driver/cupti/profile.h"
#include "guest-driver/cupti/refuse.h"
#include "guest-driver/cupti/result.h"

namespace bandsaw::cupti {
namespace {

thread_local CUptiResult last = CUPTI_SUCCESS;

}  // namespace

CUptiResult result(CUptiResult value) {
  if (value != CUPTI_SUCCESS) last = value;
  return value;
}

int refuse() { return result(CUPTI_ERROR_NOT_SUPPORTED); }

}  // namespace bandsaw::cupti

using namespace bandsaw::cupti;

namespace {

struct ContextIds {
  uint64_t id = 0;
  uint32_t device = 0;
};

CUptiResult find_context(CUcontext context, ContextIds* ids) {
  const bandsaw_trace_table* const table = tracer();
  if (!table) return result(CUPTI_ERROR_NOT_INITIALIZED);
  return table->context(context, &ids->id, &ids->device) ? CUPTI_SUCCESS : result(CUPTI_ERROR_INVALID_CONTEXT);
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  if (!version) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *version = BANDSAW_CUPTI_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult value, const char** text) {
  if (!text) return result(CUPTI_ERROR_INVALID_PARAMETER);
  const char* const found = name_of(result_names, result_names_count, static_cast<uint32_t>(value));
  if (!found) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *text = found;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetErrorMessage(CUptiResult value, const char** text) {
  return cuptiGetResultString(value, text);
}

CUptiResult CUPTIAPI cuptiGetLastError(void) {
  const CUptiResult value = last;
  last = CUPTI_SUCCESS;
  return value;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* timestamp) {
  if (!timestamp) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *timestamp = Clock::get().now();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext context, uint32_t* device) {
  if (!device) return result(CUPTI_ERROR_INVALID_PARAMETER);
  ContextIds ids;
  const CUptiResult found = find_context(context, &ids);
  if (found == CUPTI_SUCCESS) *device = ids.device;
  return found;
}

CUptiResult CUPTIAPI cuptiGetContextId(CUcontext context, uint32_t* id) {
  if (!id) return result(CUPTI_ERROR_INVALID_PARAMETER);
  ContextIds ids;
  const CUptiResult found = find_context(context, &ids);
  if (found == CUPTI_SUCCESS) *id = static_cast<uint32_t>(ids.id);
  return found;
}

CUptiResult CUPTIAPI cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t* id) {
  if (!id) return result(CUPTI_ERROR_INVALID_PARAMETER);
  ContextIds ids;
  if (const CUptiResult found = find_context(context, &ids); found != CUPTI_SUCCESS) return found;
  uint64_t number = 0;
  if (!tracer()->stream(stream, per_thread, &number)) return result(CUPTI_ERROR_INVALID_STREAM);
  *id = static_cast<uint32_t>(number);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t* id) {
  return cuptiGetStreamIdEx(context, stream, 0, id);
}

CUptiResult CUPTIAPI cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  if (type != CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT && type != CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) {
    return result(CUPTI_ERROR_INVALID_PARAMETER);
  }
  set_system_thread_ids(type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  if (!type) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *type = system_thread_ids() ? CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM : CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
  return CUPTI_SUCCESS;
}

}  // extern "C"
