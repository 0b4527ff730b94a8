#include "backend/vgpud/api/share_limits.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "backend/control/paths.h"
#include "backend/vgpud/api/shares.h"
#include "vgpu-sched/policy/promised.h"

namespace bandsaw {
namespace {

Status check_direct_mode(const std::string& mode) {
  const bool octal = mode.size() >= 3 && mode.size() <= 4 &&
                     std::all_of(mode.begin(), mode.end(), [](char c) { return c >= '0' && c <= '7'; });
  if (!mode.empty() && !octal) return Status::error(EINVAL, "direct mode '{}' is not an octal mode like 0660", mode);
  return {};
}

Status check_engine(const char* name, const sched::Share& share, const sched::Promised& others) {
  const auto too_much = [](const std::string& what, int asked, int given) {
    return Status::error(ENOSPC, "{} would sum to {} %: {} % asked, {} % given to others", what, asked + given, asked,
                         given);
  };
  switch (sched::check_share(share, others)) {
    case sched::Error::kNone:
      return {};
    case sched::Error::kOversubscribed:
      return sched::within_engine(share.percent + others.percent)
                 ? too_much("reserves", share.reservation, others.reservation)
                 : too_much(fmt::format("{} shares", name), share.percent, others.percent);
    default:
      return Status::error(EINVAL, "a reserve of {} % is above the cap of {} %", share.reservation, share.cap);
  }
}

Status check_engines(const VgpuSpec& spec, std::span<const VgpuSpec> others) {
  static constexpr std::array<const char*, kEngines> kNames = {"compute", "copy", "copy"};
  const EngineShares shares = engine_shares(spec);
  for (size_t engine = 0; engine < shares.size(); ++engine) {
    sched::Promised promised;
    for (const VgpuSpec& other : others) {
      if (other.name != spec.name && other.device == spec.device) promised.add(engine_shares(other)[engine]);
    }
    if (Status status = check_engine(kNames[engine], shares[engine], promised); !status.ok()) return status;
  }
  return {};
}

Status check_resident(const VgpuSpec& spec) {
  if (spec.resident == 0) return {};
  if (spec.resident < kMemoryMin) {
    return Status::error(EINVAL, "resident memory {} is below the least, {}", format_size(spec.resident),
                         format_size(kMemoryMin));
  }
  if (spec.resident <= spec.memory) return {};
  return Status::error(EINVAL, "resident memory {} is more than the memory that programs may allocate, {}",
                       format_size(spec.resident), format_size(spec.memory));
}

// What the GPU can keep depends on how it is shared, so a bound may be refused because the sharing is to change.
Status check_latency(const VgpuSpec& spec) {
  const uint32_t least = least_latency_us(spec.sharing);
  if (spec.latency_us == 0 || spec.latency_us >= least) return {};
  return Status::error(ERANGE,
                       "a latency bound of {} us is below the least that a GPU can keep for a {} virtual GPU: {} us",
                       spec.latency_us, to_text(spec.sharing), least);
}

// One MPS daemon a GPU, and who shares it shares its faults: those of one group, and of a GPU's memory nobody else. The
// software device has no daemon.
Status check_group(const VgpuSpec& spec, std::span<const VgpuSpec> others) {
  if (spec.sharing != Sharing::kMps) {
    if (spec.group.empty()) return {};
    return Status::error(EINVAL, "a group is for virtual GPUs that are mps: give --sharing mps with --group {}",
                         spec.group);
  }
  if (!spec.device.starts_with("cuda")) return {};
  for (const VgpuSpec& other : others) {
    const bool shares = other.name != spec.name && other.device == spec.device && other.sharing == Sharing::kMps;
    if (!shares || (!spec.group.empty() && spec.group == other.group)) continue;
    const auto text = [](const std::string& group) {
      return group.empty() ? std::string("alone") : "in group '" + group + "'";
    };
    return Status::error(
        EEXIST,
        "'{}' would be {} on device '{}', where '{}' is mps {}: a GPU has one group at a time. Put both into one "
        "(`--group NAME`: they then share faults and what MPS leaves in memory), choose another GPU, or leave it "
        "time-sliced",
        spec.name, text(spec.group), spec.device, other.name, text(other.group));
  }
  return {};
}

// The largest share first, so that who has little keeps it.
bool lower_largest(uint32_t VgpuSpec::* share, const std::string& device, std::vector<VgpuSpec>* specs) {
  uint32_t sum = 0;
  VgpuSpec* largest = nullptr;
  for (VgpuSpec& spec : *specs) {
    if (spec.device != device) continue;
    sum += spec.*share;
    if (!largest || spec.*share > largest->*share) largest = &spec;
  }
  if (sched::within_engine(static_cast<int>(sum)) || largest->*share <= 1) return false;
  --(largest->*share);
  return true;
}

}  // namespace

Status check_shares(const VgpuSpec& spec, std::span<const VgpuSpec> others, const DeviceCapacity& device) {
  if (!valid_name(spec.name))
    return Status::error(EINVAL, "'{}' is not a name: {}", spec.name.substr(0, 80), kNameRule);
  if (spec.memory < kMemoryMin) {
    return Status::error(EINVAL, "memory {} is below the least, {}", format_size(spec.memory), format_size(kMemoryMin));
  }
  if (Status status = check_resident(spec); !status.ok()) return status;
  if (Status status = check_direct_mode(spec.direct_mode); !status.ok()) return status;
  if (Status status = check_latency(spec); !status.ok()) return status;
  if (Status status = check_group(spec, others); !status.ok()) return status;
  uint64_t memory = 0;
  for (const VgpuSpec& other : others) {
    if (other.name != spec.name && other.device == spec.device) memory += held_memory(other);
  }
  const uint64_t free = device.memory > memory ? device.memory - memory : 0;
  if (held_memory(spec) > free) {
    return Status::error(ENOSPC, "{} {} is above what is free on device '{}': {} of {}",
                         spec.resident == 0 ? "memory" : "resident memory", format_size(reserved_memory(spec)),
                         device.name, format_size(free), format_size(device.memory));
  }
  return check_engines(spec, others);
}

Status check_swap(const VgpuSpec& spec, std::span<const VgpuSpec> others, uint64_t most) {
  const uint64_t wanted = swap_memory(spec);
  if (wanted == 0) return {};
  if (most == 0) {
    return Status::error(ENOSPC,
                         "memory beyond what is resident lies in the host's memory, of which this vgpud may give none: "
                         "set 'memory' in the table [swap] of its configuration");
  }
  uint64_t given = 0;
  for (const VgpuSpec& other : others) given += other.name == spec.name ? 0 : host_swap_memory(other);
  const uint64_t free = most > given ? most - given : 0;
  if (wanted <= free) return {};
  return Status::error(ENOSPC,
                       "memory of {} with {} resident takes {} of the host's memory (with {} for moving), and of the "
                       "{} that 'swap.memory' allows {} are free",
                       format_size(spec.memory), format_size(spec.resident), format_size(wanted),
                       format_size(kSwapSlack), format_size(most), format_size(free));
}

Status check_suspend(const VgpuSpec& spec, uint64_t bytes, std::span<const VgpuSpec> others, uint64_t most) {
  if (bytes == 0) return {};
  uint64_t given = swap_memory(spec);
  for (const VgpuSpec& other : others) given += other.name == spec.name ? 0 : host_swap_memory(other);
  const uint64_t free = most > given ? most - given : 0;
  if (bytes <= free) return {};
  return Status::error(ENOSPC,
                       "'{}' has {} on its device, which would lie in the host's memory, and of the {} that "
                       "'swap.memory' allows {} are free",
                       spec.name, format_size(bytes), format_size(most), format_size(free));
}

Status check_resident_in_use(const VgpuSpec& spec, uint64_t resident) {
  if (reserved_memory(spec) >= resident) return {};
  return Status::error(EBUSY, "{} resident is below what '{}' has on the device now: {}",
                       format_size(reserved_memory(spec)), spec.name, format_size(resident));
}

Status check_memory_in_use(const VgpuSpec& spec, uint64_t used) {
  if (spec.memory >= used) return {};
  return Status::error(EBUSY, "a memory share of {} ({} bytes) is below what '{}' uses now: {} ({} bytes)",
                       format_size(spec.memory), spec.memory, spec.name, format_size(used), used);
}

std::string lower_to_fit(std::vector<VgpuSpec>* specs) {
  const std::vector<VgpuSpec> before = *specs;
  for (const VgpuSpec& one : before) {
    while (lower_largest(&VgpuSpec::compute, one.device, specs)) {
    }
    while (lower_largest(&VgpuSpec::copy, one.device, specs)) {
    }
  }
  std::string changes;
  for (size_t i = 0; i < before.size(); ++i) {
    const VgpuSpec &old = before[i], &now = (*specs)[i];
    if (old.compute == now.compute && old.copy == now.copy) continue;
    changes += fmt::format("{}{}: compute {} to {} %, copy {} to {} %", changes.empty() ? "" : "; ", now.name,
                           old.compute, now.compute, old.copy, now.copy);
  }
  return changes;
}

}  // namespace bandsaw
