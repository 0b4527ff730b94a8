#include "guest-driver/libcuda/core/device_choice.h"

#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <tuple>

namespace bandsaw::libcuda {
namespace {

const char* visible_list() { return std::getenv("CUDA_VISIBLE_DEVICES"); }

// Then the numbers are places in what find_virtual_gpus() gives, and nobody has to be asked.
bool chosen_by_place() {
  const char* const list = visible_list();
  return list && !std::strstr(list, "GPU-") && !ordered_by_bus();
}

}  // namespace

DeviceIdentity identity_of(const vgpu_device_info& info) {
  DeviceIdentity identity;
  std::copy(std::begin(info.uuid), std::end(info.uuid), identity.uuid.begin());
  identity.domain = info.attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
  identity.bus = info.attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
  identity.device = info.attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
  return identity;
}

bool ordered_by_bus() {
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  return order && std::strcmp(order, "PCI_BUS_ID") == 0;
}

std::vector<VirtualGpuPath> wanted_before_asking(std::vector<VirtualGpuPath> all) {
  if (!chosen_by_place()) return all;
  const std::vector<DeviceUuid> unknown(all.size());
  std::vector<VirtualGpuPath> wanted;
  for (const int place : visible_devices(visible_list(), unknown)) wanted.push_back(all[static_cast<size_t>(place)]);
  return wanted;
}

std::vector<int> wanted_after_asking(const std::vector<DeviceIdentity>& devices) {
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  if (ordered_by_bus()) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const auto place = [&](int i) {
        const DeviceIdentity& device = devices[static_cast<size_t>(i)];
        return std::tuple(device.domain, device.bus, device.device);
      };
      return place(a) < place(b);
    });
  }
  if (!visible_list() || chosen_by_place()) return order;
  std::vector<DeviceUuid> uuids;
  for (const int index : order) uuids.push_back(devices[static_cast<size_t>(index)].uuid);
  std::vector<int> wanted;
  for (const int place : visible_devices(visible_list(), uuids)) wanted.push_back(order[static_cast<size_t>(place)]);
  return wanted;
}

}  // namespace bandsaw::libcuda
