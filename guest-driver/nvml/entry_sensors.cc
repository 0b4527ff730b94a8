// What the physical GPU measures, where there is one, and parts of the hardware that a virtual GPU does not have.
#include "guest-driver/nvml/links.h"

using namespace bandsaw::nvml;

namespace {

static_assert(NVML_CLOCK_GRAPHICS == 0 && NVML_CLOCK_SM == 1 && NVML_CLOCK_MEM == 2 && NVML_CLOCK_VIDEO == 3);

template <typename T>
nvmlReturn_t clock(nvmlDevice_t device, vgpu_sensor first, nvmlClockType_t type, T* mhz) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!mhz || type < 0 || type >= NVML_CLOCK_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  return sensor(device, static_cast<vgpu_sensor>(static_cast<int>(first) + static_cast<int>(type)), mhz);
}

// False: nothing that this device knows.
bool sensor_of_field(unsigned field, vgpu_sensor* which) {
  switch (field) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
      *which = VGPU_SENSOR_ECC;
      return true;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
      *which = VGPU_SENSOR_POWER_MW;
      return true;
    case NVML_FI_DEV_POWER_MIN_LIMIT:
      *which = VGPU_SENSOR_POWER_LIMIT_LEAST_MW;
      return true;
    case NVML_FI_DEV_POWER_MAX_LIMIT:
      *which = VGPU_SENSOR_POWER_LIMIT_MOST_MW;
      return true;
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
      *which = VGPU_SENSOR_POWER_LIMIT_DEFAULT_MW;
      return true;
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
      *which = VGPU_SENSOR_POWER_LIMIT_MW;
      return true;
    default:
      return false;
  }
}

void read_field(nvmlDevice_t device, nvmlFieldValue_t* value) {
  vgpu_sensor which{};
  value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  value->value = {};
  value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  if (read_link_field(device, value)) return;
  if (sensor_of_field(value->fieldId, &which)) value->nvmlReturn = sensor(device, which, &value->value.uiVal);
}

// A GPU without NVLink says the same.
template <typename Info>
nvmlReturn_t no_fabric(nvmlDevice_t device, Info* info) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!info) return NVML_ERROR_INVALID_ARGUMENT;
  std::memset(info->clusterUuid, 0, sizeof(info->clusterUuid));
  info->status = NVML_SUCCESS;
  info->cliqueId = 0;
  info->state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t type, unsigned int* celsius) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!celsius || type != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return sensor(device, VGPU_SENSOR_TEMPERATURE_C, celsius);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!temperature) return NVML_ERROR_INVALID_ARGUMENT;
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return sensor(device, VGPU_SENSOR_TEMPERATURE_C, &temperature->temperature);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type,
                                               unsigned int* celsius) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!celsius || type < 0 || type >= NVML_TEMPERATURE_THRESHOLD_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  if (type == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN) {
    return sensor(device, VGPU_SENSOR_TEMPERATURE_SHUTDOWN_C, celsius);
  }
  if (type == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) {
    return sensor(device, VGPU_SENSOR_TEMPERATURE_SLOWDOWN_C, celsius);
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* least_mw,
                                                          unsigned int* most_mw) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!least_mw || !most_mw) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = sensor(device, VGPU_SENSOR_POWER_LIMIT_LEAST_MW, least_mw);
  return result == NVML_SUCCESS ? sensor(device, VGPU_SENSOR_POWER_LIMIT_MOST_MW, most_mw) : result;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* mhz) {
  return clock(device, VGPU_SENSOR_CLOCK_GRAPHICS_MHZ, type, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* mhz) {
  return clock(device, VGPU_SENSOR_CLOCK_GRAPHICS_MOST_MHZ, type, mhz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int* mhz) {
  if (id < 0 || id >= NVML_CLOCK_ID_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  if (id == NVML_CLOCK_ID_CURRENT) return clock(device, VGPU_SENSOR_CLOCK_GRAPHICS_MHZ, type, mhz);
  const nvmlReturn_t result = check(device);
  return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!current || !pending) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = sensor(device, VGPU_SENSOR_ECC, current);
  if (result == NVML_SUCCESS) *pending = *current;
  return result;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (count < 0 || !values) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < count; i++) read_field(device, &values[i]);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* info) {
  return no_fabric(device, info);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!info) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  info->healthMask = 0;  // there in both versions
  return no_fabric(device, info);
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* support) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!support) return NVML_ERROR_INVALID_ARGUMENT;
  if (support->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  support->isSupportedDevice = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!attributes) return NVML_ERROR_INVALID_ARGUMENT;
  vgpu_answer_usage usage{};
  if (const nvmlReturn_t result = ask(device, VGPU_QUERY_USAGE, &usage); result != NVML_SUCCESS) return result;
  *attributes = {};
  attributes->multiprocessorCount = device->info.sms;
  attributes->memorySizeMB = usage.memory_total >> 20;
  return NVML_SUCCESS;
}

}  // extern "C"
