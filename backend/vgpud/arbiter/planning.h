// Which of the MPS virtual GPUs' long kernels go on beside each other: where the mode plans, an ask that the policy
// lets through takes part in the plan, and is granted when the plan wants its next grid slice.
//
// For the scheduler, such an ask is in flight from then on: it is charged what its time slice takes, and who needs the
// engine for itself waits for its end. One that the policy does not let through takes no part.
#pragma once

#include <memory>
#include <vector>

#include "backend/vgpud/arbiter/co_planner.h"
#include "backend/vgpud/arbiter/engine_queues.h"
#include "backend/vgpud/arbiter/grant_table.h"

namespace bandsaw {

class Planning {
 public:
  using Queue = GrantTable::Queue;

  // All outlive this.
  Planning(const ArbiterOptions* options, GrantTable* table, EngineQueues* queues)
      : options_(options), table_(table), queues_(queues) {}

  void set_mode(PlanningMode mode, sched::Time now);
  PlanningMode mode() const { return mode_; }
  // Nothing is planned, and the policy is band+ with a queue for each engine: MPS virtual GPUs share the compute engine
  // by their progress, where nobody else uses it (mps_shares.h).
  bool shares_by_progress() const;
  // The options have changed: plans begin anew.
  void restart(sched::Time now);
  // How MPS virtual GPUs share an engine in this mode.
  sched::SharingRules rules() const;
  // Tells the runners of this virtual GPU, on the grant page, what the mode and its gates want of them.
  void post(VgpuState& vgpu) const;

  // True: the ask joins the plan, and the plan will grant it.
  bool admit(const sched::Request& request, sched::Time now);
  // Takes an ask that is not granted yet out of the plan and of its queue.
  void withdraw(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);
  void leave(const VgpuState& vgpu, uint32_t slot, sched::Time now);
  void forget(const VgpuState& vgpu);
  void clear(sched::Time now);

  // Takes in what the runner describes now.
  void snapshot(const VgpuState& vgpu, uint32_t slot, sched::Time now);
  // A time slice of the compute gate is over.
  void tell(const VgpuState& vgpu, uint32_t slot, const GrantedSlice& slice, uint64_t busy_ns, sched::Time now);
  // Remembers when several gates had work on the compute engine at once: such times are not those of a kernel alone.
  void note_concurrency(sched::Time now);

  // Notes what part of the SMs each virtual GPU has by its plan.
  void note_parts();

  // Both return when to be called again.
  sched::Time follow(Queue queue, sched::Time now);
  sched::Time review_short_work(Queue queue, sched::Time now);

  PlanState state() const;

 private:
  void take_answer(const CoPlanner::Grant& grant, sched::Time now);
  sched::Time make_room(VgpuState& vgpu, GateState& state, sched::Time now);
  ExpectedWork foresee(const VgpuState& vgpu, const KernelDescriptor& descriptor);
  bool has_unplanned(const VgpuState& vgpu, uint32_t slot) const;
  std::vector<KernelDescriptor> begun_at_open_gates(const VgpuState& vgpu) const;
  void tell_unplanned();
  void short_work_done(const VgpuState& vgpu, const GrantedSlice& slice, sched::Time now);

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  EngineQueues* const queues_;
  PlanningMode mode_ = PlanningMode::kMps;
  std::unique_ptr<CoPlanner> planner_;  // null: the mode plans nothing
  sched::Time concurrent_at_ = 0;
  uint64_t sm_requests_ = 0;  // of kernels that no plan had
};

}  // namespace bandsaw
