// forecast: what the models of vgpu-sched/slice say of kernels, pairs of them and launches one after the other.
//
// JSON on standard input, JSON on standard output. In: `gpu` (constants that differ from GpuModel's), `kernels` (their
// profiles; block_ns in nanoseconds), `pairs` (names and blocks on each SM), `overlaps` (what is launched, and what
// each takes alone). Out: `solo`, `pairs` and `overlaps` in the order of the input; of kernels and pairs one for each
// way of what is known (kWays).
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/benchmarks/research/planning/oldest_first_model.h"
#include "vgpu-sched/slice/model.h"
#include "vgpu-sched/slice/occupancy.h"
#include "vgpu-sched/slice/overlap.h"

namespace bandsaw::research {
namespace {

using nlohmann::json;

// The static instruction mix alone; and which accesses are scattered; with it the speed at half the occupancy; the
// instruction mix, and the bandwidth by its accesses and measured times; what runners describe: instructions and
// accesses as counted, the bandwidth by these and times, and the speed at half; the same with which accesses are
// scattered, and warps of three states; counts of instructions and bytes of DRAM, and the speeds at half and one.
constexpr const char* kWays[] = {"mix", "scattered", "half", "bandwidth", "described", "three", "counts"};

GpuModel gpu_of(const json& in) {
  GpuModel gpu;
  const auto take = [&in](const char* name, auto* value) { *value = in.value(name, *value); };
  take("sms", &gpu.sms);
  take("clock", &gpu.clock);
  take("bandwidth", &gpu.bandwidth);
  take("latency", &gpu.latency);
  take("latency_uncoalesced", &gpu.latency_uncoalesced);
  take("dependency", &gpu.dependency);
  return gpu;
}

BlockNeeds needs_of(const json& in) {
  return {.threads = in.at("threads"), .registers = in.at("registers"), .shared = in.at("shared")};
}

// What is known of a kernel on one of the ways.
KernelProfile profile_of(const json& in, const std::string& way) {
  KernelProfile profile{.needs = needs_of(in), .block_ns = in.at("block_ns"), .memory = in.value("memory", 0.1)};
  if (way == "scattered" || way == "half" || way == "three") profile.uncoalesced = in.value("uncoalesced", 0.0);
  if (way == "half") profile.half_speed = in.value("half_speed", 0.0);
  if (way == "bandwidth") profile.bytes_per_ns = in.value("instruction_mix_bytes_per_ns", 0.0);
  if (way != "described" && way != "three" && way != "counts") return profile;
  profile.half_speed = in.value("half_speed", 0.0);
  profile.instructions = in.value("instructions", 0.0);
  profile.bytes_per_ns = in.value("instruction_mix_bytes_per_ns", 0.0);
  profile.memory = in.value("counted_memory", profile.memory);
  if (way != "counts") return profile;
  profile.one_speed = in.value("one_speed", 0.0);
  profile.bytes_per_ns = in.value("bytes_per_ns", 0.0);
  profile.uncoalesced = in.value("counted_uncoalesced", in.value("uncoalesced", 0.0));
  return profile;
}

json fit_of(const Fit& fit) {
  return {{"resident", fit.resident},
          {"delay", fit.demand.delay},
          {"memory", fit.demand.memory},
          {"ipc", fit.ipc},
          {"pur", fit.pur},
          {"mur", fit.mur}};
}

// All kernels, and forecasts of all pairs, on one way.
class Way {
 public:
  Way(std::unique_ptr<CoRunModel> model, const json& kernels, const std::string& name) : model_(std::move(model)) {
    for (const json& kernel : kernels) shapes_[kernel.at("name")] = model_->add(profile_of(kernel, name));
  }

  json solo(const std::string& kernel) const {
    const ShapeId shape = shapes_.at(kernel);
    const Fit* fit = model_->fit(shape);
    if (fit == nullptr) return nullptr;
    json speeds = json::array();
    for (int resident = 1; resident <= fit->resident; ++resident) speeds.push_back(model_->solo(shape, resident));
    return {{"fit", fit_of(*fit)}, {"speeds", speeds}};
  }
  json pair(const json& in) {
    const PairForecast forecast =
        model_->pair(shapes_.at(in.at("a")), in.at("resident_a"), shapes_.at(in.at("b")), in.at("resident_b"));
    return {{"speed_a", forecast.speed_a}, {"speed_b", forecast.speed_b}, {"profit", forecast.profit()}};
  }

 private:
  std::unique_ptr<CoRunModel> model_;
  std::map<std::string, ShapeId> shapes_;
};

OverlapKernel overlap_kernel(const json& in) {
  return {.needs = needs_of(in),
          .blocks = in.at("blocks"),
          .time = in.at("alone_ns").get<Time>(),
          .issue = in.value("issue", 0.0)};
}

json overlap_of(const GpuModel& gpu, const json& in) {
  OverlapKernel first = overlap_kernel(in.at("first")), second = overlap_kernel(in.at("second"));
  const Time launch = in.value("launch_ns", Time{0});
  const OverlapForecast busy = forecast_overlap(gpu, first, second, launch);
  first.issue = second.issue = 0;
  const OverlapForecast forecast = forecast_overlap(gpu, first, second, launch);
  constexpr const char* kCases[] = {"A", "B", "C"};
  return {{"case", kCases[static_cast<int>(forecast.overlap)]},
          {"rounds", forecast.rounds},
          {"limited_rounds", forecast.limited_rounds},
          {"slowdown", forecast.slowdown},
          {"begins_ns", forecast.begins},
          {"slowdown_timed", forecast.slowdown_timed},
          {"slowdown_busy", busy.slowdown_timed}};
}

json forecast(const json& in) {
  const GpuModel gpu = gpu_of(in.value("gpu", json::object()));
  const json none = json::array();
  const json& kernels = in.contains("kernels") ? in["kernels"] : none;
  json out{{"solo", json::object()}, {"pairs", json::object()}, {"overlaps", json::array()}};
  const json& given = in.contains("gpu") ? in["gpu"] : none;
  const bool oldest_first = given.is_object() ? given.value("oldest_first", true) : true;  // as an H200 does
  const double in_order = given.is_object() ? given.value("in_order", 0.3) : 0.3;
  for (const std::string name : kWays) {
    // Production's plans have the model in which warps take turns.
    const bool turns = name == "described" || name == "three" || !oldest_first;
    const ModelOptions options{.three_states = name == "three", .in_order = in_order};
    Way way(turns ? std::make_unique<CoRunModel>(gpu, options) : std::make_unique<OldestFirstModel>(gpu, in_order),
            kernels, name);
    for (const json& kernel : kernels)
      out["solo"][name][kernel.at("name").get<std::string>()] = way.solo(kernel["name"]);
    for (const json& pair : in.value("pairs", none)) out["pairs"][name].push_back(way.pair(pair));
  }
  for (const json& overlap : in.value("overlaps", none)) out["overlaps"].push_back(overlap_of(gpu, overlap));
  return out;
}

}  // namespace
}  // namespace bandsaw::research

int main() {
  try {
    std::cout << bandsaw::research::forecast(nlohmann::json::parse(std::cin)).dump() << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forecast: %s\n", error.what());
    return 1;
  }
}
