// Start, end, texts of errors, and what is asked of the system rather than of a device.
#include <algorithm>
#include <cerrno>
#include <string>

#include "guest-driver/nvml/device.h"
#include "guest-driver/nvml/processes.h"
#include "memory/base/version.h"

using namespace bandsaw::nvml;

namespace {

struct ErrorText {
  nvmlReturn_t error;
  const char* text;
};

constexpr ErrorText kErrorTexts[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch"},
    {NVML_ERROR_IN_USE, "GPU is currently in use"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No Data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "The requested vgpu operation is not available because ECC is enabled"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency Not Supported"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {NVML_ERROR_DEPRECATED, "The requested functionality has been deprecated"},
    {NVML_ERROR_NOT_READY, "System is not ready"},
    {NVML_ERROR_GPU_NOT_FOUND, "No GPU found"},
    {NVML_ERROR_INVALID_STATE, "Invalid state"},
};

nvmlReturn_t cuda_version(int* version) {
  if (!version) return NVML_ERROR_INVALID_ARGUMENT;
  if (device_count() == 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  *version = static_cast<int>(device_at(0)->info.cuda_version);
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2(void) { return initialise(false); }
nvmlReturn_t nvmlInit(void) { return initialise(false); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return initialise(flags & NVML_INIT_FLAG_NO_GPUS); }
nvmlReturn_t nvmlShutdown(void) { return shut_down(); }

const char* nvmlErrorString(nvmlReturn_t result) {
  for (const ErrorText& row : kErrorTexts) {
    if (row.error == result) return row.text;
  }
  return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  return copy_text(bandsaw::kBandsawVersion, version, length);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* info, unsigned int length) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!info) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlSystemDriverBranchInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return copy_text("bandsaw", info->branch, std::min<unsigned>(length, sizeof(info->branch)));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  const std::string text = std::to_string(NVML_API_VERSION) + "." + bandsaw::kBandsawVersion;
  return copy_text(text.c_str(), version, length);
}

// Answered without initialisation, as NVIDIA's does.
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  if (initialised()) return cuda_version(version);
  if (const nvmlReturn_t result = initialise(false); result != NVML_SUCCESS) return result;
  const nvmlReturn_t result = cuda_version(version);
  shut_down();
  return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!name || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  const int error = process_name(pid, name, length);
  return error == EACCES ? NVML_ERROR_NO_PERMISSION : error ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* count, nvmlHwbcEntry_t* entries) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int* count) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* count) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // extern "C"
