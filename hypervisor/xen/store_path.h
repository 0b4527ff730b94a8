// What stands in xenstore, parsed. The frontend's keys are written by the guest: any text, of any length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "guest-driver/uapi/vgpu_xen.h"

namespace bandsaw::xen {

// Decimal digits and nothing else, at most `most`.
std::optional<uint32_t> parse_number(std::string_view text, uint32_t most = UINT32_MAX);

// enum xenbus_state, as both sides write it.
enum class State : uint32_t {
  kUnknown = 0,
  kInitialising = 1,
  kInitWait = 2,
  kInitialised = 3,
  kConnected = 4,
  kClosing = 5,
  kClosed = 6,
};
State parse_state(std::string_view text);

inline constexpr uint32_t kDomainsMax = 0x7ff0;  // DOMID_FIRST_RESERVED

// One device of one domain.
struct DevicePath {
  uint32_t domain = 0, index = 0;
  std::string backend() const;   // relative to the home of the backend's domain
  std::string frontend() const;  // absolute
  bool operator==(const DevicePath&) const = default;
};
// Of the names of the two folders below backend/vgpu.
std::optional<DevicePath> parse_device(std::string_view domain, std::string_view index);

}  // namespace bandsaw::xen
