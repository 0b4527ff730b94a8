// CUDA_VISIBLE_DEVICES: which devices a program sees, and in which order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace bandsaw::libcuda {

using DeviceUuid = std::array<uint8_t, 16>;

// The numbers of the devices that `list` names, in its order. An entry is a number or the beginning of a UUID as
// nvidia-smi writes it (GPU-8 hex digits-...) that fits one device only. As in CUDA, the first entry that names no
// device ends the list, and a device that is named twice leaves none.
std::vector<int> visible_devices(std::string_view list, std::span<const DeviceUuid> devices);

}  // namespace bandsaw::libcuda
