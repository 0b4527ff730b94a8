// Leases: what the scheduler knows of a virtual GPU whose gates stand open, because it is alone on the engine.
//
// A lease is one request of the scheduler. It is charged and renewed each period, and closed when somebody else asks.
#pragma once

#include <cstdint>

#include "vgpu-sched/policy/types.h"

namespace bandsaw {

class Charging;
class EngineQueues;
class GateReader;
class GrantTable;
class Planning;
struct ArbiterOptions;
struct VgpuState;

// Of one virtual GPU on one queue.
struct Lease {
  enum class State { kNone, kOpen, kClosing } state = State::kNone;
  sched::RequestId id = 0;
  sched::Time since = 0;   // of the present part
  uint64_t busy_ns = 0;    // measured in it
  sched::Time closed = 0;  // when its gates were shut
  // After `closed`: what was begun under it and still runs has been counted (GateState::leased).
  bool counted = false;
  // Time that earlier parts held and were not charged for: a time slice that ends now may have begun in them.
  sched::Time credit = 0;
  // MPS only: its part of the time since `since`, as far as Charging::take_part() has read the meter.
  sched::Time own = 0;

  bool takes() const { return state == State::kOpen || (state == State::kClosing && !counted); }
  // A time slice that was begun under it has ended.
  void add(sched::Time its_own, uint64_t its_busy_ns) {
    own += its_own;
    busy_ns += its_busy_ns;
  }
};

class Leases {
 public:
  using Queue = size_t;

  // All outlive this.
  Leases(const ArbiterOptions* options, GrantTable* table, EngineQueues* queues, Charging* charging, Planning* planning,
         GateReader* reader)
      : options_(options), table_(table), queues_(queues), charging_(charging), planning_(planning), reader_(reader) {}

  // Opens the gates of a virtual GPU that has been alone on the queue for a while, so that it need not ask.
  void open_for_one_alone(Queue queue, sched::Time now);
  // Of those that others wait for.
  void close_where_wanted(Queue queue, sched::Time now);
  void close(VgpuState& vgpu, Queue queue, sched::Time now);
  // Charges each open lease that is as old as a period, and takes a new one. Returns when to be called again.
  sched::Time renew_all(Queue queue, sched::Time now);
  // Ends a closing lease when all that was begun under it is over.
  void settle(VgpuState& vgpu, Queue queue, sched::Time now);
  void end(VgpuState& vgpu, Queue queue, sched::Time now);
  // Ends a closing lease, though work that was begun under it still runs.
  void give_up(VgpuState& vgpu, Queue queue, sched::Time now);

 private:
  bool take(VgpuState& vgpu, Queue queue, sched::Time now);
  void open(VgpuState& vgpu, Queue queue, sched::Time now);
  void renew(VgpuState& vgpu, Queue queue, sched::Time now);

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  EngineQueues* const queues_;
  Charging* const charging_;
  Planning* const planning_;
  GateReader* const reader_;
};

}  // namespace bandsaw
