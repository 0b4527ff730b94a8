#include "guest-driver/libcuda/core/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "memory/base/uuid_text.h"

namespace bandsaw::libcuda {
namespace {

constexpr int kNone = -1;

int by_uuid(std::string_view text, std::span<const DeviceUuid> devices) {
  int found = kNone;
  for (size_t i = 0; i < devices.size(); i++) {
    if (!("GPU-" + uuid_text(devices[i])).starts_with(text)) continue;
    if (found != kNone) return kNone;
    found = static_cast<int>(i);
  }
  return found;
}

int by_number(std::string_view text, size_t count) {
  int number = kNone;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good && number >= 0 && static_cast<size_t>(number) < count ? number : kNone;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<int> visible_devices(std::string_view list, std::span<const DeviceUuid> devices) {
  std::vector<int> seen;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string_view entry = trimmed(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    const bool uuid = entry.starts_with("GPU-") && entry.size() > 4;
    const int device = uuid ? by_uuid(entry, devices) : by_number(entry, devices.size());
    if (device == kNone) break;
    if (std::find(seen.begin(), seen.end(), device) != seen.end()) return {};
    seen.push_back(device);
  }
  return seen;
}

}  // namespace bandsaw::libcuda
