// Which warp a scheduler of an SM issues from, and which one instructions are fetched for. A policy sees the warps of
// its scheduler by rising slot, and knows no time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bandsaw::soft::timing {

struct WarpView {
  uint32_t slot = 0;
  uint64_t age = 0;       // a number that rises from warp to warp as they begin
  uint32_t distance = 0;  // instructions to the next load of global memory
  bool ready = false;     // it can issue
  bool waits = false;     // for memory or a barrier
};

inline constexpr const char* kLostLocalityPolicy = "ccws";
inline constexpr const char* kBlockLimitPolicy = "dyncta";

class WarpPolicy {
 public:
  virtual ~WarpPolicy() = default;
  // The index of the warp that issues. nullopt: none of those that are ready shall, or none is ready. What is chosen
  // issues.
  virtual std::optional<size_t> pick(std::span<const WarpView> warps) = 0;
};

// "lrr": in turns, loosely: who is not ready is passed over. "gto": the last one as long as it can, then the oldest.
// "two-level": groups of eight, in turns in the first group of which not all wait. "elf": the one with the fewest
// instructions to its next load, of equals the last one, then the oldest. "ccws" and "dyncta": as "gto", and the SM
// holds some back (throttle.h). nullptr: there is no such policy.
std::unique_ptr<WarpPolicy> make_warp_policy(std::string_view name);
std::vector<std::string> warp_policy_names();

}  // namespace bandsaw::soft::timing
