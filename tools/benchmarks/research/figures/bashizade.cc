// Bashizade's figures 10 and 11: the seven kernels of table 3 on a simulated K40c. A kernel uses the part of the issue
// slots that the paper has measured (ISU). What else holds it up is drawn only (figures 7 and 9): here a kernel of low
// ISU is held up by bandwidth, which half of its blocks use up, and one of high ISU by latency. No caches.
#include <algorithm>
#include <string>

#include "tests/unit/slice/gpu_simulator.h"
#include "tools/benchmarks/research/figures/figures.h"
#include "tools/benchmarks/research/planning/make_planner.h"

namespace bandsaw::research {
namespace {

struct Row {
  const char* name;
  Blocks blocks;
  int threads, registers, shared;
  double ms, isu;
};

constexpr Row kRows[] = {{"BO", 1024, 128, 28, 524, 5.476, 0.736},  {"FD", 288, 512, 58, 3848, 8.821, 0.275},
                         {"LM", 512, 128, 64, 7208, 8.958, 0.873},  {"MD", 25432, 384, 30, 8, 71.475, 0.974},
                         {"NB", 128, 256, 49, 8208, 39.155, 0.891}, {"PF", 512, 128, 16, 8, 43.105, 0.486},
                         {"TP", 201, 256, 49, 13320, 11.23, 0.348}};
constexpr double kHighIsu = 0.5;

GpuModel k40c() {
  return {.blocks = 16, .shared = 49152, .shared_block = 0, .sms = 15, .clock = 0.745, .bandwidth = 288};
}

// Instructions by the issue slots that it uses; latency so that alone it takes as long as in the paper.
SimKernel kernel_of(const GpuModel& gpu, const Row& row) {
  SimKernel kernel{.name = row.name, .needs = {row.threads, row.registers, row.shared}};
  const double cycles = row.ms * 1e6 * gpu.clock;
  const double blocks = static_cast<double>(row.blocks);
  kernel.instructions = row.isu * cycles * gpu.virtual_sms() / (blocks * kernel.needs.warps());
  const double resident = std::min(blocks, static_cast<double>(gpu.sms * resident_blocks(gpu, kernel.needs)));
  const double own = cycles * resident / blocks;  // of a block, if nothing but latency held it up
  const bool low = row.isu < kHighIsu;
  kernel.dependency = (low ? 0.5 : 1) * own / kernel.instructions;
  if (low) {
    kernel.accesses = 1e-3 * kernel.instructions;  // so few that their latency is nothing
    kernel.bytes = gpu.bandwidth * row.ms * 1e6 / (blocks * kernel.needs.warps() * kernel.accesses);
  }
  return kernel;
}

struct Times {
  double sequential = 0, persistent = 0, adaptive = 0;
};

// Both orders of arrival, as in the paper; the second comes when the first has begun.
Times times_of(const Row& first, const Row& second) {
  const SimGpu gpu(k40c());
  Times mean;
  for (const bool turned : {false, true}) {
    const Row& one = turned ? second : first;
    const Row& other = turned ? first : second;
    const std::vector<SimKernel> kernels = {kernel_of(gpu.gpu(), one), kernel_of(gpu.gpu(), other)};
    CoRunModel model(gpu.gpu());
    for (const SimKernel& kernel : kernels) model.add(gpu.profile(kernel, Known::kHalf));
    const std::vector<Job> jobs = {{0, one.blocks, 0}, {1, other.blocks, 100 * kMicrosecond}};
    const auto seconds = [&](const char* mode) {
      return Simulation(gpu, kernels, {1, 1}, research::make_planner(mode, model)).run(jobs).seconds() / 2;
    };
    mean.sequential += seconds("time-sliced");
    mean.persistent += seconds("mps");
    mean.adaptive += seconds("persistent-greedy");
  }
  return mean;
}

FigureValues pairs(bool low) {
  FigureValues values;
  double persistent = 0, adaptive = 0, best = 0;
  int count = 0;
  for (std::size_t a = 0; a < std::size(kRows); ++a) {
    for (std::size_t b = a + 1; b < std::size(kRows); ++b) {
      if ((std::min(kRows[a].isu, kRows[b].isu) < kHighIsu) != low) continue;
      const Times times = times_of(kRows[a], kRows[b]);
      const std::string at = std::string(kRows[a].name) + "+" + kRows[b].name;
      const double gain = 100 * (times.sequential / times.adaptive - 1);
      values.push_back({"SiM", at, gain});
      values.push_back({"PT", at, 100 * (times.sequential / times.persistent - 1)});
      adaptive += gain;
      persistent += values.back().value;
      best = std::max(best, gain);
      ++count;
    }
  }
  values.push_back({"SiM", "mean", adaptive / count});
  values.push_back({"PT", "mean", persistent / count});
  values.push_back({"SiM", "best", best});
  return values;
}

}  // namespace

FigureValues bashizade_10() { return pairs(true); }
FigureValues bashizade_11() { return pairs(false); }

}  // namespace bandsaw::research
