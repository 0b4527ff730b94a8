// Plans two kernels beside each other and finds by trying how many blocks each has: an epoch for each partition
// (partition_search.h), until a pair's best one is known. What is tried is judged by measured speeds, not by forecasts:
// the model's are only the sizes of grid slices. A partition whose epoch ended before it was measured, since a tenant
// has left, say, is tried again.
//
// Kernels cannot be given SMs of their own while they run, so all partitions are of blocks on every SM. A pair whose
// best partition is slower than one after the other runs so until its neighbours are tried again.
//
// Source: Park, "Enabling efficient resource utilization on multitasking throughput processors", section 5.4.1.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "vgpu-sched/slice/partition_search.h"
#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

class MaestroPlanner : public Planner {
 public:
  // `model` outlives the planner; it is told of the speeds that are measured.
  MaestroPlanner(CoRunModel& model, const PlannerOptions& options, PartitionGoal goal)
      : model_(model), options_(options), goal_(goal) {}

  Plan plan(const State& state, Time now) override;
  bool tries() const override { return true; }

  // Epochs that were measured.
  std::uint64_t epochs() const { return epochs_; }

 private:
  static constexpr std::size_t kSearches = 256;
  using Key = std::pair<ShapeId, ShapeId>;  // the smaller first
  struct Search {
    BlockNeeds a, b;
    PartitionSearch search;
  };
  struct Epoch {
    Key pair;
    int a = 0, b = 0;  // blocks on each SM
    Time began = 0;
  };

  bool brief(const ReadyKernel& kernel) const;
  bool may_pair(const ReadyKernel& kernel) const;
  void end_epoch(Time now);
  Search& search_of(const Key& pair);
  Plan choose(const State& state, Time now);
  std::optional<Plan> together(const ReadyKernel& one, const ReadyKernel& other, Time now);

  CoRunModel& model_;
  const PlannerOptions options_;
  const PartitionGoal goal_;
  std::map<Key, Search> searches_;
  PartitionHistory history_;
  std::optional<Epoch> epoch_;  // that runs
  std::uint64_t epochs_ = 0;
};

}  // namespace bandsaw::slice
