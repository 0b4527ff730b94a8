// Event sets. A virtual GPU raises none of NVML's events, so nothing can be registered, and who waits waits in vain.
#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <set>

#include "guest-driver/nvml/device.h"

struct nvmlEventSet_st {};

using namespace bandsaw::nvml;

namespace {

pthread_mutex_t sets_mutex = PTHREAD_MUTEX_INITIALIZER;

// Never freed: programs call in during exit.
std::set<nvmlEventSet_t>& sets() {
  static auto* const all = new std::set<nvmlEventSet_t>;
  return *all;
}

nvmlReturn_t check_set(nvmlEventSet_t set) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  pthread_mutex_lock(&sets_mutex);
  const bool found = sets().count(set) > 0;
  pthread_mutex_unlock(&sets_mutex);
  return found ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t wait_in_vain(nvmlEventSet_t set, const nvmlEventData_t* data, unsigned milliseconds) {
  if (const nvmlReturn_t result = check_set(set); result != NVML_SUCCESS) return result;
  if (!data) return NVML_ERROR_INVALID_ARGUMENT;
  timespec left{static_cast<time_t>(milliseconds / 1000), static_cast<long>(milliseconds % 1000) * 1'000'000};
  while (nanosleep(&left, &left) < 0 && errno == EINTR) {
  }
  return NVML_ERROR_TIMEOUT;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!set) return NVML_ERROR_INVALID_ARGUMENT;
  *set = new nvmlEventSet_st;
  pthread_mutex_lock(&sets_mutex);
  sets().insert(*set);
  pthread_mutex_unlock(&sets_mutex);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  pthread_mutex_lock(&sets_mutex);
  const bool found = sets().erase(set) > 0;
  pthread_mutex_unlock(&sets_mutex);
  if (!found) return NVML_ERROR_INVALID_ARGUMENT;
  delete set;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (const nvmlReturn_t result = check_set(set); result != NVML_SUCCESS) return result;
  return types == nvmlEventTypeNone ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int milliseconds) {
  return wait_in_vain(set, data, milliseconds);
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int milliseconds) {
  return wait_in_vain(set, data, milliseconds);
}

}  // extern "C"
