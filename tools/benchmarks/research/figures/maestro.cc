// GPU Maestro's figures 5.10, 5.13 and 5.15: pairs of Kernelet's eight kernels on the simulated GPU, by how their SMs
// are divided. Both kernels of a pair have blocks left for ever. Who divides are production's planners: Maestro's and
// Kernelet's; "searched" is Maestro's search with half of the SMs for each among its trials, which no GPU gives a
// kernel that runs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/figures/figures.h"
#include "vgpu-sched/slice/maestro_planner.h"
#include "vgpu-sched/slice/pair_planner.h"
#include "vgpu-sched/slice/partition_search.h"

namespace bandsaw::research {
namespace {

constexpr int kEpochs = 400;
constexpr int kShown = 32;  // epochs of figure 5.13
constexpr Time kEpoch = 5 * kMillisecond;
constexpr double kTurn = 0.5;  // of the time, for each of two that take turns

struct Speeds {
  double a = 0, b = 0;
  double turnaround() const { return (1 / a + 1 / b) / 2; }
  double throughput() const { return a + b; }
};

struct Blocks2 {
  int a = 0, b = 0;  // on each SM; zeros: they take turns
};

// Speeds of two kernels relative to each alone on all SMs.
class Pairs {
 public:
  Speeds of(ShapeId a, ShapeId b, const Partition& partition) const {
    if (partition.spatial) return apart(a, b);
    const double sms = gpu_.gpu().sms;
    const auto rates = gpu_.rates({{&kernels_[a], partition.a * sms}, {&kernels_[b], partition.b * sms}});
    return {rates[0] / gpu_.solo_rate(kernels_[a]), rates[1] / gpu_.solo_rate(kernels_[b])};
  }
  Speeds of(ShapeId a, ShapeId b, const Blocks2& blocks) const {
    return blocks.a == 0 || blocks.b == 0 ? Speeds{kTurn, kTurn} : of(a, b, Partition{false, blocks.a, blocks.b});
  }
  Partition even(ShapeId a, ShapeId b) const {
    return PartitionSearch(gpu_.gpu(), kernels_[a].needs, kernels_[b].needs, PartitionGoal::kTurnaround).incumbent();
  }
  // The mean over epochs: trials cost what they cost.
  Speeds searched(ShapeId a, ShapeId b) const {
    PartitionSearch search(gpu_.gpu(), kernels_[a].needs, kernels_[b].needs, PartitionGoal::kTurnaround);
    Speeds mean;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const Speeds speeds = of(a, b, search.next());
      search.measured(speeds.a, speeds.b);
      mean.a += speeds.a / kEpochs;
      mean.b += speeds.b / kEpochs;
    }
    return mean;
  }
  // Epoch by epoch what the planner gives each, with their speeds told to its model.
  using Seen = std::function<void(int epoch, const Blocks2&, const Speeds&)>;
  void planned(Planner& planner, CoRunModel& model, ShapeId a, ShapeId b, int epochs, const Seen& seen) const {
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const std::vector<ReadyKernel> ready = {endless(1, a), endless(2, b)};
      const Plan plan = planner.plan({.ready = ready}, (epoch + 1) * kEpoch);
      Blocks2 blocks;
      for (const Part& part : plan.parts) (part.kernel == 1 ? blocks.a : blocks.b) = part.resident;
      if (plan.parts.size() < 2) blocks = {};
      const Speeds speeds = of(a, b, blocks);
      for (int i = 0; i < 4 && blocks.a > 0; ++i) model.observe(a, blocks.a, b, blocks.b, speeds.a, speeds.b);
      seen(epoch, blocks, speeds);
    }
  }
  Speeds maestro(ShapeId a, ShapeId b, PartitionGoal goal) const {
    CoRunModel model = profiled();
    MaestroPlanner planner(model, {}, goal);
    return mean_of(planner, model, a, b);
  }
  Speeds kernelet(ShapeId a, ShapeId b) const {
    CoRunModel model = profiled();
    PairPlanner planner(model, model, {}, {.prune = true, .ratios = 6, .solves = 24});
    return mean_of(planner, model, a, b);
  }
  CoRunModel profiled() const {
    CoRunModel model(gpu_.gpu());
    for (const SimKernel& kernel : kernels_) model.add(gpu_.profile(kernel, Known::kHalf));
    return model;
  }
  // As table 5.3: at least twelve sixteenths of the speed that as many SMs would give.
  bool computes(ShapeId kernel) const {
    const double all = gpu_.solo_rate(kernels_[kernel]), part = SimGpu(with_sms(1.0 / 16)).solo_rate(kernels_[kernel]);
    return all / part > 12 * gpu_.gpu().sms / (16.0 * with_sms(1.0 / 16).sms);
  }
  std::string category(ShapeId a, ShapeId b) const {
    const int computing = computes(a) + computes(b);
    return computing == 2 ? "COM/COM" : computing == 1 ? "COM/MEM" : "MEM/MEM";
  }
  std::string name(ShapeId a, ShapeId b) const { return kernels_[a].name + "+" + kernels_[b].name; }
  ShapeId count() const { return static_cast<ShapeId>(kernels_.size()); }

