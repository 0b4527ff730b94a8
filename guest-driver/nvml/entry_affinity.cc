// Which CPUs and memory are near a virtual GPU, what it has of a board, and what needs a licence: nothing does.
//
// A virtual GPU's place on the bus is its own, on no bridge that the machine knows, so all CPUs are as near as any.
#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "guest-driver/nvml/device.h"

using namespace bandsaw::nvml;

namespace {

constexpr unsigned kBits = 8 * sizeof(unsigned long);
constexpr const char* kCpus = "/sys/devices/system/cpu/online";
constexpr const char* kMemory = "/sys/devices/system/node/has_memory";

// Calls `each` for all numbers of a list as the kernel writes them: "0-3,8". False if there is no such list.
template <typename Each>
bool read_list(const char* path, Each each) {
  std::FILE* const file = std::fopen(path, "re");
  if (!file) return false;
  unsigned first = 0;
  bool any = false;
  while (std::fscanf(file, "%u", &first) == 1) {
    unsigned last = first;
    if (std::fscanf(file, "-%u", &last) != 1) last = first;
    last = std::min(last, first + CPU_SETSIZE);
    for (unsigned number = first; number <= last; number++) each(number);
    any = true;
    if (std::fgetc(file) != ',') break;
  }
  std::fclose(file);
  return any;
}

nvmlReturn_t give_set(nvmlDevice_t device, const char* path, unsigned words, unsigned long* set,
                      nvmlAffinityScope_t scope) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!words || !set || scope > NVML_AFFINITY_SCOPE_SOCKET) return NVML_ERROR_INVALID_ARGUMENT;
  std::fill_n(set, words, 0);
  const bool read = read_list(path, [&](unsigned number) {
    if (number / kBits < words) set[number / kBits] |= 1ul << number % kBits;
  });
  return read ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

// Binds the calling thread to what is near: to all CPUs, so this is also how a binding is cleared.
nvmlReturn_t bind_thread(nvmlDevice_t device) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const bool read = read_list(kCpus, [&](unsigned number) {
    if (number < CPU_SETSIZE) CPU_SET(number, &cpus);
  });
  return read && sched_setaffinity(0, sizeof(cpus), &cpus) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t no_licence(nvmlDevice_t device, nvmlGridLicensableFeatures_t* features) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!features) return NVML_ERROR_INVALID_ARGUMENT;
  features->isGridLicenseSupported = 0;  // no more: the structure of older versions is shorter
  features->licensableFeaturesCount = 0;
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long* nodes,
                                         nvmlAffinityScope_t scope) {
  return give_set(device, kMemory, words, nodes, scope);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long* cpus,
                                                 nvmlAffinityScope_t scope) {
  return give_set(device, kCpus, words, cpus, scope);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long* cpus) {
  return give_set(device, kCpus, words, cpus, NVML_AFFINITY_SCOPE_NODE);
}

nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device) { return bind_thread(device); }
nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device) { return bind_thread(device); }

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int* count, nvmlDevice_t* devices) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!count || (*count && !devices)) return NVML_ERROR_INVALID_ARGUMENT;
  bool online = false;
  if (!read_list(kCpus, [&](unsigned number) { online = online || number == cpu; })) return NVML_ERROR_UNKNOWN;
  if (!online) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = *count;
  *count = room ? std::min(room, device_count()) : device_count();
  for (unsigned i = 0; room && i < *count; i++) devices[i] = device_at(i);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures(nvmlDevice_t device, nvmlGridLicensableFeatures_t* features) {
  return no_licence(device, features);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v2(nvmlDevice_t device, nvmlGridLicensableFeatures_t* features) {
  return no_licence(device, features);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v3(nvmlDevice_t device, nvmlGridLicensableFeatures_t* features) {
  return no_licence(device, features);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t* features) {
  return no_licence(device, features);
}

nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlDeviceCapabilities_t* capabilities) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!capabilities) return NVML_ERROR_INVALID_ARGUMENT;
  if (capabilities->version != nvmlDeviceCapabilities_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  capabilities->capMask = 0;
  return NVML_SUCCESS;
}

}  // extern "C"
