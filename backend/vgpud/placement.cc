#include "backend/vgpud/placement.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>

#include "backend/vgpud/api/share_limits.h"
#include "backend/vgpud/arbiter/partitions.h"

namespace bandsaw {
namespace {

struct Room {
  int64_t compute = 0;  // percent that nobody has been promised
  int64_t memory = 0;   // bytes
};

Room room_on(const PhysicalDevice& device, std::span<const VgpuSpec> others) {
  Room room{100, static_cast<int64_t>(device.memory)};
  for (const VgpuSpec& other : others) {
    if (other.device != device.name) continue;
    room.compute -= other.compute;
    room.memory -= static_cast<int64_t>(held_memory(other));
  }
  return room;
}

Status fit(const PhysicalDevice& device, std::span<const VgpuSpec> others, VgpuSpec* spec) {
  if (!device.lost.empty()) return Status::error(ENODEV, "it is lost: {}", device.lost);
  if (device.drained) return Status::error(ENODEV, "it is drained (`vgpuctl undrain {}`)", device.name);
  spec->device = device.name;
  spec->device_uuid = device.uuid;
  Status status = check_shares(*spec, others, device);
  return status.ok() ? fit_sms(others, device, spec) : status;
}

Status fits_nowhere(std::span<const PhysicalDevice* const> devices, const std::vector<Status>& why) {
  const Status& first = why.front();
  const auto says_same = [&first](const Status& one) { return one.message() == first.message(); };
  const bool of_devices = first.code() == ENOSPC || first.code() == ENODEV;  // rather than of what was asked
  if (why.size() == 1 || (!of_devices && std::all_of(why.begin(), why.end(), says_same))) return first;
  const auto same = [&first](const Status& one) { return one.code() == first.code(); };
  std::string text = "it fits on no device";
  for (size_t i = 0; i < why.size(); ++i) {
    text += fmt::format("{} {}: {}", i == 0 ? ":" : ";", devices[i]->name, why[i].message());
  }
  return Status::error(std::all_of(why.begin(), why.end(), same) ? first.code() : ENOSPC, "{}", text);
}

}  // namespace

Result<Placement> parse_placement(const std::string& text) {
  if (text == "spread") return Placement::kSpread;
  if (text == "pack") return Placement::kPack;
  return Status::error(EINVAL, "'{}'; there are \"spread\" and \"pack\"", text);
}

Status place(std::span<const PhysicalDevice* const> devices, std::span<const VgpuSpec> others, Placement placement,
             VgpuSpec* spec) {
  std::optional<VgpuSpec> best;
  Room of_best;
  std::vector<Status> why;
  for (const PhysicalDevice* device : devices) {
    VgpuSpec candidate = *spec;
    if (Status status = fit(*device, others, &candidate); !status.ok()) {
      why.push_back(std::move(status));
      continue;
    }
    const Room room = room_on(*device, others);
    const bool more = std::tie(room.compute, room.memory) > std::tie(of_best.compute, of_best.memory);
    const bool less = std::tie(room.compute, room.memory) < std::tie(of_best.compute, of_best.memory);
    if (best && !(placement == Placement::kSpread ? more : less)) continue;
    best = std::move(candidate);
    of_best = room;
  }
  if (!best) return fits_nowhere(devices, why);
  *spec = std::move(*best);
  return {};
}

}  // namespace bandsaw
