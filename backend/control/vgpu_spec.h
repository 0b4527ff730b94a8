// What an administrator fixes about a virtual GPU.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/control/object_limits.h"
#include "backend/control/sharing.h"
#include "memory/base/status.h"

namespace bandsaw {

struct VgpuSpec {
  std::string name;
  std::string device = "soft";  // the physical device's name
  std::string device_uuid;      // of the GPU that was meant; empty: a software device, or not known
  uint64_t memory = 0;          // bytes that programs may allocate
  uint64_t resident = 0;        // bytes of them that it has on the device for certain; 0: all
  uint32_t compute = 1;  // percent of the compute engine, 1 to 100; 1 is the least weight, for who is promised nothing
  uint32_t copy = 1;     // percent of each copy engine, in and out, 1 to 100
  uint32_t cap = 100;    // percent of each engine it may have at most, even of an idle one; 100: no cap
  uint32_t reserve = 0;  // percent of each engine it has at least while it has work, whatever the others' shares
  int32_t priority = 0;  // who goes first among those that are owed time; kPriorityMin to kPriorityMax
  uint32_t latency_us = 0;          // short work of it waits for others at most so long, in microseconds; 0: no bound
  uint32_t kernel_deadline_ms = 0;  // GPU time after which a program whose kernel still runs is ended; 0: never
  Sharing sharing = Sharing::kTimeSliced;  // of the device with other virtual GPUs, for programs that start from now on
  std::string group;                // of an MPS one: who shares an MPS daemon and its faults with it; empty: nobody
  bool guard = false;               // its kernels are kept to its own memory; code without PTX is refused
  bool allow_machine_code = false;  // code without PTX runs all the same, and is not guarded
  bool clear_shared = false;        // its kernels clear their shared memory at the end
  uint32_t sms = 0;                 // SMs of its own, for an MPS one; 0: none
  // Seconds without work after which it leaves its device until the next call; 0: never. None: as configured.
  std::optional<uint32_t> idle_suspend_s;
  uint64_t host_memory = 0;  // bytes of host memory that its session and programs\' runners may have; 0: as configured
  std::string owner;         // USER or @GROUP whose programs may use it; empty: whoever opens a socket
  OwnLimits limits{};        // how much its programs may hold, where that is not as the configuration says
  std::string direct_mode;   // permissions of direct.sock in octal; empty: the daemon's default
  std::string direct_group;  // group of direct.sock; empty: the daemon's default
  std::string domain;        // libvirt domain it is attached to; empty: none
  // Its programs wait, and all that it had on the device lies in the host's memory: so many bytes.
  bool suspended = false;
  uint64_t suspended_bytes = 0;
  uint32_t index = 0;  // number of the virtual GPU on this host, never shared by two: gives its user id
};

// In the registry of an earlier version, all MPS virtual GPUs of a GPU were one group; they stay together.
inline constexpr const char* kGroupOfEarlier = "mps";
inline constexpr const char* kNoGroup = "alone";  // as people say that nobody shares the daemon; no group has this name

inline constexpr uint64_t kMemoryMin = uint64_t{16} << 20;
inline constexpr uint64_t kHostMemoryMin = uint64_t{256} << 20;
// What moving chunks takes of host memory beside what lies there: four of the largest, of which copies are under way.
inline constexpr uint64_t kSwapSlack = uint64_t{128} << 20;
// Shared segments are as large as devices make memory: in multiples of this.
inline constexpr uint64_t kSegmentUnit = uint64_t{2} << 20;
constexpr uint64_t segment_bytes(uint64_t wanted) { return (wanted + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit; }
// Hours for which vgpud keeps what a virtual GPU used.
inline constexpr int64_t kHistoryHours = 31 * 24;
inline constexpr int32_t kPriorityMin = -100, kPriorityMax = 100;

// The least latency bounds that a GPU can keep, in microseconds, by how the virtual GPU shares it. Measured on an H200
// beside kernels of 163 ms that cannot be cut: a time-sliced one waits for two context switches of about 0.1 ms each,
// whatever the slices, and with a bound of 250 us for time slices of 10 us (p99 218 us); work of an MPS one that goes
// first waits for the end of one running block (p99 20 us where blocks are short).
inline constexpr uint32_t kLatencyLeastTimeSliced = 250, kLatencyLeastMps = 20, kLatencyMax = 1'000'000;
constexpr uint32_t least_latency_us(Sharing sharing) {
  return sharing == Sharing::kMps ? kLatencyLeastMps : kLatencyLeastTimeSliced;
}

inline constexpr uint32_t kKernelDeadlineMax = 86'400'000;
inline constexpr uint32_t kIdleSuspendMost = 31 * 86'400;

// What one physical device offers.
struct DeviceCapacity {
  std::string name;
  uint64_t memory = 0;
  uint32_t sms = 0, sm_step = 0;  // SMs, and how many are given out at a time; 0: none can be
};

// Bytes that a virtual GPU has of its device for certain, and that it may have of the host's memory instead.
constexpr uint64_t reserved_memory(const VgpuSpec& spec) {
  return spec.resident == 0 || spec.resident > spec.memory ? spec.memory : spec.resident;
}
constexpr uint64_t swap_memory(const VgpuSpec& spec) {
  const uint64_t beyond = spec.memory - reserved_memory(spec);
  return beyond == 0 ? 0 : beyond + kSwapSlack;
}

// The same of the host's memory, if all that it has of the device were lent.
constexpr uint64_t most_host_memory(const VgpuSpec& spec) {
  return swap_memory(spec) == 0 ? 0 : swap_memory(spec) + reserved_memory(spec);
}

// Bytes of its device that nobody else may have now.
constexpr uint64_t held_memory(const VgpuSpec& spec) { return spec.suspended ? 0 : reserved_memory(spec); }
// Bytes of the host's memory that it may have now.
constexpr uint64_t host_swap_memory(const VgpuSpec& spec) { return swap_memory(spec) + spec.suspended_bytes; }

// What runners are told of these three: "guard", "machine-code", "clear-shared", with commas between; "": none.
std::string guard_text(const VgpuSpec& spec);

nlohmann::json to_json(const VgpuSpec& spec);
// Takes fields that `object` has over into `spec`; an unknown field, a wrong type or a value out of its range is
// EINVAL. `stored` also admits the fields that only the daemon sets (name, device, device_uuid, domain, suspended,
// suspended_bytes, index), and shares of 0, which earlier versions wrote for "no promise".
Status from_json(const nlohmann::json& object, bool stored, VgpuSpec* spec);

// Shares as a person writes them, by name, in this order: {"memory", "8G"}, {"compute", "30"}, copy, cap, reserve,
// priority, latency_us, {"sharing", "mps"}, group, sms.
using ShareTexts = std::vector<std::pair<std::string, std::string>>;
// Of a spec's JSON, or a part of it.
ShareTexts share_texts(const nlohmann::json& spec);
// What from_json() takes. EINVAL: not a share, given twice, or not a number; whether it is in its range is not looked
// at.
Result<nlohmann::json> read_share_texts(const ShareTexts& texts);

// "8G", "512M", "1.5GiB" and plain bytes; powers of 1024.
Result<uint64_t> parse_size(std::string_view text);
// For people: "8.0 GiB".
std::string format_size(uint64_t bytes);

// The one of `names` that looks most like `name` (edit distance up to 2), or nothing.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace bandsaw
