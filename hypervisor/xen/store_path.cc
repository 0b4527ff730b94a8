#include "hypervisor/xen/store_path.h"

#include <fmt/format.h>

#include <charconv>

namespace bandsaw::xen {

std::optional<uint32_t> parse_number(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

State parse_state(std::string_view text) {
  return static_cast<State>(parse_number(text, static_cast<uint32_t>(State::kClosed)).value_or(0));
}

std::string DevicePath::backend() const { return fmt::format("backend/{}/{}/{}", VGPU_XEN_DEVICE, domain, index); }

std::string DevicePath::frontend() const {
  return fmt::format("/local/domain/{}/device/{}/{}", domain, VGPU_XEN_DEVICE, index);
}

std::optional<DevicePath> parse_device(std::string_view domain, std::string_view index) {
  const auto number = parse_number(domain, kDomainsMax - 1), place = parse_number(index);
  if (!number || !place) return std::nullopt;
  return DevicePath{*number, *place};
}

}  // namespace bandsaw::xen
