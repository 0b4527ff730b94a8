// Kernelet's eight kernels and four mixes (section 5.1, table 2), as the simulated GPU sees them.
#pragma once

#include "tests/unit/slice/gpu_simulator.h"
#include "vgpu-sched/slice/tuner.h"

namespace bandsaw::slice {

enum Kind : ShapeId { kPc, kSpmv, kSt, kBs, kMm, kTea, kMriq, kSad };

inline std::vector<SimKernel> eight_kernels() {
  const BlockNeeds plain{.threads = 256, .registers = 32};
  const BlockNeeds tiled{.threads = 256, .registers = 48, .shared = 16384};
  return {{"PC", plain, 2000, 400, 0.0, 128, 1, 4},
          {"SPMV", plain, 3000, 500, 0.5, 576, 3, 3},
          {"ST", plain, 4000, 300, 0.0, 128, 4, 3},
          {"BS", plain, 3000, 60, 0.0, 128, 2, 3},
          {"MM", tiled, 8000, 100, 0.0, 128, 4, 2.5},
          {"TEA", plain, 10000, 20, 0.0, 128, 2, 4},
          {"MRIQ", plain, 12000, 10, 0.0, 128, 1, 6},
          {"SAD", {.threads = 256, .registers = 40}, 2500, 250, 0.1, 217, 3, 3}};
}

struct Mix {
  const char* name;
  std::vector<ShapeId> kinds;
};

inline std::vector<Mix> mixes() {
  return {{"CI", {kBs, kMm, kTea, kMriq}},
          {"MI", {kPc, kSpmv, kSt, kSad}},
          {"MIX", {kPc, kBs, kTea, kSad}},
          {"ALL", {kPc, kSpmv, kSt, kBs, kMm, kTea, kMriq, kSad}}};
}

// `each` instances of every kernel, each about `length` alone, Poisson arrivals, faster than the GPU can keep up with.
inline std::vector<Job> poisson_jobs(const SimGpu& gpu, const std::vector<SimKernel>& kernels, const Mix& mix, int each,
                                     Time length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const double rate = 1.3 / (static_cast<double>(length));
  std::exponential_distribution<double> gap(rate / static_cast<double>(mix.kinds.size()));
  std::vector<Job> jobs;
  for (const ShapeId kind : mix.kinds) {
    double now = 0;
    for (int i = 0; i < each; ++i) {
      now += gap(random);
      const double blocks = static_cast<double>(length) * gpu.solo_rate(kernels[kind]);
      jobs.push_back({.kind = kind, .blocks = static_cast<Blocks>(blocks), .arrival = static_cast<Time>(now)});
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.arrival < b.arrival; });
  return jobs;
}

inline std::vector<Blocks> minimums(const SimGpu& gpu, const std::vector<SimKernel>& kernels, Time length) {
  std::vector<Blocks> all;
  for (const SimKernel& kernel : kernels) {
    const auto blocks = static_cast<Blocks>(static_cast<double>(length) * gpu.solo_rate(kernel));
    const auto wave = static_cast<Blocks>(resident_blocks(gpu.gpu(), kernel.needs)) * gpu.gpu().sms;
    all.push_back(minimum_grid_slice(
        {.whole = length, .overhead = kMicrosecond, .blocks = blocks, .wave = wave, .sms = gpu.gpu().sms}));
  }
  return all;
}

}  // namespace bandsaw::slice
