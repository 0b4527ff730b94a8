// The virtual GPUs that this process sees, and their handles.
//
// Handles are addresses of a table that lives as long as the process; any other value is refused. All functions are
// thread-safe.
#pragma once

#include <nvml.h>

#include <cstdint>
#include <cstring>

#include "guest-driver/nvml/session_link.h"

// What nvmlDevice_t points to.
struct nvmlDevice_st {
  unsigned index = 0;
  bandsaw::nvml::SessionAddress session;
  vgpu_answer_device info{};
};

namespace bandsaw::nvml {

// Counted: the library is initialised until `shut_down` has been called as often.
nvmlReturn_t initialise(bool without_devices_too);
nvmlReturn_t shut_down();
bool initialised();

// UNINITIALIZED, or INVALID_ARGUMENT for what is no handle.
nvmlReturn_t check(nvmlDevice_t device);

unsigned device_count();
nvmlDevice_t device_at(unsigned index);  // index < device_count()

// For the errno of a question.
nvmlReturn_t to_nvml(int error);
nvmlReturn_t ask_raw(nvmlDevice_t device, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]);

// `device` is checked.
template <typename T>
nvmlReturn_t ask(nvmlDevice_t device, uint32_t what, T* answer, uint32_t index = 0) {
  static_assert(sizeof(T) <= VGPU_ANSWER_BYTES);
  uint8_t bytes[VGPU_ANSWER_BYTES] = {};
  const nvmlReturn_t result = ask_raw(device, what, index, bytes);
  if (result == NVML_SUCCESS) std::memcpy(answer, bytes, sizeof(T));
  return result;
}

// The same, and waits while the session says that it does not know yet.
nvmlReturn_t ask_patiently_raw(nvmlDevice_t device, uint32_t what, uint8_t (&answer)[VGPU_ANSWER_BYTES]);

template <typename T>
nvmlReturn_t ask_patiently(nvmlDevice_t device, uint32_t what, T* answer) {
  static_assert(sizeof(T) <= VGPU_ANSWER_BYTES);
  uint8_t bytes[VGPU_ANSWER_BYTES] = {};
  const nvmlReturn_t result = ask_patiently_raw(device, what, bytes);
  if (result == NVML_SUCCESS) std::memcpy(answer, bytes, sizeof(T));
  return result;
}

// A virtual GPU's place on the PCI bus, and any.
nvmlPciInfo_t pci_info(const vgpu_answer_device& info);
nvmlPciInfo_t pci_text(unsigned domain, unsigned bus, unsigned device);

// A value of the physical GPU. NOT_SUPPORTED: this device has none. `device` is checked.
nvmlReturn_t sensor_value(nvmlDevice_t device, vgpu_sensor which, uint32_t* value);

template <typename T>
nvmlReturn_t sensor(nvmlDevice_t device, vgpu_sensor which, T* value) {
  uint32_t number = 0;
  const nvmlReturn_t result = sensor_value(device, which, &number);
  if (result == NVML_SUCCESS) *value = static_cast<T>(number);
  return result;
}

// Copies a text with its NUL; INSUFFICIENT_SIZE if there is no room.
nvmlReturn_t copy_text(const char* text, char* to, unsigned length);

}  // namespace bandsaw::nvml
