#include "vgpu-sched/slice/pair_planner.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "vgpu-sched/slice/grid_slice_sizes.h"

namespace bandsaw::slice {
namespace {

constexpr std::size_t kChoices = 1 << 12;
constexpr std::size_t kCandidates = 32;  // shapes looked at in one decision, those that wait longest

}  // namespace

PairPlanner::PairPlanner(const CoRunModel& model, PairSource& source, const PlannerOptions& options,
                         const PairRules& rules)
    : model_(model), source_(source), options_(options), rules_(rules), choices_(kChoices) {
  candidates_.reserve(kCandidates);
  pending_.reserve(kCandidates * kCandidates / 2);
}

bool PairPlanner::brief(const ReadyKernel& kernel) const {
  if (kernel.minimum >= kernel.blocks) return true;
  const Fit* fit = model_.fit(kernel.shape);
  if (fit == nullptr) return kernel.minimum == 0;
  return static_cast<double>(kernel.blocks) * fit->profile.block_ns <= static_cast<double>(options_.brief);
}

void PairPlanner::gather(const State& state) {
  candidates_.clear();
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left == 0 || kernel.minimum == 0 || candidates_.size() == kCandidates || brief(kernel)) continue;
    const Fit* fit = model_.fit(kernel.shape);
    const bool again = std::any_of(candidates_.begin(), candidates_.end(),
                                   [&](const Candidate& other) { return other.kernel->shape == kernel.shape; });
    if (fit != nullptr && !again) candidates_.push_back({.kernel = &kernel, .fit = fit});
  }
}

// `bound`: the throughput that issue slots and bandwidth allow if both kernels run at one speed.
bool PairPlanner::worth_evaluating(const Fit& a, const Fit& b, double* bound) {
  ++seen_;
  const double busiest = std::max({1.0, a.pur + b.pur, a.mur + b.mur});
  *bound = 2 / busiest;
  if (!rules_.prune) return true;
  const bool apart = std::abs(a.pur - b.pur) >= options_.apart_pur || std::abs(a.mur - b.mur) >= options_.apart_mur;
  if (apart && a.resident > 0 && b.resident > 0) return true;
  ++pruned_;
  return false;
}

PairPlanner::Choice* PairPlanner::known(const Candidate& first, const Candidate& second) {
  const ShapeId a = first.kernel->shape;
  const ShapeId b = second.kernel->shape;
  Choice& choice = choices_[((std::uint64_t{a} << 32 | b) * 0x9e3779b97f4a7c15u) >> 52];
  const bool same = choice.a == a && choice.b == b && choice.version_a == first.fit->version &&
                    choice.version_b == second.fit->version;
  if (!same || choice.resident_a == 0) return same ? &choice : nullptr;
  // What was measured since may have changed its worth, and with it the best ratio.
  const PairForecast now = source_.pair(a, choice.resident_a, b, choice.resident_b);
  if (std::abs(now.throughput() - choice.forecast.throughput()) > 0.02) return nullptr;
  return &choice;
}

const PairPlanner::Choice& PairPlanner::decide(const Candidate& first, const Candidate& second) {
  const ShapeId a = first.kernel->shape;
  const ShapeId b = second.kernel->shape;
  Choice& choice = choices_[((std::uint64_t{a} << 32 | b) * 0x9e3779b97f4a7c15u) >> 52];
  choice = {.a = a, .b = b, .version_a = first.fit->version, .version_b = second.fit->version, .forecast = {}};
  for (const Ratio& ratio : ratios_of(model_.gpu(), *first.fit, *second.fit, rules_.ratios)) {
    const PairForecast forecast = source_.pair(a, ratio.a, b, ratio.b);
    if (choice.resident_a != 0 && forecast.throughput() <= choice.forecast.throughput()) continue;
    choice.resident_a = ratio.a;
    choice.resident_b = ratio.b;
    choice.forecast = forecast;
  }
  return choice;
}

Plan PairPlanner::together(const Choice& choice, const Candidate& first, const Candidate& second) const {
  const GridSlices slices =
      balanced_grid_slices(model_.gpu(), *first.fit, choice.resident_a, first.kernel->minimum, *second.fit,
                           choice.resident_b, second.kernel->minimum, choice.forecast);
  return {.parts = {{.kernel = first.kernel->id, .slice = slices.a, .resident = choice.resident_a},
                    {.kernel = second.kernel->id, .slice = slices.b, .resident = choice.resident_b}},
          .profit = choice.forecast.profit()};
}

void PairPlanner::consider(const Choice& choice, const Pair& pair, Best* best) const {
  const double profit = choice.forecast.profit();
  if (choice.resident_a == 0 || profit < options_.least_profit) return;
  if (best->choice.resident_a == 0 || profit > best->profit) *best = {.choice = choice, .pair = pair, .profit = profit};
}

// All pairs, or those with `wanted`: what is known is considered, what is not known is pending.
void PairPlanner::scan(const ReadyKernel* wanted, Best* best) {
  pending_.clear();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    for (std::size_t j = i + 1; j < candidates_.size(); ++j) {
      if (wanted != nullptr && candidates_[i].kernel != wanted) continue;
      const bool ordered = candidates_[i].kernel->shape < candidates_[j].kernel->shape;
      Pair pair{.first = ordered ? i : j, .second = ordered ? j : i, .bound = 0};
      const Candidate& first = candidates_[pair.first];
      const Candidate& second = candidates_[pair.second];
      if (!worth_evaluating(*first.fit, *second.fit, &pair.bound)) continue;
      if (const Choice* choice = known(first, second)) {
        consider(*choice, pair, best);
      } else {
        pending_.push_back(pair);
      }
    }
  }
  std::sort(pending_.begin(), pending_.end(), [](const Pair& a, const Pair& b) {
    return std::tie(b.bound, a.first, a.second) < std::tie(a.bound, b.first, b.second);
  });
}

Plan PairPlanner::plan(const State& state, Time now) {
  Plan plan = choose(state, now);
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0 && brief(kernel)) plan.parts.push_back({.kernel = kernel.id});
  }
  return plan;
}

// Among those that are not brief.
Plan PairPlanner::choose(const State& state, Time now) {
  const auto oldest = std::find_if(state.ready.begin(), state.ready.end(),
                                   [this](const ReadyKernel& kernel) { return kernel.left > 0 && !brief(kernel); });
  if (oldest == state.ready.end()) return {};
  if (oldest->minimum == 0 || model_.fit(oldest->shape) == nullptr)
    return {.parts = {grid_slices_alone(model_, *oldest)}};
  const bool urgent = now - oldest->ready_since >= options_.wait_limit;
  gather(state);
  Best best;
  scan(urgent ? &*oldest : nullptr, &best);
  const std::uint64_t before = model_.solved();
  for (const Pair& pair : pending_) {
    if (rules_.solves > 0 && model_.solved() - before >= static_cast<std::uint64_t>(rules_.solves)) break;
    consider(decide(candidates_[pair.first], candidates_[pair.second]), pair, &best);
  }
  if (best.choice.resident_a == 0) return {.parts = {grid_slices_alone(model_, *oldest)}};
  return together(best.choice, candidates_[best.pair.first], candidates_[best.pair.second]);
}

}  // namespace bandsaw::slice
