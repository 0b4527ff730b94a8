// What runs next on the GPU, and in what grid slices. A planner is given the kernels that are ready and answers with a
// plan. The co-scheduler (coscheduler.h) keeps the queues and counts blocks. It asks for a new plan when the set of
// ready kernels changes: at an arrival, at a departure, and when a kernel's last block is issued.
//
// No threads, no clock: all calls to one planner come from one thread at a time, `now` never decreases.
// Source: Kernelet, section 4.2, algorithm 1.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "vgpu-sched/slice/model.h"
#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

// A kernel whose stream's earlier copies and kernels are done.
struct ReadyKernel {
  KernelId id = 0;
  ShapeId shape = kNoShape;
  Blocks blocks = 0;   // of the whole call
  Blocks left = 0;     // not issued yet; 0: all are, and the call only has to end
  Blocks done = 0;     // known to have ended
  Blocks minimum = 0;  // the least grid slice that keeps slicing cheap (tuner.h); 0: may not be sliced
  int in_flight = 0;   // grid slices
  Time ready_since = 0;
  bool alone = false;  // it is being measured: a planner gets it by itself or not at all
};

struct State {
  std::span<const ReadyKernel> ready;  // in the order in which they became ready
};

// How the parts of a plan share the GPU.
enum class Sharing : std::uint8_t {
  kDriver,      // each in its own context: the driver's time slices
  kSpace,       // under MPS: blocks of several kernels lie on the GPU at once
  kPersistent,  // as kSpace; each kernel as `resident` persistent blocks per SM which claim their work
};

struct Part {
  KernelId kernel = 0;
  Blocks slice = 0;   // blocks of each grid slice; 0: all that are left as one
  int resident = 0;   // blocks on each SM that the plan counts on; 0: as many as the hardware takes
  int in_flight = 2;  // grid slices of this kernel at a time, at least 1
};

struct Plan {
  Sharing sharing = Sharing::kSpace;
  std::vector<Part> parts;  // empty: nothing before the next event
  double profit = 0;        // Kernelet's CP as forecast; 0: none was made
};

struct PlannerOptions {
  // Kernelet: two kernels are a candidate pair when their PUR or their MUR are at least so far apart.
  double apart_pur = 0.15;
  double apart_mur = 0.10;
  double least_profit = 0.02;     // kernels whose pair promises less run one after the other
  int ratios = 6;                 // shares of an SM tried for each pair
  int solves = 24;                // chains solved for one decision at most; what is left waits for the next
  Time wait_limit = 5 * kSecond;  // a kernel that was ready for so long is one of the pair
  // Kernelet: kernels that are shorter alone, or one grid slice, go whole beside whatever runs.
  Time brief = 200 * kMicrosecond;
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual Plan plan(const State& state, Time now) = 0;
  // It tries plans: each measurement of a pair asks for the next one.
  virtual bool tries() const { return false; }
};

// kernelet           grid slices of the pair with the highest forecast profit
// persistent-greedy  persistent blocks by Bashizade et al., algorithm 1
// maestro-antt       pairs whose blocks on each SM are found by trying, for the least mean turnaround
// maestro-stp        the same, for the largest throughput
//
// Null: no such name. `model` outlives the planner.
std::unique_ptr<Planner> make_planner(std::string_view name, CoRunModel& model, const PlannerOptions& options = {});

}  // namespace bandsaw::slice
