#include "backend/device/soft/timing/throttle.h"

#include <algorithm>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {
namespace {

constexpr uint64_t kBaseScore = 100, kThrottle = 8;
constexpr size_t kVictimSets = 2, kVictimWays = 8;

constexpr uint32_t kPeriod = 2048, kIdleMost = 16, kMemoryLow = 128, kMemoryHigh = 384;

}  // namespace

LostLocality::LostLocality(uint32_t slots) : warps_(slots) {}

void LostLocality::begin_warp(uint32_t slot, uint64_t age) {
  warps_[slot] = {true, true, age, kBaseScore, std::vector<std::deque<uint64_t>>(kVictimSets)};
  ++living_;
}

void LostLocality::end_warp(uint32_t slot) {
  warps_[slot].there = false;
  --living_;
}

void LostLocality::missed(uint32_t slot, uint64_t line, uint64_t displaced) {
  if (displaced != 0) displace(displaced);
  owners_[line] = slot;
  Warp& warp = warps_[slot];
  if (!warp.there || !take_victim(&warp, line)) return;
  ++lost_;
  warp.score = std::max(kBaseScore, lost_ * kThrottle * budget() / std::max<uint64_t>(1, issued_));
}

void LostLocality::displace(uint64_t line) {
  const auto owner = owners_.find(line);
  if (owner == owners_.end()) return;
  Warp& warp = warps_[owner->second];
  owners_.erase(owner);
  if (!warp.there) return;
  auto& set = warp.victims[line / kLineBytes % kVictimSets];
  set.push_back(line);
  if (set.size() > kVictimWays) set.pop_front();
}

bool LostLocality::take_victim(Warp* warp, uint64_t line) {
  auto& set = warp->victims[line / kLineBytes % kVictimSets];
  const auto found = std::find(set.begin(), set.end(), line);
  if (found == set.end()) return false;
  set.erase(found);
  return true;
}

// The scores of those that may load add up to no more than if nobody had lost anything.
uint64_t LostLocality::budget() const { return living_ * kBaseScore; }

void LostLocality::step() {
  order_.clear();
  bool lost = false;
  for (uint32_t slot = 0; slot < warps_.size(); ++slot) {
    Warp& warp = warps_[slot];
    warp.may_load = true;
    if (!warp.there) continue;
    if (warp.score > kBaseScore) {
      --warp.score;
      lost = true;
    }
    order_.push_back(slot);
  }
  if (!lost) return;
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    const Warp &one = warps_[a], &other = warps_[b];
    return one.score != other.score ? one.score > other.score : one.age < other.age;
  });
  uint64_t sum = 0;
  for (const uint32_t slot : order_) {
    warps_[slot].may_load = sum < budget();
    sum += warps_[slot].score;
  }
}

BlockLimit::BlockLimit(uint32_t most) : most_(most), limit_(std::max(1u, most / 2)) {}

void BlockLimit::step(Cycle cycle) {
  idle_ += cycle == Cycle::kIdle;
  memory_ += cycle == Cycle::kMemory;
  if (++cycles_ < kPeriod) return;
  if (idle_ > kIdleMost || memory_ < kMemoryLow)
    limit_ = std::min(most_, limit_ + 1);
  else if (memory_ > kMemoryHigh)
    limit_ = std::max(1u, limit_ - 1);
  cycles_ = idle_ = memory_ = 0;
}

}  // namespace bandsaw::soft::timing