 private:
  static ReadyKernel endless(KernelId id, ShapeId shape) {
    return {.id = id, .shape = shape, .blocks = 1 << 24, .left = 1 << 24, .minimum = 1056};
  }
  Speeds mean_of(Planner& planner, CoRunModel& model, ShapeId a, ShapeId b) const {
    Speeds mean;
    planned(planner, model, a, b, kEpochs, [&](int, const Blocks2&, const Speeds& speeds) {
      mean.a += speeds.a / kEpochs;
      mean.b += speeds.b / kEpochs;
    });
    return mean;
  }
  GpuModel with_sms(double part) const {
    GpuModel some = gpu_.gpu();
    some.sms = static_cast<int>(some.sms * part);
    return some;
  }
  // Each has half of the SMs with their issue slots, and both the bandwidth.
  Speeds apart(ShapeId a, ShapeId b) const {
    const SimGpu half(with_sms(0.5));
    double rates[] = {half.solo_rate(kernels_[a]), half.solo_rate(kernels_[b])};
    const ShapeId of[] = {a, b};
    double bytes = 0;
    for (int i = 0; i < 2; ++i) {
      const SimKernel& kernel = kernels_[of[i]];
      bytes += rates[i] * kernel.accesses * kernel.needs.warps() * kernel.bytes;
    }
    const double slower = std::max(1.0, bytes / gpu_.gpu().bandwidth);
    return {rates[0] / slower / gpu_.solo_rate(kernels_[a]), rates[1] / slower / gpu_.solo_rate(kernels_[b])};
  }

  SimGpu gpu_{GpuModel{}};
  std::vector<SimKernel> kernels_ = eight_kernels();
};

// Geometric means over pairs.
struct Means {
  double turnaround = 0, throughput = 0;
  int pairs = 0;
  void add(const Speeds& speeds) {
    turnaround += std::log(speeds.turnaround());
    throughput += std::log(speeds.throughput());
    ++pairs;
  }
};

std::map<std::string, Speeds> ways_of(const Pairs& pairs, ShapeId a, ShapeId b) {
  return {{"Spatial", pairs.of(a, b, Partition{.spatial = true})},
          {"SMK", pairs.of(a, b, pairs.even(a, b))},
          {"Kernelet", pairs.kernelet(a, b)},
          {"Maestro", pairs.maestro(a, b, PartitionGoal::kTurnaround)},
          {"Maestro for STP", pairs.maestro(a, b, PartitionGoal::kThroughput)},
          {"searched", pairs.searched(a, b)}};
}

// What rounding leaves of nothing is nothing.
double percent(double times) { return std::round(1e8 * (times - 1)) * 1e-6; }

}  // namespace

FigureValues maestro_10() {
  const Pairs pairs;
  std::map<std::pair<std::string, std::string>, Means> found;  // way, category
  for (ShapeId a = 0; a < pairs.count(); ++a) {
    for (ShapeId b = a + 1; b < pairs.count(); ++b) {
      for (const auto& [way, speeds] : ways_of(pairs, a, b)) {
        found[{way, pairs.category(a, b)}].add(speeds);
        found[{way, "all"}].add(speeds);
      }
    }
  }
  FigureValues values;
  for (const auto& [key, means] : found) {
    values.push_back({"ANTT " + key.first, key.second, percent(std::exp(means.turnaround / means.pairs))});
    values.push_back({"STP " + key.first, key.second, percent(std::exp(means.throughput / means.pairs))});
  }
  return values;
}

// The blocks of each on an SM, epoch by epoch, and at the beginning and the end.
FigureValues maestro_13() {
  const Pairs pairs;
  FigureValues values;
  for (const auto& [a, b] : {std::pair{kPc, kTea}, {kMm, kSad}}) {
    CoRunModel model = pairs.profiled();
    MaestroPlanner planner(model, {}, PartitionGoal::kTurnaround);
    const std::string name = pairs.name(a, b);
    const auto middle = name.find('+');
    const auto add = [&](const std::string& at, const Blocks2& blocks) {
      values.push_back({name + ": " + name.substr(0, middle), at, static_cast<double>(blocks.a)});
      values.push_back({name + ": " + name.substr(middle + 1), at, static_cast<double>(blocks.b)});
    };
    pairs.planned(planner, model, a, b, kShown, [&](int epoch, const Blocks2& blocks, const Speeds&) {
      add(std::to_string(epoch), blocks);
      if (epoch == 0) add("begin", blocks);
      if (epoch == kShown - 1) add("end", blocks);
    });
  }
  return values;
}

FigureValues maestro_15() {
  const Pairs pairs;
  FigureValues values;
  for (ShapeId a = 0; a < pairs.count(); ++a) {
    for (ShapeId b = a + 1; b < pairs.count(); ++b) {
      for (const auto& [way, speeds] : ways_of(pairs, a, b))
        values.push_back({way, pairs.name(a, b), percent(speeds.throughput())});
      values.push_back({"category", pairs.name(a, b), static_cast<double>(pairs.computes(a) + pairs.computes(b))});
    }
  }
  return values;
}

}  // namespace bandsaw::research
