// How two kernels share the SMs, found by trying: an incumbent partition and its neighbours run for an epoch each, and
// the best one is the next incumbent. Kernels may also have half of the SMs each.
//
// Hardware lets nobody give single SMs another partition for a trial, so a trial has all SMs for its epoch: time stands
// in for the paper's trial and dedicated SMs.
//
// Pure: no clock, no threads; one thread at a time. Source: Park, "Enabling efficient resource utilization on
// multitasking throughput processors", section 5.4.1.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

struct Partition {
  bool spatial = false;  // half of the SMs each, as many blocks as fit there
  int a = 0, b = 0;      // else: blocks of each on every SM
  bool operator==(const Partition&) const = default;
};

enum class PartitionGoal : std::uint8_t {
  kTurnaround,  // least mean of 1 / speed (ANTT)
  kThroughput,  // largest sum of speeds (STP)
};

class PartitionSearch {
 public:
  // `start`: what was best for this pair before; what does not fit any more is ignored. Without one: even.
  PartitionSearch(const GpuModel& gpu, const BlockNeeds& a, const BlockNeeds& b, PartitionGoal goal,
                  std::optional<Partition> start = {});

  // No block of one fits beside a block of the other, and the GPU cannot be halved: nothing is to be planned.
  bool impossible() const { return turns_.empty(); }
  // What runs in the coming epoch.
  const Partition& next() const { return turns_[turn_].partition; }
  // Speeds of both in it, relative to each alone on the whole GPU. What cannot be (not above 0, not a number) says
  // nothing of that partition: it is not chosen, but tried again later.
  void measured(double speed_a, double speed_b);
  const Partition& incumbent() const { return incumbent_; }
  // The incumbent was better than all its neighbours: until they are tried again, it runs.
  bool is_steady() const { return steady_ > 0; }

 private:
  struct Turn {
    Partition partition;
    std::optional<double> loss;
  };
  std::optional<Partition> with(int blocks) const;
  void begin_round();
  void end_round();
  double loss(double speed_a, double speed_b) const;

  const GpuModel gpu_;
  const BlockNeeds first_, second_;  // the first is the one of which fewer fit: its number of blocks is varied
  const bool swapped_;
  const PartitionGoal goal_;
  Partition incumbent_;
  std::vector<Turn> turns_;  // of this round: the incumbent, then its neighbours
  std::size_t turn_ = 0;
  int steady_ = 0;  // epochs until the neighbours are tried again
};

// What was best, by pair of shapes.
class PartitionHistory {
 public:
  void keep(ShapeId a, ShapeId b, const Partition& best);
  std::optional<Partition> find(ShapeId a, ShapeId b) const;

 private:
  static constexpr std::size_t kMost = 4096;               // pairs; more are not kept
  std::map<std::pair<ShapeId, ShapeId>, Partition> best_;  // the smaller shape first
};

}  // namespace bandsaw::slice
