#include "guest-driver/nvml/links.h"

namespace bandsaw::nvml {
namespace {

unsigned count_links(uint32_t active) { return static_cast<unsigned>(__builtin_popcount(active)); }

// False: no field of one link's speed.
bool link_of_speed_field(unsigned field, unsigned* link) {
  if (field >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && field <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5) {
    *link = field - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0;
    return true;
  }
  if (field >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && field <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11) {
    *link = 6 + field - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6;
    return true;
  }
  return false;
}

nvmlReturn_t of_all_links(nvmlDevice_t device, unsigned field, unsigned* value) {
  vgpu_answer_links links{};
  if (const nvmlReturn_t result = links_of(device, &links); result != NVML_SUCCESS) return result;
  if (!links.active) return NVML_ERROR_NOT_SUPPORTED;
  *value = field == NVML_FI_DEV_NVLINK_LINK_COUNT ? count_links(links.active) : links.speed_mbps;
  return NVML_SUCCESS;
}

nvmlReturn_t of_one_link(nvmlDevice_t device, unsigned field, unsigned link, unsigned* value) {
  vgpu_answer_links links{};
  bool up = false;
  if (const nvmlReturn_t result = find_link(device, link, &links, &up); result != NVML_SUCCESS) return result;
  if (field == NVML_FI_DEV_NVLINK_GET_STATE) {
    *value = up ? NVML_NVLINK_STATE_ACTIVE : NVML_NVLINK_STATE_INACTIVE;
  } else if (field == NVML_FI_DEV_NVLINK_GET_VERSION) {
    *value = links.version;
  } else {
    *value = up ? links.speed_mbps : 0;
  }
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t links_of(nvmlDevice_t device, vgpu_answer_links* links) {
  *links = {};
  const nvmlReturn_t result = ask_patiently(device, VGPU_QUERY_LINKS, links);
  if (result == NVML_ERROR_NOT_SUPPORTED) return NVML_SUCCESS;
  if (result != NVML_SUCCESS) return result;
  // What leads to a GPU of which this process has no virtual one leads nowhere.
  for (unsigned link = 0; link < VGPU_NVLINKS_MAX; link++) {
    const uint32_t bit = 1u << link;
    if (!(links->active & bit) || (links->to_switch & bit) || end_of_link(*links, link)) continue;
    links->active &= ~bit;
  }
  links->active &= (1u << VGPU_NVLINKS_MAX) - 1;
  return NVML_SUCCESS;
}

bool reaches(const vgpu_answer_links& links, const vgpu_answer_links& other) {
  if (!links.physical || !other.physical) return false;
  if (links.physical == other.physical) return true;
  for (const uint32_t peer : links.peers) {
    if (peer == other.physical) return true;
  }
  return false;
}

nvmlReturn_t find_link(nvmlDevice_t device, unsigned link, vgpu_answer_links* links, bool* up) {
  if (link >= VGPU_NVLINKS_MAX) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = links_of(device, links); result != NVML_SUCCESS) return result;
  *up = links->active >> link & 1;
  return links->active ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlDevice_t end_of_link(const vgpu_answer_links& links, unsigned link) {
  const unsigned place = links.remotes[link];
  if (place == 0 || place > VGPU_PEER_GPUS_MAX) return nullptr;
  for (unsigned i = 0; i < device_count(); i++) {
    vgpu_answer_links other{};
    const nvmlReturn_t result = ask_patiently(device_at(i), VGPU_QUERY_LINKS, &other);
    if (result == NVML_SUCCESS && other.physical == links.peers[place - 1]) return device_at(i);
  }
  return nullptr;
}

bool read_link_field(nvmlDevice_t device, nvmlFieldValue_t* value) {
  unsigned link = value->scopeId, number = 0;
  switch (value->fieldId) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
      value->nvmlReturn = of_all_links(device, value->fieldId, &number);
      break;
    case NVML_FI_DEV_NVLINK_GET_SPEED:
    case NVML_FI_DEV_NVLINK_GET_STATE:
    case NVML_FI_DEV_NVLINK_GET_VERSION:
      value->nvmlReturn = of_one_link(device, value->fieldId, link, &number);
      break;
    default:
      if (!link_of_speed_field(value->fieldId, &link)) return false;
      value->nvmlReturn = of_one_link(device, NVML_FI_DEV_NVLINK_GET_SPEED, link, &number);
  }
  value->value.uiVal = number;
  return true;
}

}  // namespace bandsaw::nvml
