// Cruz's tables 3 and 5: forecasts by production's forecast_overlap and occupancy for the paper's kernels on its
// K40.
#include <string>

#include "tools/benchmarks/research/figures/figures.h"
#include "vgpu-sched/slice/overlap.h"

namespace bandsaw::research {

using namespace slice;

namespace {

struct Launch {
  Blocks blocks;
  int threads, shared, registers;
};

struct Pair {
  const char* name;
  Launch first, second;
};

constexpr Launch kPfl{47, 128, 0, 13};
constexpr Pair kPairs[] = {{"S1-S2", {110, 256, 1024, 0}, {450, 256, 0, 0}},
                           {"S3-S4", {100, 256, 4096, 0}, {60, 256, 0, 0}},
                           {"S5-S6", {42, 512, 256, 0}, {120, 128, 0, 0}},
                           {"S7-S8", {90, 256, 896, 0}, {467, 512, 256, 0}},
                           {"S9-S10", {35, 256, 2048, 0}, {130, 512, 1024, 0}},
                           {"S11-S12", {35, 256, 0, 0}, {230, 256, 0, 0}},
                           {"PFL-kNN", kPfl, {3840, 256, 0, 8}},
                           {"PFL-PF", kPfl, {463, 256, 2048, 13}},
                           {"PFL-HS3", kPfl, {1024, 256, 0, 36}},
                           {"PFL-BFS", kPfl, {1954, 512, 0, 19}},
                           {"PFL-HS2", kPfl, {1849, 256, 3072, 38}},
                           {"PFL-SRAD", kPfl, {16384, 256, 5120, 21}},
                           {"PFL-LUD", kPfl, {1, 16, 1024, 32}}};

OverlapKernel kernel_of(const Launch& launch) {
  return {.needs = {launch.threads, launch.registers, launch.shared}, .blocks = launch.blocks, .time = kMillisecond};
}

}  // namespace

FigureValues cruz_tables() {
  const GpuModel k40{.blocks = 16, .register_unit = 1, .shared = 49152, .shared_block = 0, .sms = 15};
  FigureValues values;
  for (const Pair& pair : kPairs) {
    const OverlapForecast forecast =
        forecast_overlap(k40, kernel_of(pair.first), kernel_of(pair.second), 10 * kMicrosecond, Placement::kPacked);
    values.push_back({"slowdown", pair.name, forecast.slowdown});
  }
  return values;
}

}  // namespace bandsaw::research
