#include "backend/device/soft/timing/program_points.h"

#include <algorithm>

namespace bandsaw::soft::timing {

ProgramPoints::ProgramPoints(const Code& code, uint32_t slots)
    : instructions_(static_cast<uint32_t>(code.instructions.size())) {
  find(code);
  found_ = points_.size();
  while (slots != 0 && points_.size() > slots && merge()) {
  }
  if (slots != 0 && points_.size() > slots) points_.resize(slots);
  for (uint32_t at = 0; at < instructions_; ++at) {
    distances_.push_back(look_up(at));
    loads_.push_back(code.instructions[at].global_load);
    branches_.push_back(code.instructions[at].kind == Kind::kBranch);
  }
}

// Algorithm 1. Rounds end: scores only fall.
void ProgramPoints::find(const Code& code) {
  std::vector<uint32_t> targets;
  for (uint32_t at = 0; at < instructions_; ++at) {
    const Instruction& one = code.instructions[at];
    const bool backward = one.kind == Kind::kBranch && one.target >= 0 && static_cast<uint32_t>(one.target) <= at;
    if (!one.global_load && !backward) continue;
    points_.push_back({at, backward, backward ? kMostScore : 0});
    targets.push_back(backward ? static_cast<uint32_t>(one.target) : 0);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < points_.size(); ++i) {
      ProgramPoint& point = points_[i];
      if (!point.branch) continue;
      const uint32_t next = score_from(point.counter + 1) + 1, target = score_from(targets[i]) + 1;
      if (std::min(next, target) >= point.score) continue;
      point.score = std::min(next, target);
      changed = true;
    }
  }
  for (size_t i = 0; i < points_.size();) {
    const ProgramPoint& point = points_[i];
    const bool meaningless =
        point.branch && (point.score == kMostScore || point.score == score_from(point.counter + 1) + 1);
    if (meaningless)
      points_.erase(points_.begin() + static_cast<ptrdiff_t>(i));
    else
      ++i;
  }
}

// getScore: how far the next point is, and what it adds.
uint32_t ProgramPoints::score_from(uint32_t counter) const {
  const auto next = std::lower_bound(points_.begin(), points_.end(), counter,
                                     [](const ProgramPoint& point, uint32_t at) { return point.counter < at; });
  if (next == points_.end()) return kMostScore;
  return std::min(next->counter - counter + (next->branch ? next->score : 0), kMostScore);
}

// Algorithm 2: of two neighbours the nearest become one, the later, which must be a load. False: there are none.
bool ProgramPoints::merge() {
  size_t best = 0;
  int64_t least = kMostScore;
  for (size_t i = 1; i < points_.size(); ++i) {
    if (points_[i].branch) continue;
    const ProgramPoint& before = points_[i - 1];
    int64_t distance = int64_t{points_[i].counter} - before.counter;
    if (before.branch) distance -= before.score;
    distance = std::max<int64_t>(distance, 0);
    if (distance >= least) continue;
    least = distance;
    best = i;
  }
  if (best == 0) return false;
  points_[best].score = static_cast<uint32_t>(least);
  points_.erase(points_.begin() + static_cast<ptrdiff_t>(best) - 1);
  return true;
}

// The priority calculator: the next point by counter.
uint32_t ProgramPoints::look_up(uint32_t counter) const {
  const auto next = std::lower_bound(points_.begin(), points_.end(), counter,
                                     [](const ProgramPoint& point, uint32_t at) { return point.counter < at; });
  if (next == points_.end()) return kMostScore;
  uint32_t distance = next->counter - counter;
  if (next->branch)
    distance += next->score;
  else if (next->score && distance > next->score)
    distance -= next->score;
  return std::min(distance, kMostScore);
}

bool ProgramPoints::changes(uint32_t counter, uint32_t next) const {
  if (loads_[counter]) return true;
  if (!branches_[counter]) return false;
  const uint32_t expected = distances_[counter] == kMostScore ? kMostScore : std::max(distances_[counter], 1u) - 1;
  return distances_[next] != expected;
}

}  // namespace bandsaw::soft::timing
