#include "vgpu-sched/slice/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

constexpr std::size_t kEntries = 1 << 14;
constexpr double kMost = 0.98;       // no queue of a chain is busier than that: measurements above it are noise
constexpr double kAllWaits = 0.56;   // below it, half the warps have half the speed: the delay is only bounded
constexpr double kUsedUp = 0.95;     // above it, a measurement says little about the delay
constexpr double kSaturated = 0.94;  // above it, half the warps do the work of all: a resource is used up
constexpr double kSlotsFree = 0.6;   // below it, that resource is not an issue slot, nor a pipe of half its rate

bool good(const KernelProfile& profile) {
  const auto part = [](double value) { return value >= 0 && value <= 1; };
  return std::isfinite(profile.block_ns) && profile.block_ns > 0 && part(profile.memory) && part(profile.uncoalesced) &&
         std::isfinite(profile.instructions) && profile.half_speed >= 0 && profile.half_speed <= 2 &&
         profile.one_speed >= 0 && profile.one_speed <= 2 && profile.most_resident >= 0 && profile.instructions >= 0 &&
         std::isfinite(profile.bytes_per_ns) && profile.bytes_per_ns >= 0;
}

// Of the accesses as many as the profile says; of the bytes, what these are.
void set_scattered(const GpuModel& gpu, double uncoalesced, Demand* demand) {
  const double scattered = uncoalesced * gpu.bytes_uncoalesced;
  const double all = scattered + (1 - uncoalesced) * gpu.bytes_coalesced;
  demand->scattered = uncoalesced;
  demand->scattered_memory = all > 0 ? scattered / all : 0;
}

bool near(double a, double b) { return std::abs(a - b) <= 0.05 * std::max(std::abs(a), std::abs(b)); }

bool alike(const Fit& a, const Fit& b) {
  return a.resident == b.resident && near(a.profile.block_ns, b.profile.block_ns) && near(a.pur, b.pur) &&
         near(a.mur, b.mur) && near(a.demand.delay, b.demand.delay) && near(a.demand.scattered, b.demand.scattered);
}

std::uint64_t key_of(ShapeId a, int resident_a, ShapeId b, int resident_b) {
  return (std::uint64_t{a} << 40) | (std::uint64_t{b} << 16) | (static_cast<std::uint64_t>(resident_a & 0x7f) << 8) |
         static_cast<std::uint64_t>(resident_b & 0x7f) | 0x80;
}

}  // namespace

CoRunModel::CoRunModel(const GpuModel& gpu, const ModelOptions& options)
    : gpu_(gpu), options_(options), entries_(kEntries) {}

// The delay is what the measurements leave room for: the IPC, where instructions or bandwidth are known; else the speed
// at half the occupancy; else the chain is believed with the delay that such an instruction mix has without load. A
// kernel that has used up a resource only bounds its delay: then the instruction mix's is taken where it is shorter.
Fit CoRunModel::make_fit(const KernelProfile& profile) const {
  Fit fit;
  fit.profile = profile;
  fit.resident = resident_blocks(gpu_, profile.needs);
  if (profile.most_resident > 0) fit.resident = std::min(fit.resident, profile.most_resident);
  fit.warps = static_cast<double>(profile.needs.warps()) / gpu_.schedulers;
  const double warps = fit.warps * fit.resident;
  const double cycles = profile.block_ns * gpu_.clock * gpu_.virtual_sms();   // of all virtual SMs, per block
  const double bandwidth = gpu_.bandwidth / gpu_.clock / gpu_.virtual_sms();  // bytes per cycle of one
  const double ipc = measured_ipc(profile, &fit.demand.memory);
  const double latency = gpu_.latency * (1 - profile.uncoalesced) + gpu_.latency_uncoalesced * profile.uncoalesced;
  const double unloaded = gpu_.dependency + profile.memory * latency;
  fit.demand.memory /= bandwidth;
  double& delay = fit.demand.delay;
  fit.demand.accesses = profile.memory;
  if (options_.three_states) set_scattered(gpu_, profile.uncoalesced, &fit.demand);
  if (ipc > 0 && profile.half_speed > kSaturated) {
    const bool memory = fit.demand.memory > 1 || (ipc < kSlotsFree && profile.memory > 0);
    if (memory) fit.demand.memory = kMost / ipc;
    if (!memory) fit.demand.issue = std::max(1.0, kMost / ipc);
    fit.demand.memory = std::min(fit.demand.memory, kMost / ipc);
    delay = unloaded;
    if (profile.one_speed > 0) delay = delay_for(fit.demand, fit.warps, profile.one_speed * ipc, own_order());
  } else if (ipc > 0) {
    fit.demand.memory = std::min(fit.demand.memory, kMost / ipc);
    delay = delay_for(fit.demand, warps, ipc, own_order());
    const bool used_up = std::max(ipc, ipc * fit.demand.memory) > kUsedUp;
    if (used_up) delay = std::min(delay, unloaded);
  } else if (profile.half_speed > 0) {
    const double half = std::clamp(profile.half_speed, kAllWaits, 1.0);
    delay = delay_for_half(fit.demand, warps, half, own_order());
    if (profile.half_speed > kUsedUp) delay = std::min(std::max(delay, gpu_.dependency), unloaded);
    if (half == kAllWaits) delay = std::max(delay, unloaded);
  } else {
    delay = unloaded;
  }
  const ChainResult alone = solve_one(fit.demand, warps, own_order());
  fit.ipc = alone.ipc_a;
  fit.pur = alone.issue;
  fit.mur = alone.memory;
  fit.instructions = fit.ipc * cycles;
  return fit;
}

