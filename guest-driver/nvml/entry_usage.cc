// Memory, utilisation and processes: of this virtual GPU, as its session counts them.
#include <vector>

#include "guest-driver/nvml/device.h"
#include "guest-driver/nvml/processes.h"

using namespace bandsaw::nvml;

namespace {

nvmlReturn_t usage_of(nvmlDevice_t device, const void* to, vgpu_answer_usage* usage) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  return ask(device, VGPU_QUERY_USAGE, usage);
}

uint64_t free_of(const vgpu_answer_usage& usage) {
  return usage.memory_used < usage.memory_total ? usage.memory_total - usage.memory_used : 0;
}

void fill(const vgpu_answer_process& process, nvmlProcessInfo_v1_t* info) {
  info->pid = process.pid;
  info->usedGpuMemory = process.memory_used;
}

void fill(const vgpu_answer_process& process, nvmlProcessInfo_v2_t* info) {
  info->pid = process.pid;
  info->usedGpuMemory = process.memory_used;
  info->gpuInstanceId = info->computeInstanceId = kNoInstance;
}

void fill(const vgpu_answer_process& process, nvmlProcessDetail_v1_t* info) {
  info->pid = process.pid;
  info->usedGpuMemory = process.memory_used;
  info->gpuInstanceId = info->computeInstanceId = kNoInstance;
  info->usedGpuCcProtectedMemory = 0;
}

// `*count` says how much room there is, and then how many there are.
template <typename Info>
nvmlReturn_t list(nvmlDevice_t device, unsigned* count, Info* infos) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!count || (*count > 0 && !infos)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<vgpu_answer_process> processes;
  if (const nvmlReturn_t result = processes_of(device, &processes); result != NVML_SUCCESS) return result;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < processes.size(); i++) fill(processes[i], &infos[i]);
  return NVML_SUCCESS;
}

// Graphics and MPS processes: none are known as such.
nvmlReturn_t list_none(nvmlDevice_t device, unsigned* count) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t samples_after(nvmlDevice_t device, uint64_t after_us, std::vector<vgpu_answer_process>* samples) {
  std::vector<vgpu_answer_process> processes;
  if (const nvmlReturn_t result = processes_of(device, &processes); result != NVML_SUCCESS) return result;
  for (const vgpu_answer_process& process : processes) {
    if (process.time_us > after_us) samples->push_back(process);
  }
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  vgpu_answer_usage usage{};
  if (const nvmlReturn_t result = usage_of(device, memory, &usage); result != NVML_SUCCESS) return result;
  memory->total = usage.memory_total;
  memory->used = usage.memory_used;
  memory->free = free_of(usage);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory && memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  vgpu_answer_usage usage{};
  if (const nvmlReturn_t result = usage_of(device, memory, &usage); result != NVML_SUCCESS) return result;
  memory->total = usage.memory_total;
  memory->reserved = 0;
  memory->used = usage.memory_used;
  memory->free = free_of(usage);
  return NVML_SUCCESS;
}

// Of memory: the part of the time in which the copy engines moved it.
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  vgpu_answer_usage usage{};
  if (const nvmlReturn_t result = usage_of(device, utilization, &usage); result != NVML_SUCCESS) return result;
  utilization->gpu = usage.compute_percent;
  utilization->memory = usage.copy_percent;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int* value) {
  vgpu_answer_usage usage{};
  if (const nvmlReturn_t result = usage_of(device, value, &usage); result != NVML_SUCCESS) return result;
  if (counter != NVML_PCIE_UTIL_TX_BYTES && counter != NVML_PCIE_UTIL_RX_BYTES) return NVML_ERROR_INVALID_ARGUMENT;
  // In KB/s, seen from the GPU.
  *value = static_cast<unsigned>((counter == NVML_PCIE_UTIL_TX_BYTES ? usage.bytes_out : usage.bytes_in) / 1000);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return list(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return list(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_t* infos) {
  return list(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v1_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v1_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                        nvmlProcessInfo_v2_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* list_of) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!list_of) return NVML_ERROR_INVALID_ARGUMENT;
  if (list_of->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  constexpr unsigned kComputeMode = 0, kModes = 3;
  if (list_of->mode >= kModes) return NVML_ERROR_INVALID_ARGUMENT;
  if (list_of->mode != kComputeMode) return list_none(device, &list_of->numProcArrayEntries);
  return list(device, &list_of->numProcArrayEntries, list_of->procArray);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* utilization,
                                             unsigned int* count, unsigned long long after_us) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<vgpu_answer_process> samples;
  if (const nvmlReturn_t result = samples_after(device, after_us, &samples); result != NVML_SUCCESS) return result;
  const unsigned room = utilization ? *count : 0;
  *count = static_cast<unsigned>(samples.size());
  if (samples.empty()) return NVML_ERROR_NOT_FOUND;
  if (room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < samples.size(); i++) {
    utilization[i] = {};
    utilization[i].pid = samples[i].pid;
    utilization[i].timeStamp = samples[i].time_us;
    utilization[i].smUtil = samples[i].compute_percent;
    utilization[i].memUtil = samples[i].copy_percent;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* info) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!info) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::vector<vgpu_answer_process> samples;
  if (const nvmlReturn_t result = samples_after(device, info->lastSeenTimeStamp, &samples); result != NVML_SUCCESS) {
    return result;
  }
  const unsigned room = info->procUtilArray ? info->processSamplesCount : 0;
  info->processSamplesCount = static_cast<unsigned>(samples.size());
  if (samples.empty()) return NVML_ERROR_NOT_FOUND;
  if (room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < samples.size(); i++) {
    info->procUtilArray[i] = {};
    info->procUtilArray[i].pid = samples[i].pid;
    info->procUtilArray[i].timeStamp = samples[i].time_us;
    info->procUtilArray[i].smUtil = samples[i].compute_percent;
    info->procUtilArray[i].memUtil = samples[i].copy_percent;
  }
  return NVML_SUCCESS;
}

}  // extern "C"
