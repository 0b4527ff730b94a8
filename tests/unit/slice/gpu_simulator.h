// A GPU in virtual time for the co-scheduler: grid slices get room on the SMs in order of arrival, what is left over
// goes to the next; blocks share issue slots and bandwidth. Fluid, deterministic, and on purpose not the model under
// test: a block's time is its own latency plus a delay for each instruction and each access, which are as long as it
// takes for issue slots and bandwidth not to be exceeded.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tools/benchmarks/research/planning/metrics.h"
#include "vgpu-sched/slice/coscheduler.h"
#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {

// A kernel as the hardware sees it; none of this but `needs` is told to the planners.
struct SimKernel {
  std::string name;
  BlockNeeds needs;
  double instructions = 0;  // of a warp
  double accesses = 0;      // of a warp
  double uncoalesced = 0;   // of the accesses
  double bytes = 128;       // of an access
  double parallel = 1;      // accesses of a warp under way at once
  double dependency = 3;    // cycles from an instruction to the next
};

// So many resident blocks of a kernel on the whole GPU.
struct Resident {
  const SimKernel* kernel;
  double blocks;
};

// How much of a kernel is measured beside its time alone.
enum class Known { kInstructionMix, kHalf, kCounts };

class SimGpu {
 public:
  explicit SimGpu(const GpuModel& gpu) : gpu_(gpu) {}

  const GpuModel& gpu() const { return gpu_; }

  // Blocks per nanosecond of each.
  std::vector<double> rates(const std::vector<Resident>& residents) const {
    const double issue = gpu_.clock * gpu_.virtual_sms();
    const double memory = gpu_.bandwidth;
    double wait_issue = 0;
    double wait_memory = 0;
    std::vector<double> rates;
    const auto fits = [&] {
      rates = at(residents, wait_issue, wait_memory);
      double slots = 0, bytes = 0;
      for (std::size_t i = 0; i < rates.size(); ++i) {
        const SimKernel& kernel = *residents[i].kernel;
        slots += rates[i] * kernel.instructions * kernel.needs.warps();
        bytes += rates[i] * kernel.accesses * kernel.needs.warps() * kernel.bytes;
      }
      return std::pair(slots <= issue, bytes <= memory);
    };
    // Either delay is the least with which its resource is not exceeded, given the other; few rounds settle both.
    for (int round = 0; round < 12; ++round) {
      const auto settle = [&](double& wait, bool first) {
        wait = 0;
        const auto within = [&] { return first ? fits().first : fits().second; };
        if (within()) return;
        double low = 0, high = 1e5;
        for (int i = 0; i < 40; ++i) {
          wait = (low + high) / 2;
          (within() ? high : low) = wait;
        }
        wait = high;
      };
      settle(wait_issue, true);
      settle(wait_memory, false);
    }
    fits();
    return rates;
  }

  double solo_rate(const SimKernel& kernel) const {
    const double blocks = static_cast<double>(resident_blocks(gpu_, kernel.needs)) * gpu_.sms;
    return rates({{&kernel, blocks}})[0];
  }

  // What the runner would measure and the analysis would say.
  KernelProfile profile(const SimKernel& kernel, Known known) const {
    const double rate = solo_rate(kernel);
    const double half = 0.5 * resident_blocks(gpu_, kernel.needs) * gpu_.sms;
    const bool counted = known == Known::kCounts;
    const double warps = kernel.needs.warps();
    return {.needs = kernel.needs,
            .block_ns = 1 / rate,
            .memory = kernel.accesses / kernel.instructions,
            .uncoalesced = kernel.uncoalesced,
            .instructions = counted ? kernel.instructions * warps : 0,
            .bytes_per_ns = counted ? rate * kernel.accesses * warps * kernel.bytes : 0,
            .half_speed = known == Known::kHalf ? rates({{&kernel, half}})[0] / rate : 0};
  }

 private:
  std::vector<double> at(const std::vector<Resident>& residents, double wait_issue, double wait_memory) const {
    std::vector<double> rates;
    for (const Resident& one : residents) {
      const SimKernel& kernel = *one.kernel;
      const double latency = gpu_.latency + kernel.uncoalesced * (gpu_.latency_uncoalesced - gpu_.latency);
      const double own = kernel.instructions * kernel.dependency + kernel.accesses / kernel.parallel * latency;
      rates.push_back(one.blocks /
                      (own / gpu_.clock + kernel.instructions * wait_issue + kernel.accesses * wait_memory));
    }
    return rates;
  }

