#include "vgpu-sched/slice/pair_planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

constexpr std::size_t kChoices = 1 << 12;
constexpr std::size_t kCandidates = 32;  // shapes looked at in one decision, those that wait longest
constexpr double kLongestSlice = 256;    // waves beside one wave of much longer blocks

Blocks whole_rows(double blocks, int sms) {
  const auto rows = static_cast<Blocks>(std::max(1.0, std::round(blocks / sms)));
  return rows * static_cast<Blocks>(sms);
}

}  // namespace

std::vector<Ratio> ratios_of(const GpuModel& gpu, const BlockNeeds& a, const BlockNeeds& b, int most) {
  std::vector<Ratio> all;
  const int limit = resident_blocks(gpu, a);
  for (int count = 1; count <= limit; ++count) {
    const int other = fit(gpu, beside(gpu, room_of(gpu), a, count), b);
    if (other == 0) break;
    if (!all.empty() && all.back().b == other) all.pop_back();  // more of a at no cost
    all.push_back({.a = count, .b = other});
  }
  const auto size = static_cast<int>(all.size());
  if (most <= 0 || size <= most) return all;
  std::vector<Ratio> some;
  for (int i = 0; i < most; ++i) some.push_back(all[i * (size - 1) / std::max(most - 1, 1)]);
  return some;
}

Slices balanced_slices(const GpuModel& gpu, const Fit& a, int resident_a, Blocks minimum_a, const Fit& b,
                       int resident_b, Blocks minimum_b, const PairForecast& forecast) {
  double blocks_a = static_cast<double>(resident_a) * gpu.sms;
  double blocks_b = static_cast<double>(resident_b) * gpu.sms;
  const double time_a = blocks_a * a.profile.block_ns / std::max(forecast.speed_a, 1e-3);
  const double time_b = blocks_b * b.profile.block_ns / std::max(forecast.speed_b, 1e-3);
  const double ratio = std::clamp(time_b / time_a, 1 / kLongestSlice, kLongestSlice);
  if (ratio > 1) blocks_a *= ratio;
  if (ratio < 1) blocks_b /= ratio;
  const double scale =
      std::max({1.0, static_cast<double>(minimum_a) / blocks_a, static_cast<double>(minimum_b) / blocks_b});
  return {.a = std::max(whole_rows(blocks_a * scale, gpu.sms), minimum_a),
          .b = std::max(whole_rows(blocks_b * scale, gpu.sms), minimum_b)};
}

PairPlanner::PairPlanner(const CoRunModel& model, PairSource& source, const PlannerOptions& options,
                         const PairRules& rules)
    : model_(model), source_(source), options_(options), rules_(rules), choices_(kChoices) {
  candidates_.reserve(kCandidates);
  pending_.reserve(kCandidates * kCandidates / 2);
}

void PairPlanner::gather(const State& state) {
  candidates_.clear();
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left == 0 || kernel.minimum == 0 || candidates_.size() == kCandidates) continue;
    const Fit* fit = model_.fit(kernel.shape);
    const bool again = std::any_of(candidates_.begin(), candidates_.end(),
                                   [&](const Candidate& other) { return other.kernel->shape == kernel.shape; });
    if (fit != nullptr && !again) candidates_.push_back({.kernel = &kernel, .fit = fit});
  }
}

// `bound`: the throughput that issue slots and bandwidth allow if both kernels run at one speed.
bool PairPlanner::worth_a_look(const Fit& a, const Fit& b, double* bound) {
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
  const BlockNeeds& needs_a = first.fit->profile.needs;
  const BlockNeeds& needs_b = second.fit->profile.needs;
  for (const Ratio& ratio : ratios_of(model_.gpu(), needs_a, needs_b, rules_.ratios)) {
    const PairForecast forecast = source_.pair(a, ratio.a, b, ratio.b);
    if (choice.resident_a != 0 && forecast.throughput() <= choice.forecast.throughput()) continue;
    choice.resident_a = ratio.a;
    choice.resident_b = ratio.b;
    choice.forecast = forecast;
  }
  return choice;
}

Plan PairPlanner::alone(const ReadyKernel& kernel) const {
  const Fit* fit = model_.fit(kernel.shape);
  Part part{.kernel = kernel.id};
  if (kernel.minimum > 0 && fit != nullptr) {
    part.slice = std::max(kernel.minimum, static_cast<Blocks>(fit->resident) * model_.gpu().sms);
  }
  return {.parts = {part}};
}

Plan PairPlanner::together(const Choice& choice, const Candidate& first, const Candidate& second) const {
  const Slices slices = balanced_slices(model_.gpu(), *first.fit, choice.resident_a, first.kernel->minimum, *second.fit,
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
      if (!worth_a_look(*first.fit, *second.fit, &pair.bound)) continue;
      if (const Choice* choice = known(first, second)) {
        consider(*choice, pair, best);
      } else {
        pending_.push_back(pair);
      }
    }
  }
  std::stable_sort(pending_.begin(), pending_.end(), [](const Pair& a, const Pair& b) { return a.bound > b.bound; });
}

Plan PairPlanner::plan(const State& state, Time now) {
  const auto oldest =
      std::find_if(state.ready.begin(), state.ready.end(), [](const ReadyKernel& kernel) { return kernel.left > 0; });
  if (oldest == state.ready.end()) return {};
  const bool urgent = now - oldest->ready_since >= options_.patience;
  if (urgent && (oldest->minimum == 0 || model_.fit(oldest->shape) == nullptr)) return alone(*oldest);
  gather(state);
  Best best;
  scan(urgent ? &*oldest : nullptr, &best);
  const std::uint64_t before = model_.solved();
  for (const Pair& pair : pending_) {
    if (rules_.solves > 0 && model_.solved() - before >= static_cast<std::uint64_t>(rules_.solves)) break;
    consider(decide(candidates_[pair.first], candidates_[pair.second]), pair, &best);
  }
  if (best.choice.resident_a == 0) return alone(*oldest);
  return together(best.choice, candidates_[best.pair.first], candidates_[best.pair.second]);
}

}  // namespace bandsaw::slice
