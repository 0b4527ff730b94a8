// The scheduler's queues of engines, and which gate each ask in them came from. A request is an ask of one gate, or a
// lease (leases.h).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include "backend/vgpud/arbiter/grant_table.h"
#include "vgpu-sched/policy/scheduler.h"

namespace bandsaw {

class EngineQueues {
 public:
  using Queue = GrantTable::Queue;
  struct Place {
    VgpuState* vgpu = nullptr;
    uint32_t slot = 0;
    unsigned engine = 0;
  };

  // Both outlive this. The options name a policy that is known.
  EngineQueues(const ArbiterOptions* options, GrantTable* table);

  // Another scheduler, for the policy and the queues of the options. What waits has to ask it again.
  void restart(const sched::SharingRules& rules, sched::Time now);
  void set_rules(const sched::SharingRules& rules) { scheduler_->set_rules(rules); }
  void add(const VgpuState& vgpu, sched::Time now);
  void set_shares(const VgpuState& vgpu, sched::Time now);
  void set_mps(const VgpuState& vgpu, sched::Time now);
  void remove(const VgpuState& vgpu, sched::Time now);

  sched::RequestId new_id() { return next_request_++; }
  // The gate's ask that waits goes to the scheduler; one that it does not take is granted.
  void ask(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);
  // The ask that has the number, if it is one and waits.
  std::optional<Place> find(sched::RequestId id) const;
  // The scheduler has let this ask go: it no longer waits here.
  void let_go(sched::RequestId id) { waiting_.erase(id); }
  // Takes back an ask that the scheduler has not let go.
  void cancel(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time now);
  // If it is an ask, it may begin.
  void grant(const sched::Request& request, sched::Time now);
  // A request for all that the virtual GPU does on the queue from now on; nothing: the scheduler does not let it go
  // now.
  std::optional<sched::RequestId> take_lease(const VgpuState& vgpu, Queue queue, sched::Time now);
  sched::Answer next(Queue queue, sched::Time now);

  // What the scheduler had let go is over, and costs so much.
  void complete(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time charged, sched::Time now);
  // The same, where nothing had begun.
  void retract(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time now);
  // When a time slice on the queue ended last.
  sched::Time free_since(Queue queue) const { return free_since_[queue]; }

 private:
  const ArbiterOptions* const options_;
  GrantTable* const table_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  sched::RequestId next_request_ = 1;
  std::unordered_map<sched::RequestId, Place> waiting_;  // asks that the scheduler has not let go
  std::array<sched::Time, kEngines> free_since_{};
};

}  // namespace bandsaw
