// Who holds and who waits at which gate, of all virtual GPUs of one physical GPU. Nobody else opens a closed gate or
// answers an ask.
//
// A gate belongs to the queue of its engine, or to none (VgpuState::compute_gates). What is read from a grant page may
// be anything: counters that make no sense are bounded.
//
// Threads: those of the arbiter's core, as of all parts of it.
#pragma once

#include <map>
#include <ranges>
#include <string>

#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/arbiter/vgpu_state.h"

namespace bandsaw {

class GrantTable {
 public:
  using Queue = size_t;  // of the scheduler: SDQ has one, MRQ one for each engine

  // The options outlive this, and may change.
  explicit GrantTable(const ArbiterOptions* options) : options_(options) {}

  VgpuState* find(const std::string& name);
  const VgpuState* find(sched::VgpuId id) const;
  VgpuState& add(const std::string& name, const EngineShares& shares);
  void remove(const std::string& name) { vgpus_.erase(name); }
  auto all() { return std::views::values(vgpus_); }
  auto all() const { return std::views::values(vgpus_); }

  Queue queue_of(unsigned engine) const { return options_->model == sched::QueueModel::kSdq ? 0 : engine; }
  unsigned queues() const { return options_->model == sched::QueueModel::kSdq ? 1 : kEngines; }

  // It has the engines of the queue together with others of which that is true.
  bool goes_beside(const VgpuState& vgpu, Queue queue) const;

  // Calls each(slot, engine, state) for every gate of the virtual GPU that belongs to the queue.
  template <typename AnyVgpu, typename Each>
  void for_gates(AnyVgpu& vgpu, Queue queue, const Each& each) const {
    for (auto& [slot, gates] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        if (queue_of(engine) == queue && is_queued(vgpu, engine)) each(slot, engine, gates[engine]);
      }
    }
  }
  static bool is_queued(const VgpuState& vgpu, unsigned engine) {
    return engine != kCompute || vgpu.compute_gates == ComputeGates::kQueued;
  }
  // Whether is(state) holds for some gate of the virtual GPU in the queue.
  template <typename Is>
  bool any_gate(const VgpuState& vgpu, Queue queue, const Is& is) const {
    bool any = false;
    for_gates(vgpu, queue, [&](uint32_t, unsigned, const GateState& state) { any = any || is(state); });
    return any;
  }
  // The same of the other virtual GPUs.
  template <typename Is>
  bool any_of_others(const VgpuState& vgpu, Queue queue, const Is& is) const {
    bool any = false;
    for (const VgpuState& other : all()) any = any || (&other != &vgpu && any_gate(other, queue, is));
    return any;
  }

  // True: an ask of this virtual GPU waits, or (if not `waiting_only`) something of it is in flight.
  bool wants(const VgpuState& vgpu, Queue queue, bool waiting_only) const;
  bool others_want(const VgpuState& vgpu, Queue queue) const;
  // As others_want(), with two differences: an ask that waits for its turn in a plan does not count, and short work
  // that has begun and finds no room does.
  bool others_wait_for_end(const VgpuState& vgpu, Queue queue) const;
  bool has_overdue(const VgpuState& vgpu, Queue queue) const;
  // Programs that have used an engine.
  static bool has_programs(const VgpuState& vgpu);
  // No time-sliced virtual GPU has programs.
  bool only_mps() const;
  // Something of it is on the compute engine.
  static bool computes(const VgpuState& vgpu);
  // A program waits at a compute gate, whomever that belongs to.
  static bool waits_for_compute(const VgpuState& vgpu);
  // How many time slices of the gate have begun and not ended; 0 if its counters are nonsense.
  static uint32_t running_at(const VgpuState& vgpu, uint32_t slot, unsigned engine);
  // What the gate says, within the bounds of nice values.
  static int priority_at(const VgpuState& vgpu, uint32_t slot, unsigned engine);
  // The gates of the queue that its programs have used differ in priority, and that is to be kept.
  bool has_priorities(const VgpuState& vgpu, Queue queue) const;

  // The ask that waits may begin. `resident`, `blocks`: of a planned grid slice, as in Gate.
  struct Planned {
    uint64_t number = 0;  // 0: it is not planned
    uint64_t blocks = 0;
    uint32_t resident = 0;
  };
  void grant(VgpuState& vgpu, uint32_t slot, unsigned engine, const Planned& planned, sched::Time now);
  // Answers what was asked at the gate, and opens it.
  void let_in(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);
  // Answers what was asked at the gate. The caller says how it stands.
  static void answer(VgpuState& vgpu, uint32_t slot, unsigned engine);
  void set_open(VgpuState& vgpu, Queue queue, bool open) const;
  void set_no_waiters(VgpuState& vgpu, Queue queue, bool no_waiters) const;

 private:
  const ArbiterOptions* const options_;
  std::map<std::string, VgpuState> vgpus_;
  sched::VgpuId next_vgpu_ = 1;
};

}  // namespace bandsaw
