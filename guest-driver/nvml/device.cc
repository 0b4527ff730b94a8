#include "guest-driver/nvml/device.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace bandsaw::nvml {
namespace {

constexpr unsigned kDevicesMax = 16;
// What lspci shows in a VM: virtio device 63.
constexpr unsigned kPciDeviceId = 0x107f1af4;
// How long the first question waits for the session's first runner, which says what the device is.
constexpr int kFirstRunnerTries = 400;
constexpr int kReaderTries = 400;  // what reads the GPU for the session loads NVIDIA's NVML first
constexpr timespec kBetweenTries{0, 50'000'000};

pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<unsigned> init_count{0};
std::atomic<unsigned> found{0};

// Never freed: programs use handles also after the last shutdown.
nvmlDevice_st* devices() {
  static auto* const table = new nvmlDevice_st[kDevicesMax];
  return table;
}

void complain(const SessionAddress& session, int error) {
  const char* const level = std::getenv("BANDSAW_LOG");
  if (level && std::strcmp(level, "off") == 0) return;
  char line[512];
  const int length =
      std::snprintf(line, sizeof(line), "libnvidia-ml (bandsaw): %s does not answer: %s%s\n", session.path.c_str(),
                    std::strerror(error), error == EINVAL ? ": the host or the module is older than this library" : "");
  if (write(STDERR_FILENO, line, std::min<size_t>(static_cast<size_t>(length), sizeof(line) - 1)) < 0) return;
}

int learn(nvmlDevice_st* device) {
  uint8_t answer[VGPU_ANSWER_BYTES] = {};
  int error = EAGAIN;
  for (int i = 0; i < kFirstRunnerTries && error == EAGAIN; i++) {
    if (i > 0) nanosleep(&kBetweenTries, nullptr);
    error = ask(device->session, VGPU_QUERY_DEVICE, 0, answer);
  }
  if (error == 0) std::memcpy(&device->info, answer, sizeof(device->info));
  device->info.name[sizeof(device->info.name) - 1] = 0;
  return error;
}

nvmlReturn_t find_devices() {
  unsigned count = 0;
  int error = ENODEV;
  for (const SessionAddress& session : find_virtual_gpus()) {
    if (count == kDevicesMax) break;
    nvmlDevice_st& device = devices()[count];
    device.index = count;
    device.session = session;
    error = learn(&device);
    if (error) {
      complain(session, error);
      continue;
    }
    count++;
  }
  found.store(count, std::memory_order_release);
  if (count > 0) return NVML_SUCCESS;
  return error == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
}

}  // namespace

nvmlReturn_t initialise(bool without_devices_too) {
  pthread_mutex_lock(&init_mutex);
  nvmlReturn_t result = NVML_SUCCESS;
  if (init_count.load() == 0) result = find_devices();
  if (result == NVML_ERROR_DRIVER_NOT_LOADED && without_devices_too) result = NVML_SUCCESS;
  if (result == NVML_SUCCESS) init_count.fetch_add(1);
  pthread_mutex_unlock(&init_mutex);
  return result;
}

nvmlReturn_t shut_down() {
  pthread_mutex_lock(&init_mutex);
  const bool was = init_count.load() > 0;
  if (was) init_count.fetch_sub(1);
  pthread_mutex_unlock(&init_mutex);
  return was ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

bool initialised() { return init_count.load(std::memory_order_acquire) > 0; }
unsigned device_count() { return found.load(std::memory_order_acquire); }
nvmlDevice_t device_at(unsigned index) { return devices() + index; }

nvmlReturn_t check(nvmlDevice_t device) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  for (unsigned i = 0; i < device_count(); i++) {
    if (device == devices() + i) return NVML_SUCCESS;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t to_nvml(int error) {
  switch (error) {
    case 0:
      return NVML_SUCCESS;
    case EINVAL:
      return NVML_ERROR_NOT_SUPPORTED;
    case EACCES:
    case EPERM:
      return NVML_ERROR_NO_PERMISSION;
    case EAGAIN:
    case ETIMEDOUT:
      return NVML_ERROR_TIMEOUT;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return NVML_ERROR_INSUFFICIENT_RESOURCES;
    default:
      return NVML_ERROR_GPU_IS_LOST;
  }
}

nvmlReturn_t ask_raw(nvmlDevice_t device, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]) {
  return to_nvml(ask(device->session, what, index, answer));
}

// The session begins to read its GPU when somebody asks.
nvmlReturn_t ask_patiently_raw(nvmlDevice_t device, uint32_t what, uint8_t (&answer)[VGPU_ANSWER_BYTES]) {
  int error = EAGAIN;
  for (int i = 0; i < kReaderTries && error == EAGAIN; i++) {
    if (i > 0) nanosleep(&kBetweenTries, nullptr);
    error = ask(device->session, what, 0, answer);
  }
  return to_nvml(error);
}

nvmlReturn_t sensor_value(nvmlDevice_t device, vgpu_sensor which, uint32_t* value) {
  vgpu_answer_sensors sensors{};
  const nvmlReturn_t result = ask_patiently(device, VGPU_QUERY_SENSORS, &sensors);
  if (result != NVML_SUCCESS) return result;
  if (!(sensors.known >> which & 1)) return NVML_ERROR_NOT_SUPPORTED;
  *value = sensors.values[which];
  return NVML_SUCCESS;
}

nvmlPciInfo_t pci_info(const vgpu_answer_device& info) {
  nvmlPciInfo_t pci = pci_text(info.pci_domain, info.pci_bus & 0xff, info.pci_device & 0x1f);
  pci.pciDeviceId = kPciDeviceId;
  return pci;
}

// A text that does not fit is cut, as NVIDIA's does it.
nvmlPciInfo_t pci_text(unsigned domain, unsigned bus, unsigned device) {
  nvmlPciInfo_t pci{};
  char text[64];
  std::snprintf(text, sizeof(text), "%04X:%02X:%02X.0", domain, bus, device);
  std::memcpy(pci.busIdLegacy, text, std::min(std::strlen(text), sizeof(pci.busIdLegacy) - 1));
  std::snprintf(pci.busId, sizeof(pci.busId), "%08X:%02X:%02X.0", domain, bus, device);
  pci.domain = domain;
  pci.bus = bus;
  pci.device = device;
  return pci;
}

nvmlReturn_t copy_text(const char* text, char* to, unsigned length) {
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  const size_t bytes = std::strlen(text) + 1;
  if (bytes > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, text, bytes);
  return NVML_SUCCESS;
}

}  // namespace bandsaw::nvml
