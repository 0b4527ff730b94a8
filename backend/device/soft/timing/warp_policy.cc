#include "backend/device/soft/timing/warp_policy.h"

#include <tuple>

namespace bandsaw::soft::timing {
namespace {

constexpr uint32_t kGroup = 8;
constexpr uint32_t kNobody = UINT32_MAX;

// The first that is ready behind slot `last`, in turns; only of those that `may`.
template <class May>
std::optional<size_t> in_turn(std::span<const WarpView> warps, uint32_t last, May may) {
  std::optional<size_t> first;
  for (size_t i = 0; i < warps.size(); ++i) {
    if (!warps[i].ready || !may(warps[i])) continue;
    if (last != kNobody && warps[i].slot > last) return i;
    if (!first) first = i;
  }
  return first;
}

class RoundRobin final : public WarpPolicy {
 public:
  std::optional<size_t> pick(std::span<const WarpView> warps) override {
    const auto found = in_turn(warps, last_, [](const WarpView&) { return true; });
    if (found) last_ = warps[*found].slot;
    return found;
  }

 private:
  uint32_t last_ = kNobody;
};

// The least by `key(warp, whether it was the last one)`.
template <class Key>
std::optional<size_t> least(std::span<const WarpView> warps, uint64_t last, Key key) {
  std::optional<size_t> best;
  for (size_t i = 0; i < warps.size(); ++i) {
    if (!warps[i].ready) continue;
    if (!best || key(warps[i], warps[i].age == last) < key(warps[*best], warps[*best].age == last)) best = i;
  }
  return best;
}

class GreedyThenOldest final : public WarpPolicy {
 public:
  std::optional<size_t> pick(std::span<const WarpView> warps) override {
    const auto found = least(warps, last_, [](const WarpView& warp, bool last) { return std::tuple(!last, warp.age); });
    if (found) last_ = warps[*found].age;
    return found;
  }

 private:
  uint64_t last_ = UINT64_MAX;
};

class EarliestLoadFirst final : public WarpPolicy {
 public:
  std::optional<size_t> pick(std::span<const WarpView> warps) override {
    const auto found =
        least(warps, last_, [](const WarpView& warp, bool last) { return std::tuple(warp.distance, !last, warp.age); });
    if (found) last_ = warps[*found].age;
    return found;
  }

 private:
  uint64_t last_ = UINT64_MAX;
};

class TwoLevel final : public WarpPolicy {
 public:
  std::optional<size_t> pick(std::span<const WarpView> warps) override {
    if (warps.empty()) return std::nullopt;
    move_on(warps);
    const auto found = in_turn(warps, last_, [&](const WarpView& warp) { return warp.slot / kGroup == group_; });
    if (found) last_ = warps[*found].slot;
    return found;
  }

 private:
  // To the next group of which not all wait, if all of this one do.
  void move_on(std::span<const WarpView> warps) {
    std::optional<uint32_t> first, next;
    for (const WarpView& warp : warps) {
      const uint32_t group = warp.slot / kGroup;
      if (warp.waits) continue;
      if (group == group_) return;
      if (!first) first = group;
      if (!next && group > group_) next = group;
    }
    if (next)
      group_ = *next;
    else if (first)
      group_ = *first;
  }
  uint32_t group_ = 0;
  uint32_t last_ = kNobody;
};

}  // namespace

std::unique_ptr<WarpPolicy> make_warp_policy(std::string_view name) {
  if (name == "lrr") return std::make_unique<RoundRobin>();
  if (name == "gto" || name == kLostLocalityPolicy || name == kBlockLimitPolicy)
    return std::make_unique<GreedyThenOldest>();
  if (name == "two-level") return std::make_unique<TwoLevel>();
  if (name == "elf") return std::make_unique<EarliestLoadFirst>();
  return nullptr;
}

std::vector<std::string> warp_policy_names() {
  return {"lrr", "gto", "two-level", kLostLocalityPolicy, kBlockLimitPolicy, "elf"};
}

}  // namespace bandsaw::soft::timing
