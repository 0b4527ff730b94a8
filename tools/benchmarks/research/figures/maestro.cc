// GPU Maestro's figure 5.10: all pairs of Kernelet's eight kernels on the simulated GPU, by how their SMs are divided.
// The search for the best partition is production's (vgpu-sched/slice/partition_search.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/figures/figures.h"
#include "vgpu-sched/slice/partition_search.h"

namespace bandsaw::research {
namespace {

constexpr int kEpochs = 400;

struct Speeds {
  double a = 0, b = 0;
  double turnaround() const { return (1 / a + 1 / b) / 2; }
  double throughput() const { return a + b; }
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
  // As table 5.3: at least twelve sixteenths of the speed that as many SMs would give.
  bool computes(ShapeId kernel) const {
    const double all = gpu_.solo_rate(kernels_[kernel]), part = SimGpu(with_sms(1.0 / 16)).solo_rate(kernels_[kernel]);
    return all / part > 12 * gpu_.gpu().sms / (16.0 * with_sms(1.0 / 16).sms);
  }
  ShapeId count() const { return static_cast<ShapeId>(kernels_.size()); }

 private:
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

}  // namespace

FigureValues maestro_10() {
  const Pairs pairs;
  std::map<std::pair<std::string, std::string>, Means> found;  // way, category
  for (ShapeId a = 0; a < pairs.count(); ++a) {
    for (ShapeId b = a + 1; b < pairs.count(); ++b) {
      const int computing = pairs.computes(a) + pairs.computes(b);
      const std::string category = computing == 2 ? "COM/COM" : computing == 1 ? "COM/MEM" : "MEM/MEM";
      for (const std::string& at : {category, std::string("all")}) {
        found[{"Spatial", at}].add(pairs.of(a, b, {.spatial = true}));
        found[{"SMK", at}].add(pairs.of(a, b, pairs.even(a, b)));
        found[{"Maestro", at}].add(pairs.searched(a, b));
      }
    }
  }
  FigureValues values;
  for (const auto& [key, means] : found) {
    values.push_back({"ANTT " + key.first, key.second, 100 * (std::exp(means.turnaround / means.pairs) - 1)});
    values.push_back({"STP " + key.first, key.second, 100 * (std::exp(means.throughput / means.pairs) - 1)});
  }
  return values;
}

}  // namespace bandsaw::research
