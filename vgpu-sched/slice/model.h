// What planners know of shapes: their demands on the GPU, and forecasts of how fast two kernels run beside each other.
//
// A profile is fitted to the chain (chain.h) once, so that the chain gives the kernel the speed that was measured
// alone. A forecast of a pair is kept until the profile of one of them changes. Measured speeds of a pair replace the
// forecast.
//
// Bounded: kMaxShapes shapes, a fixed table of forecasts. Calls from one thread at a time.
// Source: Kernelet, sections 2.2 (co-scheduling profit) and 4.3; PUR and MUR: section 4.2.
#pragma once

#include <vector>

#include "vgpu-sched/slice/chain.h"
#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

inline constexpr std::size_t kMaxShapes = 4096;

// A shape, ready for the chain.
struct Fit {
  KernelProfile profile;
  Demand demand;
  double instructions = 0;    // warp instructions of a block, in the chain's eyes
  double warps = 0;           // of one block, per virtual SM
  double ipc = 0;             // alone at full occupancy
  double pur = 0;             // use of the issue slots alone: 0 to 1
  double mur = 0;             // use of the bandwidth alone: 0 to 1
  int resident = 0;           // the most blocks on an SM
  std::uint32_t version = 0;  // another one for every change
};

// Two kernels at so many blocks on each SM. Speeds are relative to the kernel alone at full occupancy.
struct PairForecast {
  double speed_a = 0;
  double speed_b = 0;
  bool measured = false;

  double throughput() const { return speed_a + speed_b; }
  // Kernelet's CP: the part of the time saved against one after the other; negative where nothing is saved.
  double profit() const { return throughput() > 0 ? 1 - 1 / throughput() : -1; }
};

// Where a planner takes its forecasts from: the model, or a table measured ahead.
class PairSource {
 public:
  virtual ~PairSource() = default;
  virtual PairForecast pair(ShapeId a, int resident_a, ShapeId b, int resident_b) = 0;
};

struct ModelOptions {
  // A warp that waits for a scattered access is in another state than one that waits for a coalesced access, and part
  // of the memory's queue is served in order. Else accesses count by their mean, and all of the queue is shared.
  bool three_states = false;
  double in_order = 0.3;  // then: that part, 0 to 1; fitted to pairs on an H200
};

class CoRunModel : public PairSource {
 public:
  explicit CoRunModel(const GpuModel& gpu, const ModelOptions& options = {});

  // kNoShape: the profile is no profile, or there are kMaxShapes.
  ShapeId add(const KernelProfile& profile);
  // With what was measured since. Changes below 5 % are taken in without giving up the pairs' forecasts.
  [[nodiscard]] Error update(ShapeId shape, const KernelProfile& profile);
  // Its id is given out again.
  void remove(ShapeId shape);
  // Null: no such shape. Valid until the next add().
  const Fit* fit(ShapeId shape) const;
  const GpuModel& gpu() const { return gpu_; }

  // Speed of a shape alone with `resident` blocks on each SM, relative to full occupancy.
  double solo(ShapeId shape, int resident) const;
  // Zeros where a shape is not there.
  PairForecast pair(ShapeId a, int resident_a, ShapeId b, int resident_b) override;
  // Speeds as measured, relative to each shape's solo time per block. A mean over about 4 measurements is kept.
  void observe(ShapeId a, int resident_a, ShapeId b, int resident_b, double speed_a, double speed_b);

  // Chains solved so far, for the cost of planning.
  std::uint64_t solved() const { return solved_; }

 protected:
  // Two shapes beside each other, whose warps take turns. A model of other warp schedulers overrides it.
  virtual PairForecast solve_pair(const Fit& first, int resident_a, const Fit& second, int resident_b);
  // One chain solved; `older` and `in_order` as solve_two has them.
  PairForecast solve_chain(const Fit& first, int resident_a, const Fit& second, int resident_b, Older older,
                           double in_order);

 private:
  struct Entry {
    std::uint64_t key = 0;  // 0: empty
    std::uint32_t version_a = 0;
    std::uint32_t version_b = 0;
    PairForecast forecast;
  };

  double own_order() const { return options_.three_states ? options_.in_order : 0; }
  Fit make_fit(const KernelProfile& profile) const;
  double measured_ipc(const KernelProfile& profile, double* bytes) const;
  Entry& entry(ShapeId a, int resident_a, ShapeId b, int resident_b, bool* known);

  GpuModel gpu_;
  ModelOptions options_;
  std::vector<Fit> fits_;  // by shape; version 0: not there
  std::vector<ShapeId> free_;
  std::vector<Entry> entries_;
  std::uint32_t versions_ = 0;
  std::uint64_t solved_ = 0;
};

}  // namespace bandsaw::slice