// Instructions per cycle of a virtual SM, 0: not known; and the bytes of an instruction.
double CoRunModel::measured_ipc(const KernelProfile& profile, double* bytes) const {
  const double cycles = profile.block_ns * gpu_.clock * gpu_.virtual_sms();
  const double access = gpu_.bytes_coalesced * (1 - profile.uncoalesced) + gpu_.bytes_uncoalesced * profile.uncoalesced;
  *bytes = profile.memory * access;
  if (profile.instructions > 0) {
    if (profile.bytes_per_ns > 0) *bytes = profile.bytes_per_ns * profile.block_ns / profile.instructions;
    return std::min(profile.instructions / cycles, kMost);
  }
  if (profile.bytes_per_ns <= 0 || *bytes <= 0) return 0;
  const double moved = profile.bytes_per_ns / gpu_.clock / gpu_.virtual_sms();  // bytes per cycle
  const double ipc = std::min(moved / *bytes, kMost);
  *bytes = moved / ipc;
  return ipc;
}

ShapeId CoRunModel::add(const KernelProfile& profile) {
  if (!good(profile) || resident_blocks(gpu_, profile.needs) == 0) return kNoShape;
  if (free_.empty() && fits_.size() >= kMaxShapes) return kNoShape;
  ShapeId shape = static_cast<ShapeId>(fits_.size());
  if (free_.empty()) {
    fits_.emplace_back();
  } else {
    shape = free_.back();
    free_.pop_back();
  }
  fits_[shape] = make_fit(profile);
  fits_[shape].version = ++versions_;
  return shape;
}

Error CoRunModel::update(ShapeId shape, const KernelProfile& profile) {
  if (fit(shape) == nullptr || !good(profile) || resident_blocks(gpu_, profile.needs) == 0) return Error::kBadProfile;
  Fit next = make_fit(profile);
  if (alike(fits_[shape], next)) return Error::kNone;
  next.version = ++versions_;
  fits_[shape] = next;
  return Error::kNone;
}

void CoRunModel::remove(ShapeId shape) {
  if (fit(shape) == nullptr) return;
  fits_[shape] = Fit{};
  free_.push_back(shape);
}

const Fit* CoRunModel::fit(ShapeId shape) const {
  return shape < fits_.size() && fits_[shape].version != 0 ? &fits_[shape] : nullptr;
}

double CoRunModel::solo(ShapeId shape, int resident) const {
  const Fit* known = fit(shape);
  if (known == nullptr || known->ipc <= 0) return 0;
  const double warps = known->warps * std::clamp(resident, 0, known->resident);
  return solve_one(known->demand, warps, own_order()).ipc_a / known->ipc;
}

CoRunModel::Entry& CoRunModel::entry(ShapeId a, int resident_a, ShapeId b, int resident_b, bool* known) {
  const std::uint64_t key = key_of(a, resident_a, b, resident_b);
  Entry& found = entries_[(key * 0x9e3779b97f4a7c15u) >> 50];
  const std::uint32_t version_a = fits_[a].version;
  const std::uint32_t version_b = fits_[b].version;
  *known = found.key == key && found.version_a == version_a && found.version_b == version_b;
  if (!*known) found = {.key = key, .version_a = version_a, .version_b = version_b, .forecast = {}};
  return found;
}

PairForecast CoRunModel::pair(ShapeId a, int resident_a, ShapeId b, int resident_b) {
  const Fit* first = fit(a);
  const Fit* second = fit(b);
  if (first == nullptr || second == nullptr) return {};
  if (a > b) {
    const PairForecast other = pair(b, resident_b, a, resident_a);
    return {.speed_a = other.speed_b, .speed_b = other.speed_a, .measured = other.measured};
  }
  bool known = false;
  PairForecast& forecast = entry(a, resident_a, b, resident_b, &known).forecast;
  if (known) return forecast;
  forecast = solve_pair(*first, resident_a, *second, resident_b);
  return forecast;
}

PairForecast CoRunModel::solve_pair(const Fit& first, int resident_a, const Fit& second, int resident_b) {
  return solve_chain(first, resident_a, second, resident_b, Older::kNeither, own_order());
}

PairForecast CoRunModel::solve_chain(const Fit& first, int resident_a, const Fit& second, int resident_b, Older older,
                                     double in_order) {
  ++solved_;
  const ChainResult both =
      solve_two(first.demand, first.warps * resident_a, second.demand, second.warps * resident_b, older, in_order);
  return {.speed_a = both.ipc_a / first.ipc, .speed_b = both.ipc_b / second.ipc};
}

void CoRunModel::observe(ShapeId a, int resident_a, ShapeId b, int resident_b, double speed_a, double speed_b) {
  if (fit(a) == nullptr || fit(b) == nullptr || !(speed_a >= 0) || !(speed_b >= 0)) return;
  if (!std::isfinite(speed_a) || !std::isfinite(speed_b)) return;
  if (a > b) return observe(b, resident_b, a, resident_a, speed_b, speed_a);
  bool known = false;
  PairForecast& forecast = entry(a, resident_a, b, resident_b, &known).forecast;
  const double weight = known && forecast.measured ? 0.25 : 1;
  forecast.speed_a += weight * (speed_a - forecast.speed_a);
  forecast.speed_b += weight * (speed_b - forecast.speed_b);
  forecast.measured = true;
}

}  // namespace bandsaw::slice
