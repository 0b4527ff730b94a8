// NVLink, and who reaches whom.
#include <cstddef>

#include "guest-driver/nvml/links.h"

using namespace bandsaw::nvml;

namespace {

// What NVIDIA's NVML says of a switch that a virtual machine does not see, and what NCCL looks for.
constexpr unsigned kHiddenDomain = 0xfffffff, kHiddenBus = 0xffff, kHiddenDevice = 0xff;

// Calls `use(links, up)` for a link of a GPU, if what was asked is `valid`.
template <typename Use>
nvmlReturn_t of_link(nvmlDevice_t device, unsigned link, bool valid, Use use) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!valid) return NVML_ERROR_INVALID_ARGUMENT;
  vgpu_answer_links links{};
  bool up = false;
  if (const nvmlReturn_t result = find_link(device, link, &links, &up); result != NVML_SUCCESS) return result;
  return use(links, up);
}

nvmlReturn_t remote_pci_info(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* to, size_t bytes) {
  return of_link(device, link, to, [&](const vgpu_answer_links& links, bool up) {
    if (!up) return NVML_ERROR_NOT_SUPPORTED;
    const nvmlDevice_t end = end_of_link(links, link);
    const nvmlPciInfo_t pci = end ? pci_info(end->info) : pci_text(kHiddenDomain, kHiddenBus, kHiddenDevice);
    std::memcpy(to, &pci, bytes);
    return NVML_SUCCESS;
  });
}

nvmlGpuP2PStatus_t status_of(bool good) { return good ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED; }

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* active) {
  return of_link(device, link, active, [&](const vgpu_answer_links&, bool up) {
    *active = up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  return of_link(device, link, version, [&](const vgpu_answer_links& links, bool) {
    *version = links.version;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                           unsigned int* has) {
  const bool valid = has && capability >= 0 && capability < NVML_NVLINK_CAP_COUNT;
  return of_link(device, link, valid, [&](const vgpu_answer_links&, bool up) {
    *has = up && (capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_VALID);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t* type) {
  return of_link(device, link, type, [&](const vgpu_answer_links& links, bool up) {
    if (!up) return NVML_ERROR_NOT_SUPPORTED;
    *type = links.to_switch >> link & 1 ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  return remote_pci_info(device, link, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  return remote_pci_info(device, link, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t* status) {
  if (const nvmlReturn_t result = check(device1); result != NVML_SUCCESS) return result;
  if (const nvmlReturn_t result = check(device2); result != NVML_SUCCESS) return result;
  if (!status || index < 0 || index >= NVML_P2P_CAPS_INDEX_UNKNOWN) return NVML_ERROR_INVALID_ARGUMENT;
  vgpu_answer_links one{}, other{};
  if (const nvmlReturn_t result = links_of(device1, &one); result != NVML_SUCCESS) return result;
  if (const nvmlReturn_t result = links_of(device2, &other); result != NVML_SUCCESS) return result;
  const bool near = device1 == device2 || reaches(one, other);
  const bool by_link = near && one.physical != other.physical && one.active && other.active;
  switch (index) {
    case NVML_P2P_CAPS_INDEX_NVLINK:
      *status = status_of(by_link);
      break;
    case NVML_P2P_CAPS_INDEX_PCI:
      *status = status_of(near && !by_link);
      break;
    case NVML_P2P_CAPS_INDEX_ATOMICS:
      *status = status_of(false);
      break;
    default:
      *status = status_of(near);
  }
  return NVML_SUCCESS;
}

}  // extern "C"
