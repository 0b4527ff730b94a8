// The scheduler of one physical GPU: virtual GPUs, a queue for each engine (or one for all), and a policy
// for each queue.
//
// Driven by events with explicit times; after each event, and at the time of a kWait, the caller asks next() for each
// engine until the answer is no longer kDispatch:
//
//   scheduler.arrival(request, now);
//   while ((answer = scheduler.next(engine, now)).kind == Answer::Kind::kDispatch) send(answer.request);
//
// An engine queue serves one virtual GPU at a time and has at most `depth` time slices in flight. MPS virtual GPUs
// share it: each has up to `depth` in flight, while the policy does not hold it back and prefers nobody who needs the
// engine alone. A time slice is charged the time that completion() is given: what was measured or, where the engine was
// shared, its part of that. Until then its estimate stands for it.
//
// Pure: no clock, threads, system calls. A time before an earlier one counts as the earlier one. Calls from one thread
// at a time. Owns all it is given. Errors leave everything as it was.
// Source: Gdev (USENIX ATC 2012), section 5: SDQ and MRQ, queues for compute and for copies.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "vgpu-sched/policy/policy.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

struct SchedulerOptions {
  QueueModel model = QueueModel::kMrq;
  int depth = 2;  // time slices in flight of a queue, at least 1
  Time period = PolicyOptions{}.period;
};

// How MPS virtual GPUs share an engine.
struct SharingRules {
  int most = 1 << 30;     // at a time, at least 1
  bool in_order = false;  // those that may share the engine begin in the order in which they asked

  bool operator==(const SharingRules&) const = default;
};

class Scheduler {
 public:
  // `make` gives a policy for each queue; the policies' period is to be the one of the options.
  Scheduler(const SchedulerOptions& options, const std::function<std::unique_ptr<Policy>()>& make);

  // The share holds for every queue; set_share() changes one.
  [[nodiscard]] Error add(VgpuId vgpu, const Share& share, Time now);
  // In force with the next time slice. With one queue, any engine names it.
  [[nodiscard]] Error set_share(VgpuId vgpu, Engine engine, const Share& share, Time now);
  // At first none is MPS. What is in flight stays. For copies, virtual GPUs of either kind may be set so: see
  // ArbiterOptions::copies_beside.
  [[nodiscard]] Error set_mps(VgpuId vgpu, Engine engine, bool mps, Time now);
  void set_rules(const SharingRules& rules);
  // Its waiting requests stay; those in flight end as usual.
  [[nodiscard]] Error set_paused(VgpuId vgpu, bool paused, Time now);
  // Forgets its requests, those in flight too: the device must no longer run them, or others will overlap with them.
  [[nodiscard]] Error remove(VgpuId vgpu, Time now);

  [[nodiscard]] Error arrival(const Request& request, Time now);
  // `measured`: the engine's time that the time slice took, in nanoseconds.
  [[nodiscard]] Error completion(VgpuId vgpu, Engine engine, RequestId request, Time measured, Time now);
  // Takes back a request that waits. One in flight ends by completion().
  [[nodiscard]] Error cancel(VgpuId vgpu, Engine engine, RequestId request, Time now);
  // Ends the periods that are over. Every event does that too, so nobody has to call this on time.
  void tick(Time now);

  Answer next(Engine engine, Time now);

  // For reports: null when there is none. Valid until the next call of add().
  const Tenant* tenant(VgpuId vgpu, Engine engine) const;

 private:
  struct EngineQueue {
    State state;
    std::unique_ptr<Policy> policy;
    std::uint64_t arrivals = 0;
    int in_flight = 0;
  };

  EngineQueue& engine_queue_of(Engine engine);
  const EngineQueue& engine_queue_of(Engine engine) const;
  static Slot slot_of(const EngineQueue& queue, VgpuId vgpu);
  static Error check(const EngineQueue& queue, Slot except, const Share& share);
  static Slot take_slot(EngineQueue* queue);
  static void release(EngineQueue* queue, Slot slot, std::vector<Request>::iterator request, Time now);
  static void see_holders(EngineQueue* queue);
  void bar(EngineQueue* queue, Time now) const;
  Slot first_in_order(const State& state, Slot preferred) const;
  bool may_go(const EngineQueue& queue, Slot slot) const;
  Time at(Time now);

  std::vector<EngineQueue> queues_;
  SharingRules rules_;
  Time period_;
  Time now_ = 0;
  Time period_end_ = 0;  // 0: no event yet
};

}  // namespace bandsaw::sched
