#include "vgpu-sched/slice/maestro_planner.h"

#include <algorithm>

#include "vgpu-sched/slice/grid_slice_sizes.h"

namespace bandsaw::slice {
namespace {

constexpr Time kLeastEpoch = 3 * kMillisecond;

bool same(const BlockNeeds& one, const BlockNeeds& other) {
  return one.threads == other.threads && one.registers == other.registers && one.shared == other.shared;
}

// One that cannot give single SMs away.
GpuModel whole(GpuModel gpu) {
  gpu.sms = 1;
  return gpu;
}

}  // namespace

bool MaestroPlanner::brief(const ReadyKernel& kernel) const {
  const Fit* fit = model_.fit(kernel.shape);
  if (fit == nullptr) return false;
  const double time = static_cast<double>(kernel.blocks) * fit->profile.block_ns;
  return kernel.minimum == 0 ? time <= static_cast<double>(options_.brief)
                             : kernel.blocks <= kernel.minimum || time <= static_cast<double>(options_.brief);
}

bool MaestroPlanner::may_pair(const ReadyKernel& kernel) const {
  return kernel.left > 0 && kernel.minimum > 0 && !brief(kernel) && model_.fit(kernel.shape) != nullptr;
}

// Who was measured only for a moment, or not at all, is measured the next time.
void MaestroPlanner::end_epoch(Time now) {
  if (!epoch_ || now - epoch_->began < kLeastEpoch) return;
  const Epoch epoch = *epoch_;
  epoch_.reset();
  const auto found = searches_.find(epoch.pair);
  if (found == searches_.end()) return;
  const PairForecast speeds = model_.pair(epoch.pair.first, epoch.a, epoch.pair.second, epoch.b);
  if (!speeds.measured) return;
  ++epochs_;
  found->second.search.measured(speeds.speed_a, speeds.speed_b);
  history_.keep(epoch.pair.first, epoch.pair.second, found->second.search.incumbent());
}

// A shape's id may have been given to another one since.
MaestroPlanner::Search& MaestroPlanner::search_of(const Key& pair) {
  const BlockNeeds &a = model_.fit(pair.first)->profile.needs, &b = model_.fit(pair.second)->profile.needs;
  auto found = searches_.find(pair);
  if (found != searches_.end() && same(found->second.a, a) && same(found->second.b, b)) return found->second;
  if (found != searches_.end()) searches_.erase(found);
  if (searches_.size() >= kSearches) searches_.clear();  // the best ones are in the history
  const PartitionSearch search(whole(model_.gpu()), a, b, goal_, history_.find(pair.first, pair.second));
  return searches_.emplace(pair, Search{a, b, search}).first->second;
}

std::optional<Plan> MaestroPlanner::together(const ReadyKernel& one, const ReadyKernel& other, Time now) {
  const bool ordered = one.shape < other.shape;
  const ReadyKernel &first = ordered ? one : other, &second = ordered ? other : one;
  const Key pair{first.shape, second.shape};
  const PartitionSearch& search = search_of(pair).search;
  if (search.impossible()) return std::nullopt;
  const Fit &a = *model_.fit(first.shape), &b = *model_.fit(second.shape);
  const int blocks_a = std::min(search.next().a, a.resident), blocks_b = std::min(search.next().b, b.resident);
  const PairForecast forecast = model_.pair(first.shape, blocks_a, second.shape, blocks_b);
  if (search.is_steady() && forecast.measured && forecast.throughput() < 1) {
    // It counts as an epoch, so that its neighbours have their turn again.
    if (!epoch_) epoch_ = {pair, blocks_a, blocks_b, now};
    return std::nullopt;
  }
  const GridSlices slices =
      balanced_grid_slices(model_.gpu(), a, blocks_a, first.minimum, b, blocks_b, second.minimum, forecast);
  if (!epoch_ || epoch_->pair != pair || epoch_->a != blocks_a || epoch_->b != blocks_b)
    epoch_ = {pair, blocks_a, blocks_b, now};
  return Plan{.parts = {{.kernel = first.id, .slice = slices.a, .resident = blocks_a},
                        {.kernel = second.id, .slice = slices.b, .resident = blocks_b}},
              .profit = forecast.profit()};
}

// The one that has waited longest, and the next of another shape.
Plan MaestroPlanner::choose(const State& state, Time now) {
  const auto oldest = std::find_if(state.ready.begin(), state.ready.end(),
                                   [this](const ReadyKernel& kernel) { return kernel.left > 0 && !brief(kernel); });
  if (oldest == state.ready.end()) return {};
  if (may_pair(*oldest)) {
    for (const ReadyKernel& other : state.ready) {
      if (other.shape == oldest->shape || !may_pair(other)) continue;
      if (auto plan = together(*oldest, other, now)) return *plan;
    }
  }
  return {.parts = {grid_slices_alone(model_, *oldest)}};
}

Plan MaestroPlanner::plan(const State& state, Time now) {
  end_epoch(now);
  Plan plan = choose(state, now);
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0 && brief(kernel)) plan.parts.push_back({.kernel = kernel.id});
  }
  return plan;
}

}  // namespace bandsaw::slice