  GpuModel gpu_;
};

// Speeds of pairs as the simulated GPU has them: what OPT is given.
class SimTable : public PairSource {
 public:
  SimTable(const SimGpu& gpu, std::vector<SimKernel> kernels) : gpu_(gpu), kernels_(std::move(kernels)) {}

  PairForecast pair(ShapeId a, int resident_a, ShapeId b, int resident_b) override {
    const auto [place, fresh] = known_.try_emplace({a, resident_a, b, resident_b});
    if (fresh) {
      const double sms = gpu_.gpu().sms;
      const auto rates = gpu_.rates({{&kernels_[a], resident_a * sms}, {&kernels_[b], resident_b * sms}});
      place->second = {.speed_a = rates[0] / gpu_.solo_rate(kernels_[a]),
                       .speed_b = rates[1] / gpu_.solo_rate(kernels_[b]),
                       .measured = true};
    }
    return place->second;
  }

 private:
  const SimGpu& gpu_;
  std::vector<SimKernel> kernels_;  // by shape
  std::map<std::tuple<ShapeId, int, ShapeId, int>, PairForecast> known_;
};

// A call of kernel `kind` (its shape too).
struct Job {
  ShapeId kind;
  Blocks blocks;
  Time arrival;
};

// Blocks per nanosecond of each, by what lies on the GPU.
using SimRates = std::map<std::vector<std::pair<ShapeId, double>>, std::vector<double>>;

struct SimOptions {
  Time launch = 4 * kMicrosecond;  // from the issue of a grid slice to its first block
  double noise = 0;                // standard deviation of a grid slice's length
  std::uint64_t seed = 1;
  SimRates* rates = nullptr;  // for several runs of the same kernels; outlives them
};

struct SimResult {
  std::vector<research::Outcome> outcomes;
  std::uint64_t plans = 0;
  std::uint64_t slices = 0;
  int refused = 0;  // events that the scheduler refused
  double seconds() const { return static_cast<double>(research::total_time(outcomes)) * 1e-9; }
};

// Runs the jobs to their end.
class Simulation {
 public:
  Simulation(const SimGpu& gpu, const std::vector<SimKernel>& kernels, const std::vector<Blocks>& minimums,
             std::unique_ptr<Planner> planner, const SimOptions& options = {}, SpeedMeter* meter = nullptr)
      : gpu_(gpu),
        kernels_(kernels),
        minimums_(minimums),
        scheduler_(std::move(planner), meter),
        options_(options),
        random_(options.seed) {}

  SimResult run(const std::vector<Job>& jobs) {
    std::size_t next = 0;
    SimResult result;
    result.outcomes.resize(jobs.size());
    double now = 0;
    while (next < jobs.size() || !grid_slices_.empty()) {
      allot(now);
      double then = next < jobs.size() ? static_cast<double>(jobs[next].arrival) : 1e300;
      for (const GridSlice& slice : grid_slices_) {
        if (slice.begins > now) then = std::min(then, slice.begins);
        if (slice.rate > 0) then = std::min(then, now + slice.left / slice.rate);
      }
      for (GridSlice& slice : grid_slices_) slice.left -= slice.rate * (then - now);
      now = then;
      for (; next < jobs.size() && static_cast<double>(jobs[next].arrival) <= now; ++next) {
        const Job& job = jobs[next];
        const Call call{
            .id = next, .stream = next, .shape = job.kind, .blocks = job.blocks, .minimum = minimums_[job.kind]};
        result.refused += scheduler_.arrival(call, job.arrival) != Error::kNone;
        result.outcomes[next] = {
            .arrived = job.arrival,
            .ended = 0,
            .alone = static_cast<Time>(static_cast<double>(job.blocks) / gpu_.solo_rate(kernels_[job.kind]))};
      }
      finish(now, jobs, &result);
      pump(now, jobs, &result);
    }
    result.plans = scheduler_.plans();
    return result;
  }

 private:
  struct GridSlice {
    KernelId id;
    Blocks first;
    Blocks blocks;
    double begins;
    double left;
    double resident = 0;
    double rate = 0;
    double most = 1e18;  // persistent blocks
    Sharing sharing = Sharing::kSpace;
    ShapeId kind = 0;
    double factor = 1;
  };

