// What tells virtual GPUs apart: the UUID and the PCI bus id that programs see. The session makes them from what is
// registered, and its runners say them in `device_info`; nobody else makes up others.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw {

struct VgpuIdentity {
  std::string name;  // as registered; empty: no identity, and the device's own holds
  std::array<uint8_t, 16> uuid{};
  uint32_t pci_domain = 0, pci_bus = 0;  // device and function are 0
  bool operator==(const VgpuIdentity&) const = default;
};

// PCI domains in which no host and no VM has a device, so that whoever looks a virtual GPU up among them finds nothing
// rather than another device.
inline constexpr uint32_t kVgpuPciDomain = 0xb500;

// The same answer on every start: the UUID from host and name, the bus id from the number that the registry gives
// (VgpuSpec::index), which no two virtual GPUs of a host share.
VgpuIdentity make_vgpu_identity(std::string_view host, std::string_view name, uint32_t index);

// What this host is called among hosts: its machine id, or else its name.
std::string host_id();

std::string uuid_text(const VgpuIdentity& identity);     // GPU-01234567-89ab-...
std::string pci_bus_text(const VgpuIdentity& identity);  // b500:01:00.0

// One line, for a runner's environment. EINVAL: not such a line.
std::string to_text(const VgpuIdentity& identity);
Result<VgpuIdentity> parse_vgpu_identity(std::string_view text);

}  // namespace bandsaw
