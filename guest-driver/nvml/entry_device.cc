// Which virtual GPUs there are, and what each is.
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "guest-driver/nvml/device.h"
#include "memory/base/uuid_text.h"

using namespace bandsaw::nvml;

namespace {

constexpr unsigned kBaseClass = 0x03, kSubClass = 0x02;  // a 3D controller, as CUDA programs expect

std::string gpu_name(const vgpu_answer_device& info) { return "GPU-" + bandsaw::uuid_text(info.uuid); }

bool same_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

// Older versions of the structure end earlier.
nvmlReturn_t give_pci_info(nvmlDevice_t device, nvmlPciInfo_t* to, size_t bytes) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlPciInfo_t pci = pci_info(device->info);
  std::memcpy(to, &pci, bytes);
  return NVML_SUCCESS;
}

nvmlReturn_t by_index(unsigned index, nvmlDevice_t* device) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!device || index >= device_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = device_at(index);
  return NVML_SUCCESS;
}

template <typename Matches>
nvmlReturn_t find(nvmlDevice_t* device, Matches matches) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!device) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < device_count(); i++) {
    if (!matches(device_at(i)->info)) continue;
    *device = device_at(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

// With "GPU-" before it, or as CUDA tells it: without.
nvmlReturn_t by_uuid(const char* text, nvmlDevice_t* device) {
  if (!text) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [text](const vgpu_answer_device& info) {
    return same_text(text, gpu_name(info)) || same_text(text, bandsaw::uuid_text(info.uuid));
  });
}

nvmlReturn_t by_pci(const char* text, nvmlDevice_t* device) {
  if (!text) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0, bus = 0, number = 0, function = 0;
  const bool read = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &number, &function) >= 3 ||
                    (domain = function = 0, std::sscanf(text, "%x:%x.%x", &bus, &number, &function) >= 2);
  if (!read) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [=](const vgpu_answer_device& info) {
    return info.pci_domain == domain && info.pci_bus == bus && info.pci_device == number && function == 0;
  });
}

nvmlReturn_t count_devices(unsigned int* count) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = device_count();
  return NVML_SUCCESS;
}

nvmlDeviceArchitecture_t architecture(const vgpu_answer_device& info) {
  switch (info.capability_major * 10 + info.capability_minor) {
    case 70:
    case 72:
      return NVML_DEVICE_ARCH_VOLTA;
    case 75:
      return NVML_DEVICE_ARCH_TURING;
    case 80:
    case 86:
    case 87:
      return NVML_DEVICE_ARCH_AMPERE;
    case 89:
      return NVML_DEVICE_ARCH_ADA;
    case 90:
      return NVML_DEVICE_ARCH_HOPPER;
    default:
      return info.capability_major >= 10 ? NVML_DEVICE_ARCH_BLACKWELL : NVML_DEVICE_ARCH_UNKNOWN;
  }
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) { return count_devices(count); }
nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) { return count_devices(count); }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) { return by_index(index, device); }
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) { return by_index(index, device); }
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) { return by_uuid(uuid, device); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) { return by_pci(id, device); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) { return by_pci(id, device); }

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == NVML_UUID_TYPE_ASCII) {
    char text[sizeof(uuid->value.str) + 1] = {};
    std::memcpy(text, uuid->value.str, sizeof(uuid->value.str));
    return by_uuid(text, device);
  }
  if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [uuid](const vgpu_answer_device& info) {
    static_assert(sizeof(info.uuid) == sizeof(uuid->value.bytes));
    return std::memcmp(info.uuid, uuid->value.bytes, sizeof(info.uuid)) == 0;
  });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!index) return NVML_ERROR_INVALID_ARGUMENT;
  *index = device->index;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  return copy_text(device->info.name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  return copy_text(gpu_name(device->info).c_str(), uuid, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_pci_info(device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
  if (pci->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const nvmlPciInfo_t info = pci_info(device->info);
  pci->domain = info.domain;
  pci->bus = info.bus;
  pci->device = info.device;
  pci->pciDeviceId = info.pciDeviceId;
  pci->pciSubSystemId = info.pciSubSystemId;
  pci->baseClass = kBaseClass;
  pci->subClass = kSubClass;
  std::memcpy(pci->busId, info.busId, sizeof(pci->busId));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* arch) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!arch) return NVML_ERROR_INVALID_ARGUMENT;
  *arch = architecture(device->info);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t* level) {
  if (const nvmlReturn_t result = check(device1); result != NVML_SUCCESS) return result;
  if (const nvmlReturn_t result = check(device2); result != NVML_SUCCESS) return result;
  if (!level) return NVML_ERROR_INVALID_ARGUMENT;
  *level = device1 == device2 ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int* same) {
  if (const nvmlReturn_t result = check(device1); result != NVML_SUCCESS) return result;
  if (const nvmlReturn_t result = check(device2); result != NVML_SUCCESS) return result;
  if (!same) return NVML_ERROR_INVALID_ARGUMENT;
  *same = device1 == device2;
  return NVML_SUCCESS;
}

}  // extern "C"
