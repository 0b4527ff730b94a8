// How much of what costs the host or the GPU the programs of a virtual GPU may hold, all together, beside their memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw {

enum class Limited : uint32_t {
  kContexts,
  kStreams,
  kEvents,
  kGraphs,
  kModules,
  kPools,
  kProcesses,
  kDiskMib,
  kStallMs
};

inline constexpr size_t kLimitedObjects = 6;  // the first ones: runners count them; sessions count the others
inline constexpr size_t kLimitedCount = 9;
inline constexpr std::array<const char*, kLimitedCount> kLimitedNames = {
    "contexts", "streams", "events", "graphs", "modules", "pools", "processes", "disk_mib", "stall_ms"};

// By kind. Graphs: those that can be launched too. Modules: libraries and linkers too. Disk: MiB of compiled code that
// the session keeps. Stall: of each second, ms in which others stand still for its contexts and faults
// (stall_budget.h).
using Limits = std::array<uint32_t, kLimitedCount>;
inline constexpr Limits kDefaultLimits = {1024, 65536, 1 << 20, 65536, 65536, 4096, 256, 1024, 25};
inline constexpr uint32_t kLimitMax = 1 << 24;

// What an administrator has said of one virtual GPU; nothing: as the configuration says.
using OwnLimits = std::array<std::optional<uint32_t>, kLimitedCount>;
Limits effective_limits(const Limits& configured, const OwnLimits& own);

// EINVAL, with the names that there are.
Result<Limited> find_limited(std::string_view name);

// As sessions read it: "contexts=1024 streams=65536". `count`: of the first kinds; sessions of before know no others.
std::string to_text(const Limits& limits, size_t count = kLimitedCount);
inline constexpr size_t kLimitedBefore = 7;
inline uint64_t disk_bytes(const Limits& limits) {
  return uint64_t{limits[static_cast<size_t>(Limited::kDiskMib)]} << 20;
}
// Those that are not named stay. EINVAL: no such name, no number, or one above kLimitMax.
Status read_limits(std::string_view text, Limits* limits);

// Memory that a session makes and its runners can only read: it is sealed against being mapped for writing.
struct LimitsPage {
  std::atomic<int64_t> memory_share;  // bytes that programs may allocate
  // Bytes that may lie in host memory instead of on the device, and, where that is above 0, bytes of the share that may
  // lie on the device.
  std::atomic<int64_t> memory_swap, memory_resident;
  std::atomic<uint32_t> most[kLimitedObjects];
  std::atomic<uint32_t> stall_ms;  // kStallUnlimited: nothing waits
  // Of a share that may lie in host memory: what is on the device for certain, and what memory_resident will be soon,
  // as others give memory up.
  std::atomic<int64_t> memory_reserved, memory_coming;
};

// Counts objects of all processes of a virtual GPU against its limits.
class ObjectQuota {
 public:
  virtual ~ObjectQuota() = default;
  // One more. False: there are as many as there may be, and nothing has changed.
  virtual bool hold(Limited kind) = 0;
  virtual void let_go(Limited kind) = 0;
};

}  // namespace bandsaw
