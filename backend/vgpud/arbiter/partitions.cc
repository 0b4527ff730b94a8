#include "backend/vgpud/arbiter/partitions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace bandsaw {
namespace {

// A spec that an earlier version, or a larger GPU, has left may have some and not be able to.
bool has_own(const VgpuSpec& spec, const DeviceCapacity& device) {
  return spec.sms > 0 && spec.sharing == Sharing::kMps && spec.device == device.name;
}

uint32_t groups_of(const VgpuSpec& spec, const DeviceCapacity& device) {
  return (spec.sms + device.sm_step - 1) / device.sm_step;
}

// Those that have some, in their order.
std::vector<const VgpuSpec*> holders(std::span<const VgpuSpec> all, const DeviceCapacity& device) {
  std::vector<const VgpuSpec*> found;
  for (const VgpuSpec& spec : all) {
    if (has_own(spec, device)) found.push_back(&spec);
  }
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->index < b->index; });
  return found;
}

bool fits(uint64_t groups, const DeviceCapacity& device) { return groups + 1 <= device.sms / device.sm_step; }

struct SmRange {
  uint32_t first = 0, count = 0;
};

SmRange range_of(const SmPart& part, const DeviceCapacity& device) {
  const uint32_t first = part.first * part.step;
  return {first, part.count ? part.count * part.step : device.sms - first};
}

}  // namespace

Status fit_sms(std::span<const VgpuSpec> others, const DeviceCapacity& device, VgpuSpec* spec) {
  if (spec->sms == 0) return {};
  if (spec->sharing != Sharing::kMps) {
    return Status::error(EINVAL, "'{}' is time-sliced, and only an MPS one can have SMs of its own (sms {})",
                         spec->name, spec->sms);
  }
  if (device.sm_step == 0) return Status::error(EINVAL, "device '{}' has no SMs to give out", device.name);
  uint64_t given = 0;
  for (const VgpuSpec& other : others) {
    if (other.name != spec->name && has_own(other, device)) given += groups_of(other, device);
  }
  const uint64_t asked = groups_of(*spec, device);
  if (!fits(given + asked, device)) {
    return Status::error(ENOSPC,
                         "SMs of their own would sum to {} of {}: {} asked, {} given to others, and at least {} stay "
                         "for all other MPS virtual GPUs",
                         (given + asked) * device.sm_step, device.sms, asked * device.sm_step, given * device.sm_step,
                         device.sm_step);
  }
  spec->sms = static_cast<uint32_t>(asked) * device.sm_step;
  return {};
}

SmPart sm_part(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device) {
  if (device.sm_step == 0 || spec.sharing != Sharing::kMps) return {};
  SmPart part{device.sm_step, 0, 0};
  SmPart own;
  for (const VgpuSpec* holder : holders(all, device)) {
    const uint32_t groups = groups_of(*holder, device);
    if (holder->name == spec.name) own = {device.sm_step, part.first, groups};
    part.first += groups;
  }
  if (part.first == 0 || !fits(part.first, device)) return {};
  return own.step ? own : part;
}

uint32_t sm_thousandths(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device) {
  constexpr uint32_t kAll = 1000, kRoom = 2, kFew = 32;
  if (spec.sharing != Sharing::kMps || spec.latency_us > 0 || device.sms < kFew) return kAll;
  const bool bound = std::any_of(all.begin(), all.end(), [&](const VgpuSpec& other) {
    return other.sharing == Sharing::kMps && other.latency_us > 0 && other.device == device.name;
  });
  if (!bound || sm_part(spec, all, device).step != 0) return kAll;
  return (kAll * (device.sms - kRoom) + device.sms / 2) / device.sms;
}

bool takes_from_others(const VgpuSpec& spec) {
  return spec.sms > 0 || (spec.sharing == Sharing::kMps && spec.latency_us > 0);
}

double own_part(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device) {
  if (!has_own(spec, device)) return 0;
  const SmPart part = sm_part(spec, all, device);
  return part.count == 0 ? 0 : static_cast<double>(part.count * part.step) / device.sms;
}

nlohmann::json describe_part(const SmPart& part, const DeviceCapacity& device) {
  if (part.step == 0) return nullptr;
  const auto [first, count] = range_of(part, device);
  return {{"first", first}, {"count", count}, {"own", part.count > 0}};
}

nlohmann::json describe_partitions(std::span<const VgpuSpec> all, const DeviceCapacity& device) {
  if (device.sm_step == 0) return nullptr;
  auto given = nlohmann::json::array();
  for (const VgpuSpec* holder : holders(all, device)) {
    const nlohmann::json part = describe_part(sm_part(*holder, all, device), device);
    if (!part.is_null()) given.push_back({{"vgpu", holder->name}, {"first", part["first"]}, {"count", part["count"]}});
  }
  return {{"step", device.sm_step}, {"sms", device.sms}, {"given", std::move(given)}};
}

std::string sms_text(const SmPart& part, const DeviceCapacity& device) {
  if (part.step == 0) return "";
  const auto [first, count] = range_of(part, device);
  return fmt::format("{} of {} SMs ({} to {})", count, device.sms, first, first + count - 1);
}

}  // namespace bandsaw
