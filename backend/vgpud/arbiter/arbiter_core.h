// The arbiter's judgement: gates on one side, the scheduler on the other. It puts the parts together, each of which has
// one subject and knows those before it only:
//
//   grant_table     who holds and who waits at which gate
//   engine_queues   the scheduler, and which gate each ask in it came from
//   charging        what a virtual GPU is charged; time_slice_trace, the record of it
//   planning        which kernels of MPS virtual GPUs run beside each other
//   gate_reader     what has happened at a gate
//   leases          a virtual GPU alone on an engine need not ask
//   overdue         who does not end lets others on
//   unqueued_gates  compute gates that belong to no queue:
//   bypass            of those with SMs of their own (sm_partition) or, beside a plan or another policy than band+, a
//                     latency bound (allowance)
//   mps_shares        of MPS virtual GPUs whose shares hold by the progress that they make (mps_progress)
//   hardware_slices   of all, where the hardware's time slices hold the shares
//   kernel_deadline who has a kernel without end
//   others_work     when somebody else had work
//   quantum         how much short work is one time slice
//
// No threads, descriptors or clock; `now` is a parameter, in nanoseconds of CLOCK_MONOTONIC. What is read from a grant
// page may be anything: counters that make no sense are bounded, and harm only the virtual GPU whose grant page it is.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/arbiter/bypass.h"
#include "backend/vgpud/arbiter/charging.h"
#include "backend/vgpud/arbiter/engine_queues.h"
#include "backend/vgpud/arbiter/gate_reader.h"
#include "backend/vgpud/arbiter/grant_table.h"
#include "backend/vgpud/arbiter/hardware_slices.h"
#include "backend/vgpud/arbiter/kernel_deadline.h"
#include "backend/vgpud/arbiter/leases.h"
#include "backend/vgpud/arbiter/mps_shares.h"
#include "backend/vgpud/arbiter/others_work.h"
#include "backend/vgpud/arbiter/overdue.h"
#include "backend/vgpud/arbiter/planning.h"
#include "backend/vgpud/arbiter/quantum.h"
#include "backend/vgpud/arbiter/time_slice_trace.h"
#include "backend/vgpud/arbiter/unqueued_gates.h"

namespace bandsaw {

class ArbiterCore {
 public:
  using Time = sched::Time;
  static constexpr Time kNever = bandsaw::kNever;

  // The policy's name is known to be good.
  explicit ArbiterCore(const ArbiterOptions& options) : options_(options) {}
  ArbiterCore(const ArbiterCore&) = delete;

  static bool knows_policy(const std::string& name);

  Status add(const std::string& vgpu, const EngineShares& shares, Time now);
  Status set_shares(const std::string& vgpu, const EngineShares& shares, Time now);
  void remove(const std::string& vgpu, Time now);
  void set_policy(const std::string& policy, sched::QueueModel model, Time now);
  void set_sharing(const std::string& vgpu, Sharing sharing);
  void set_latency(const std::string& vgpu, Time latency);
  void set_kernel_deadline(const std::string& vgpu, Time deadline);
  void set_sm_part(const std::string& vgpu, double part);
  void set_planning_mode(PlanningMode mode, Time now);
  void set_plan_sms(int sms, Time now);
  const ArbiterOptions& options() const { return options_; }

  // Why the gates hold the shares of the compute engine; empty: the hardware's time slices do.
  std::string why_gates() const { return slices_.why_gates(); }
  bool shares_by_progress() const { return mps_shares_.hold(); }

  // `grant_page` stays valid until detach.
  void attach(const std::string& vgpu, GrantPage* grant_page, Time now);
  void detach(const std::string& vgpu, Time now);

  // The runner in the slot has so many compute channel groups, whose time slices can be set; 0: it will have none that
  // can. Both hold until the runner ends (forget_channel_groups) or the session does (detach).
  void set_channel_groups(const std::string& vgpu, uint32_t slot, uint32_t count, Time now);
  void forget_channel_groups(const std::string& vgpu, uint32_t slot, Time now);
  // An order that take_time_slices() gave out could not be carried out, though the runner still has the groups.
  void time_slice_failed(const std::string& vgpu, uint32_t slot, const Status& error, Time now);
  // A check found a longer time slice than was ordered. True: it is the first time of this runner. One that does it
  // again and again is to be ended.
  bool time_slice_changed(const std::string& vgpu, uint32_t slot, Time now);
  // What is to be set, in this order; to be called after each run().
  std::vector<TimeSliceOrder> take_time_slices() { return slices_.take_orders(); }

  // Runners that are to be ended; to be called after each run().
  std::vector<RunnerEnd> take_runner_ends() { return std::exchange(ends_, {}); }

  // Reads the gates whose pending bits are set on the virtual GPU's grant page.
  void on_pending(const std::string& vgpu, Time now);
  // Grants what can be granted. To be called after every other call, and at the time that it returns.
  Time run(Time now);

  // Something of it is on an engine, or waits for one. Not known where its gates stand open unseen.
  bool works(const std::string& name);
  std::vector<VgpuUse> use() const;
  PlanState plan() const { return planning_.state(); }
  void start_trace() { trace_.start(); }
  std::vector<TimeSliceRecord> take_trace(uint64_t* lost) { return trace_.take(lost); }

 private:
  using Queue = GrantTable::Queue;

  Status check_shares(const std::string& except, const EngineShares& shares) const;
  void take_over_asks(VgpuState& vgpu);
  void read_slot(VgpuState& vgpu, uint32_t slot, Time now);
  void read_gate(VgpuState& vgpu, uint32_t slot, unsigned engine, Time now);
  void review_sharing(Time now);
  bool governs(const VgpuState& vgpu) const;
  void review_governed(Time now);
  static void release_ungoverned(VgpuState& vgpu, GrantPage* grant_page);
  Time dispatch(Queue queue, Time now);
  Time run_queue(Queue queue, Time now);

  // Each part knows those above it.
  ArbiterOptions options_;
  GrantTable table_{&options_};
  EngineQueues queues_{&options_, &table_};
  TimeSliceTrace trace_;
  Charging charging_{&table_, &queues_, &trace_};
  Planning planning_{&options_, &table_, &queues_};
  GateReader reader_{&table_, &queues_, &charging_, &planning_};
  Leases leases_{&options_, &table_, &queues_, &charging_, &planning_, &reader_};
  Overdue overdue_{&options_, &table_, &queues_, &charging_, &planning_, &leases_};
  UnqueuedGates unqueued_{&table_, &planning_, &reader_, &leases_};
  Bypasses bypasses_{&options_, &table_, &charging_, &planning_, &unqueued_};
  MpsShares mps_shares_{&options_, &table_, &planning_, &unqueued_};
  HardwareSlices slices_{&options_, &table_, &unqueued_};
  KernelDeadlines deadlines_{&options_, &table_};
  Quantum quantum_{&options_, &table_};
  OthersWork others_work_{&table_};
  std::vector<RunnerEnd> ends_;
};

}  // namespace bandsaw
