// Which virtual GPUs a program sees, and in which order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
#pragma once

#include <string>
#include <vector>

#include "guest-driver/libcuda/core/visible_devices.h"
#include "guest-driver/uapi/vgpu_wire.h"
#include "memory/base/virtual_gpus.h"

namespace bandsaw::libcuda {

struct DeviceIdentity {
  DeviceUuid uuid{};
  int domain = 0, bus = 0, device = 0;
};

DeviceIdentity identity_of(const vgpu_device_info& info);

// CUDA_DEVICE_ORDER=PCI_BUS_ID. FASTEST_FIRST, which is the default, leaves virtual GPUs in the order in which they are
// found: how fast one is depends on what others do.
bool ordered_by_bus();

// Those that have to be asked what they are. If the list names devices by numbers only, the others need no connection:
// the result is then in the order of the list, and nothing is left to choose.
std::vector<VirtualGpuPath> wanted_before_asking(std::vector<VirtualGpuPath> all);

// Which of the devices that were asked the program sees, as indices in the program's order.
std::vector<int> wanted_after_asking(const std::vector<DeviceIdentity>& devices);

}  // namespace bandsaw::libcuda