  void finish(double now, const std::vector<Job>& jobs, SimResult* result) {
    const auto done = static_cast<Time>(now);
    for (GridSlice& slice : grid_slices_) {
      if (slice.sharing != Sharing::kPersistent) continue;
      const auto ran =
          static_cast<Blocks>(std::max(0.0, static_cast<double>(slice.blocks) - std::max(slice.left, 0.0)));
      result->refused += scheduler_.progress(slice.id, ran) != Error::kNone;
    }
    for (std::size_t i = 0; i < grid_slices_.size();) {
      if (grid_slices_[i].left > 1e-6) {
        ++i;
        continue;
      }
      bool over = false;
      result->refused +=
          scheduler_.grid_slice_done(grid_slices_[i].id, grid_slices_[i].first, done, &over) != Error::kNone;
      if (over) result->outcomes[grid_slices_[i].id].ended = done;
      grid_slices_.erase(grid_slices_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void pump(double now, const std::vector<Job>& jobs, SimResult* result) {
    while (const auto issue = scheduler_.next(static_cast<Time>(now))) {
      const double most = issue->sharing == Sharing::kPersistent && issue->resident > 0
                              ? static_cast<double>(issue->resident) * gpu_.gpu().sms
                              : 1e18;
      if (issue->kind == Issue::Kind::kPersistent) {
        for (GridSlice& slice : grid_slices_) {
          if (slice.id != issue->kernel) continue;
          slice.most = most;
          slice.resident = std::min(slice.resident, most);
        }
        continue;
      }
      ++result->slices;
      const double factor = std::max(0.3, std::normal_distribution<double>(1, options_.noise)(random_));
      grid_slices_.push_back({.id = issue->kernel,
                              .first = issue->range.first,
                              .blocks = issue->range.blocks,
                              .begins = now + static_cast<double>(options_.launch),
                              .left = static_cast<double>(issue->range.blocks),
                              .most = most,
                              .sharing = issue->sharing,
                              .kind = jobs[issue->kernel].kind,
                              .factor = options_.noise > 0 ? factor : 1});
    }
  }

  // Left-over policy: in the order in which grid slices came; those that lie on the GPU keep what they have.
  void allot(double now) {
    const GpuModel& gpu = gpu_.gpu();
    double footprints = 0;
    for (GridSlice& slice : grid_slices_) footprints += slice.resident * part(slice.kind);
    bool taken = false;
    for (GridSlice& slice : grid_slices_) {
      slice.rate = 0;
      if (slice.begins > now || (slice.sharing == Sharing::kDriver && taken)) continue;
      taken = true;
      const double one = part(slice.kind);
      const double limit = std::min({static_cast<double>(resident_blocks(gpu, kernels_[slice.kind].needs)) * gpu.sms,
                                     static_cast<double>(slice.blocks), slice.most});
      const double more = std::min(limit - slice.resident, std::floor((gpu.sms - footprints) / one + 1e-9));
      if (more <= 0) continue;
      slice.resident += more;
      footprints += more * one;
    }
    std::vector<Resident> residents;
    std::vector<GridSlice*> running;
    for (GridSlice& slice : grid_slices_) {
      if (slice.begins > now || slice.resident <= 0) continue;
      residents.push_back({&kernels_[slice.kind], slice.resident});
      running.push_back(&slice);
    }
    std::vector<std::pair<ShapeId, double>> key;
    for (std::size_t i = 0; i < running.size(); ++i) key.emplace_back(running[i]->kind, residents[i].blocks);
    auto [place, fresh] = (options_.rates ? *options_.rates : rates_).try_emplace(key);
    if (fresh) place->second = gpu_.rates(residents);
    for (std::size_t i = 0; i < running.size(); ++i) running[i]->rate = place->second[i] / running[i]->factor;
  }

  // The part of an SM that one block takes, by its scarcest resource.
  double part(ShapeId kind) const { return 1.0 / resident_blocks(gpu_.gpu(), kernels_[kind].needs); }

  const SimGpu& gpu_;
  const std::vector<SimKernel>& kernels_;
  std::vector<Blocks> minimums_;
  CoScheduler scheduler_;
  SimOptions options_;
  std::mt19937_64 random_;
  std::vector<GridSlice> grid_slices_;
  SimRates rates_;
};

}  // namespace bandsaw::slice
