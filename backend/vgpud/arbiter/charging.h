// What a virtual GPU is charged for the time that it had an engine.
//
// A time slice costs what its runner measured, at most the time for which it had the engine. MPS virtual GPUs may have
// the compute engine together: each is charged its measured time by the part of it that is its own. A moment in which
// several have the engine is divided by their number, so that all charges together are no more than the time that
// passed; or, where that is configured, by the blocks on the SMs, as long as those of all are planned. Copies that are
// on an engine together are served in turns, for about a millisecond each: what was measured of short ones is their own
// time, that of long ones holds others' too, and is less by what it is too much in sum.
#pragma once

#include <array>
#include <cstdint>

#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/arbiter/gate_state.h"
#include "vgpu-sched/slice/charge.h"

namespace bandsaw {

class EngineQueues;
class GrantTable;
class TimeSliceTrace;
struct VgpuState;

// A span of time in which an MPS virtual GPU had an engine: how long it was, and how much of it is its own.
struct Part {
  sched::Time wall = 0, own = 0;
  // What is charged for work that the device measured as `busy_ns` in this time.
  uint64_t of(uint64_t busy_ns) const;
};

// Of one virtual GPU. Arrays are by queue, unless they say otherwise.
struct Account {
  struct Meter {
    bool runs = false;
    bool no_waiters = false;  // nobody waits for the end of what it has there
    double footprint = 1;     // its part, beside those of the others that run
    sched::Time since = 0;
  };
  std::array<Meter, kEngines> meters{};               // of an MPS one
  std::array<sched::Time, kEngines> underreported{};  // held longer than measured, beyond what is usual
  std::array<sched::Time, kEngines> debt{};           // charged with the next completion
  std::array<EngineUse, kEngines> use{};              // by engine
};

class Charging {
 public:
  using Queue = size_t;

  // All outlive this.
  Charging(GrantTable* table, EngineQueues* queues, TimeSliceTrace* trace)
      : table_(table), queues_(queues), trace_(trace) {}

  // What is charged for work that its runner measured as `busy_ns`, and that had the engine for `held`, for `kept` of
  // which others may have waited. Takes what was still owed with it.
  sched::Time charge(VgpuState& vgpu, Queue queue, uint64_t busy_ns, sched::Time held, sched::Time kept);
  sched::Time take_debt(VgpuState& vgpu, Queue queue);
  // A time slice that was granted is over. It had the engine for `held`, as above; where others had it too, `kept` of
  // that are taken for its own.
  void complete(VgpuState& vgpu, uint32_t slot, unsigned engine, const GrantedSlice& slice, uint64_t busy_ns,
                sched::Time held, sched::Time kept, sched::Time now);
  void record(const VgpuState& vgpu, int64_t slot, unsigned engine, const GrantedSlice& slice, sched::Time ended,
              sched::Time charged);

  // Since when the time slice has had the engine.
  sched::Time held_since(const VgpuState& vgpu, Queue queue, const GateState& state, const GrantedSlice& slice) const;
  // Reads the virtual GPU's meter: how much time has passed since it was read last, and what part of that is its own.
  Part take_part(VgpuState& vgpu, Queue queue, sched::Time now);
  // What is charged for a copy that was measured so.
  uint64_t of_copy(Queue queue, uint64_t busy_ns, sched::Time now);
  // A meter runs for each MPS virtual GPU that has something on the engine, even if the arbiter has given that up.
  void review_meters(Queue queue, sched::Time now);
  void forget(const VgpuState& vgpu, sched::Time now);

 private:
  void weigh(Queue queue, sched::Time now);

  // Lately, while several had the engine: the time that passed, and what was measured in sum, in ns.
  struct Crowd {
    int holders = 0;
    sched::Time since = 0;
    double wall = 0, busy = 0;
    void pass(sched::Time now);
  };

  GrantTable* const table_;
  EngineQueues* const queues_;
  TimeSliceTrace* const trace_;
  std::array<slice::ChargeMeter, kEngines> meters_;  // by queue
  std::array<Crowd, kEngines> crowds_;               // the same
};

}  // namespace bandsaw
