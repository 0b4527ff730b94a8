#include "vgpu-sched/slice/partition_search.h"

#include <algorithm>
#include <cmath>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

constexpr int kEpochsBetweenRounds = 100;
// A neighbour that is no better than this is noise.
constexpr double kBetter = 0.005;

bool fewer_fit(const GpuModel& gpu, const BlockNeeds& a, const BlockNeeds& b) {
  return resident_blocks(gpu, b) < resident_blocks(gpu, a);
}

}  // namespace

PartitionSearch::PartitionSearch(const GpuModel& gpu, const BlockNeeds& a, const BlockNeeds& b, PartitionGoal goal,
                                 std::optional<Partition> start)
    : gpu_(gpu),
      first_(fewer_fit(gpu, a, b) ? b : a),
      second_(fewer_fit(gpu, a, b) ? a : b),
      swapped_(fewer_fit(gpu, a, b)),
      goal_(goal) {
  const int most = resident_blocks(gpu_, first_);
  if (most == 0 || resident_blocks(gpu_, second_) == 0) return;  // one of them can never run
  std::optional<Partition> even;
  for (int blocks = std::max(1, most / 2); blocks >= 1 && !even; --blocks) even = with(blocks);
  const bool halves = gpu_.sms >= 2;
  if (!even && !halves) return;
  incumbent_ = even.value_or(Partition{.spatial = true});
  if (start && start->spatial && halves) incumbent_ = *start;
  if (start && !start->spatial && with(swapped_ ? start->b : start->a) == start) incumbent_ = *start;
  begin_round();
}

// So many blocks of the first, and of the second as many as fit beside them. Nothing: none does.
std::optional<Partition> PartitionSearch::with(int blocks) const {
  if (blocks < 1 || blocks > resident_blocks(gpu_, first_)) return std::nullopt;
  const int others = fit(gpu_, beside(gpu_, room_of(gpu_), first_, blocks), second_);
  if (others < 1) return std::nullopt;
  return swapped_ ? Partition{.a = others, .b = blocks} : Partition{.a = blocks, .b = others};
}

void PartitionSearch::begin_round() {
  turns_ = {{incumbent_, {}}};
  turn_ = 0;
  const int blocks = swapped_ ? incumbent_.b : incumbent_.a;
  const int middle = std::max(1, resident_blocks(gpu_, first_) / 2);
  for (const int near : {(incumbent_.spatial ? middle : blocks + 1), (incumbent_.spatial ? middle + 1 : blocks - 1)})
    if (const auto other = with(near)) turns_.push_back({*other, {}});
  if (!incumbent_.spatial && gpu_.sms >= 2) turns_.push_back({{.spatial = true}, {}});
}

double PartitionSearch::loss(double speed_a, double speed_b) const {
  return goal_ == PartitionGoal::kTurnaround ? (1 / speed_a + 1 / speed_b) / 2 : 1 / (speed_a + speed_b);
}

void PartitionSearch::measured(double speed_a, double speed_b) {
  if (impossible()) return;
  if (steady_ > 0) {
    if (--steady_ == 0) begin_round();
    return;
  }
  const bool sound = std::isfinite(speed_a) && std::isfinite(speed_b) && speed_a > 0 && speed_b > 0;
  if (sound) turns_[turn_].loss = loss(speed_a, speed_b);
  if (++turn_ == turns_.size()) end_round();
}

void PartitionSearch::end_round() {
  const Turn* best = &turns_[0];
  for (const Turn& turn : turns_) {
    if (!turn.loss) continue;
    if (!best->loss || *turn.loss < *best->loss * (1 - kBetter)) best = &turn;
  }
  const bool stays = best == &turns_[0];
  incumbent_ = Partition(best->partition);
  begin_round();
  if (stays) steady_ = kEpochsBetweenRounds;
}

void PartitionHistory::keep(ShapeId a, ShapeId b, const Partition& best) {
  const Partition ordered = a <= b ? best : Partition{best.spatial, best.b, best.a};
  const std::pair key{std::min(a, b), std::max(a, b)};
  if (best_.size() < kMost || best_.contains(key)) best_[key] = ordered;
}

std::optional<Partition> PartitionHistory::find(ShapeId a, ShapeId b) const {
  const auto found = best_.find({std::min(a, b), std::max(a, b)});
  if (found == best_.end()) return std::nullopt;
  const Partition& best = found->second;
  return a <= b ? best : Partition{best.spatial, best.b, best.a};
}

}  // namespace bandsaw::slice
