#include "hypervisor/vfio_user/version.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "hypervisor/vfio_user/protocol.h"
#include "hypervisor/virtio/guest_memory.h"
#include "memory/base/json.h"

namespace bandsaw::vfio_user {

namespace {

constexpr size_t kDepthMax = 8;  // the parser recurses

Status malformed(const char* what) { return Status::error(EINVAL, "version: {}", what); }

bool too_deep(std::string_view text) {
  size_t depth = 0;
  for (char c : text) {
    if ((c == '{' || c == '[') && ++depth > kDepthMax) return true;
    if ((c == '}' || c == ']') && depth > 0) --depth;
  }
  return false;
}

}  // namespace

Result<std::string> negotiate(std::string_view proposed) {
  if (proposed.empty()) return std::string();
  if (proposed.back() != '\0') return malformed("capabilities are not NUL terminated");
  proposed.remove_suffix(1);
  if (too_deep(proposed)) return malformed("capabilities are nested too deeply");
  const auto json = parse_json(proposed);
  if (!json.is_object()) return malformed("capabilities are not a JSON object");
  const auto found = json.find("capabilities");
  if (found == json.end()) return std::string();
  if (!found->is_object()) return malformed("capabilities are not an object");

  nlohmann::json ours = nlohmann::json::object();
  const auto lower = [&](const char* name, uint64_t limit) {
    const auto value = found->find(name);
    if (value == found->end()) return true;
    if (!value->is_number_unsigned()) return false;
    ours[name] = std::min(limit, value->get<uint64_t>());
    return true;
  };
  if (!lower("max_msg_fds", kFdsMax) || !lower("max_data_xfer_size", kTransferMax) ||
      !lower("max_dma_maps", virtio::kRamRegionsMax))
    return malformed("a capability is not a number");
  if (const auto sizes = found->find("pgsizes"); sizes != found->end()) {
    if (!sizes->is_number_unsigned() || !(sizes->get<uint64_t>() & virtio::kGuestPage))
      return malformed("4 KiB pages are needed");
    ours["pgsizes"] = virtio::kGuestPage;
  }
  if (const auto multi = found->find("write_multiple"); multi != found->end() && *multi == true)
    ours["write_multiple"] = true;
  return json_text(nlohmann::json{{"capabilities", ours}});
}

}  // namespace bandsaw::vfio_user
