// Where the hardware's own time slices hold the shares of the compute engine. Its gates then stand wide open, work of
// several virtual GPUs is on the engine at once, and the hardware switches between their processes. The gates still
// show who has work; from that, vgpu-sched/policy/time_slice_weights.h tells how long the time slices are to be.
//
// It takes a runner whose channel groups are known for every program, no MPS programs, a queue for each engine, and
// band+: the other policies are those of papers, which grant the engine to one at a time. Where that does not hold, the
// gates of the compute engine are as those of all engines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/vgpud/arbiter/channel_groups.h"
#include "backend/vgpud/arbiter/runner_end.h"
#include "vgpu-sched/policy/time_slice_weights.h"

namespace bandsaw {

class GrantTable;
class UnqueuedGates;
struct ArbiterOptions;
struct GateState;
struct VgpuState;

// What is known of the channel groups of the runner in one slot, from its session.
struct SlicedRunner {
  uint32_t groups = 0;  // whose time slices can be set
  int error = 0;        // the errno of an order that failed; 0: none did
  // It had groups, and has none now. That matters if it begins or asks for something all the same: these were its
  // counters then.
  bool lost = false;
  uint32_t begun = 0, asked = 0;
  sched::Time checked_at = 0;  // when its time slice was compared last with what was ordered
  int changes = 0;             // how often it was another one
  sched::Time changed_at = 0;  // when it was first
  bool ended = false;          // it is what an ended runner left, until the next one there
};

// Of one virtual GPU.
struct SlicedVgpu {
  bool open = false;                         // its compute gates, while they are ComputeGates::kTimeSliced
  sched::Time used = 0;                      // what the weights said of it last
  std::map<uint32_t, SlicedRunner> runners;  // by slot; the session has said nothing of the others
};

// Why the gates hold the shares of the compute engine.
struct WhyGates {
  enum class Reason {
    kNone,  // the hardware's time slices do
    kNotScheduled,
    kPolicy,
    kOneQueue,
    kNobody,
    // Of a program of `vgpu`:
    kMpsClient,
    kNoGroups,
    kCannotBeSet,
  } reason = Reason::kNobody;
  sched::VgpuId vgpu = 0;
  int error = 0;  // errno of kCannotBeSet
};

class HardwareSlices {
 public:
  // All outlive this.
  HardwareSlices(const ArbiterOptions* options, GrantTable* table, UnqueuedGates* unqueued)
      : options_(options), table_(table), unqueued_(unqueued) {}

  void set(const VgpuState& vgpu);  // share and latency bound
  void remove(const VgpuState& vgpu);

  static void set_groups(VgpuState& vgpu, uint32_t slot, uint32_t count);
  static void forget_groups(VgpuState& vgpu, uint32_t slot);
  static void order_failed(VgpuState& vgpu, uint32_t slot, const Status& error);
  // A runner's time slice was longer than what was ordered. True: for the first time. Appends one that goes on so.
  static bool found_changed(VgpuState& vgpu, uint32_t slot, sched::Time now, std::vector<RunnerEnd>* ends);

  // What its latency bound has cost the others so far, in ns of the engine's time; an estimate.
  sched::Time latency_cost(const VgpuState& vgpu) const;
  bool keeps_engine(const VgpuState& vgpu) const;

  // Empty: they hold the shares.
  std::string why_gates() const;
  bool on() const { return on_; }

  // To be called in this order. Between the two, other gates that belong to no queue may change. Returns when to be
  // called again.
  void leave_if_impossible(sched::Time now);
  sched::Time review(sched::Time now);
  void leave(sched::Time now);
  // A gate, while on().
  void read(VgpuState& vgpu, uint32_t slot, sched::Time now);
  std::vector<TimeSliceOrder> take_orders();

 private:
  WhyGates find_why() const;
  static WhyGates find_why(const VgpuState& vgpu, uint32_t slot);
  static bool is_quiet(const VgpuState& vgpu, uint32_t slot);
  static void lose_groups(VgpuState& vgpu, uint32_t slot);
  void enter(sched::Time now);
  void set_open(VgpuState& vgpu, bool open);
  void post_alone(VgpuState& vgpu);
  void post_slice(VgpuState& vgpu) const;
  void post_keep(VgpuState& vgpu);
  static std::optional<sched::Time> slice_at(const VgpuState& vgpu, uint32_t slot, const GateState& gate);
  static sched::Time shortest_slice(const VgpuState& vgpu);
  bool is_steered(sched::Time now) const;
  sched::Time sample(sched::Time now);
  std::vector<sched::TimeSliceWeights::Load> read_all(sched::Time now);
  void order(VgpuState& vgpu, sched::Time now);

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  UnqueuedGates* const unqueued_;
  bool on_ = false;
  WhyGates why_;
  sched::TimeSliceWeights weights_;
  sched::Time sampled_at_ = 0;
  std::vector<TimeSliceOrder> orders_;
};

}  // namespace bandsaw
