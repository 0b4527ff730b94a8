// The arbiter's judgement: gates on one side, the scheduler on the other. No threads, descriptors or clock; `now` is a
// parameter, in nanoseconds of CLOCK_MONOTONIC. What is read from a grant page may be anything: counters that make no
// sense are bounded, and harm only the virtual GPU whose grant page it is.
//
// A request of the scheduler is either an ask of one gate, or a lease: all that a virtual GPU does while its gates are
// open, completed and renewed each period.
//
// Where the hardware's own time slices hold the shares of the compute engine (arbiter_time_slices.cc), its gates stand
// open and belong to no queue.
//
// MPS virtual GPUs may have an engine together. Each is charged its measured time by the part of it that is
// its own: a moment in which several have the engine is divided by their number, so that all charges together are no
// more than the time that passed.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/control/gate_link.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/arbiter/channel_groups.h"
#include "backend/vgpud/arbiter/co_planner.h"
#include "vgpu-sched/policy/scheduler.h"
#include "vgpu-sched/policy/time_slice_weights.h"
#include "vgpu-sched/slice/charge.h"

namespace bandsaw {

class ArbiterCore {
 public:
  using Time = sched::Time;
  static constexpr Time kNever = INT64_MAX;

  // The policy's name is known to be good.
  explicit ArbiterCore(const ArbiterOptions& options);

  static bool knows_policy(const std::string& name);

  Status add(const std::string& vgpu, const EngineShares& shares, Time now);
  Status set_shares(const std::string& vgpu, const EngineShares& shares, Time now);
  void remove(const std::string& vgpu, Time now);
  void set_policy(const std::string& policy, sched::QueueModel model, Time now);
  void set_sharing(const std::string& vgpu, Sharing sharing);
  void set_latency(const std::string& vgpu, Time latency);
  void set_sm_part(const std::string& vgpu, double part);
  void set_planning_mode(PlanningMode mode, Time now);
  const ArbiterOptions& options() const { return options_; }

  // Why the gates hold the shares of the compute engine; empty: the hardware's time slices do.
  const std::string& why_gates() const { return why_gates_; }

  // `grant_page` stays valid until detach.
  void attach(const std::string& vgpu, GrantPage* grant_page, Time now);
  void detach(const std::string& vgpu, Time now);

  // The runner in the slot has so many compute channel groups, whose time slices can be set; 0: it will have none that
  // can. Both hold until the runner ends (forget_channel_groups) or the session does (detach).
  void set_channel_groups(const std::string& vgpu, uint32_t slot, uint32_t count, Time now);
  void forget_channel_groups(const std::string& vgpu, uint32_t slot, Time now);
  // An order that take_time_slices() gave out could not be carried out, though the runner still has the groups.
  void time_slice_failed(const std::string& vgpu, uint32_t slot, const Status& error, Time now);
  // What is to be set, in this order; to be called after each run().
  std::vector<TimeSliceOrder> take_time_slices();

  // Reads the gates whose pending bits are set on the virtual GPU's grant page.
  void on_pending(const std::string& vgpu, Time now);
  // Grants what can be granted. To be called after every other call, and at the time that it returns.
  Time run(Time now);

  std::vector<VgpuUse> use() const;
  PlanState plan() const;
  void start_trace();
  std::vector<TimeSliceRecord> take_trace(uint64_t* lost);

 private:
  using EngineQueue = size_t;  // which queue of the scheduler: SDQ has one, MRQ one for each engine

  struct Granted {
    sched::RequestId id = 0;
    Time asked = 0, granted = 0;
    uint64_t planned = 0;  // the plan's number for it; 0: none has
  };
  // What is known of one gate.
  struct EngineState {
    uint32_t ended = 0, asked = 0;
    uint64_t busy_ns = 0;
    bool waiting = false;
    bool admitted = false;       // the scheduler has sent the ask that waits, and the plan has not granted it
    Granted ask;                 // the one that waits
    std::deque<Granted> flying;  // granted, oldest first
    uint32_t leased = 0;         // begun at an open gate that has been closed since
    uint32_t overdue = 0;        // granted, and given up: they are no longer the scheduler's
    Time overdue_since = 0;
    Time last_end = 0;    // of a time slice
    Time head_since = 0;  // since when the oldest one in flight is the oldest
    // The oldest one in flight is short work, and finds no room beside persistent blocks.
    bool waits_for_room = false;
    sched::RequestId room_asked_for = 0;  // the time slice for which room was asked last
    // Under the hardware's time slices: when it was last seen with work, and what was ordered of them last.
    Time busy_at = -sched::kLongest;
    Time measured = 0, measured_since = 0;  // the sum of what its runner measured, and since when
    uint32_t ordered_us = 0;
  };
  using EngineStates = std::array<EngineState, kEngines>;
  struct Lease {
    enum class State { kNone, kOpen, kClosing } state = State::kNone;
    sched::RequestId id = 0;
    Time since = 0;        // of the present part
    uint64_t busy_ns = 0;  // measured in it
    Time closed = 0;       // when its gates were shut
    // After `closed`: what was begun under it and still runs has been counted (EngineState::leased).
    bool counted = false;

    bool takes() const { return state == State::kOpen || (state == State::kClosing && !counted); }
    // Time that earlier parts held and were not charged for: a time slice that ends now may have begun in them.
    Time credit = 0;
    // MPS only: its part of the time since `since`, as far as take_part() has read the meter.
    Time own = 0;
  };
  // A span of time in which an MPS virtual GPU had an engine: how long it was, and how much of it is its own.
  struct Part {
    Time wall = 0, own = 0;
    uint64_t of(uint64_t busy_ns) const;
  };
  struct Meter {
    bool runs = false;
    bool no_waiters = false;  // nobody waits for the end of what it has there
    Time since = 0;
  };
  // An MPS virtual GPU whose compute gate stands open beside the scheduler: it has SMs of its own, where work neither
  // delays others nor waits for them; or it has a latency bound, and goes first on the device.
  struct Bypass {
    double part = 0;     // of the GPU's SMs that are its own; 0: none are
    bool fresh = false;  // every program that runs began after it had them
    bool on = false;
    bool open = false;  // some gate is, and has been used a moment ago
    // `since`: all time before it is charged, or was idle. `probed_at`: when its gates were read last. `used_at`: when
    // they were last seen in use.
    Time since = 0, probed_at = 0, used_at = 0;
  };
  // How much more compute time one with a latency bound may have without asking. It fills at the rate of its share.
  struct Allowance {
    Time left = 0, at = 0;
    uint64_t busy_ns = 0;  // that it was charged up to then
    bool spent = false;    // until it is full again, it asks like everybody
  };
  struct Vgpu {
    std::string name;
    sched::VgpuId id = 0;
    EngineShares shares{};
    GrantPage* grant_page = nullptr;
    GrantPage* ungoverned_page = nullptr;  // the same page, while the arbiter does not govern it
    // `wants_mps`: as configured. `mps`: in force; it begins once no program from before the change is left.
    bool mps = false, wants_mps = false;
    Time latency = 0;  // the most that its short work is to wait for others; 0: no bound
    Bypass bypass;
    Allowance allowance;                   // while it has a latency bound
    bool compute_open = false;             // its compute gates, under the hardware's time slices
    Time slices_used = 0;                  // what weights_ said of it last
    Time room_asked_at = 0;                // when others were asked last to make room for it
    std::array<Meter, kEngines> meters{};  // by queue
    std::map<uint32_t, EngineStates> slots;
    std::array<uint32_t, kGateSlots> generation{};
    std::array<Lease, kEngines> leases;          // by queue
    std::array<Time, kEngines> underreported{};  // by queue: held longer than measured, beyond what is usual
    std::array<Time, kEngines> debt{};           // by queue: charged with the next completion
    std::array<Time, kEngines> last_wanted{};    // by queue; 0: never
    std::array<EngineUse, kEngines> use{};
    std::map<uint32_t, uint32_t> channel_groups;  // by slot: how many
    std::set<uint32_t> ended_runners;             // by slot, until the next runner there
    std::map<uint32_t, int> failed_time_slices;   // by slot: the errno of the last order that failed
  };

  EngineQueue engine_queue_of(unsigned engine) const { return options_.model == sched::QueueModel::kSdq ? 0 : engine; }
  unsigned engine_queues() const { return options_.model == sched::QueueModel::kSdq ? 1 : kEngines; }
  // Calls each(slot, engine, state) for every gate of the virtual GPU that belongs to the queue. Compute gates belong
  // to none where the hardware's time slices hold the shares, and where the virtual GPU has SMs of its own.
  template <typename AnyVgpu, typename Each>
  void for_engines(AnyVgpu& vgpu, EngineQueue queue, const Each& each) const {
    for (auto& [slot, states] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        if (engine_queue_of(engine) == queue && !in_no_queue(vgpu, engine)) each(slot, engine, states[engine]);
      }
    }
  }
  // Whether is(state) holds for some gate of another virtual GPU in the queue.
  template <typename Is>
  bool any_of_others(const Vgpu& vgpu, EngineQueue queue, const Is& is) const {
    bool any = false;
    for (const auto& [name, other] : vgpus_) {
      if (&other == &vgpu) continue;
      for_engines(other, queue, [&](uint32_t, unsigned, const EngineState& state) { any = any || is(state); });
    }
    return any;
  }
  Vgpu* find(const std::string& name);
  LatencyMeans latency_means(const Vgpu& vgpu) const;
  void make_scheduler(Time now);
  void enter(const Vgpu& vgpu, Time now);
  Status check_shares(const std::string& except, const EngineShares& shares) const;

  void read_slot(Vgpu& vgpu, uint32_t slot, Time now);
  void read_gate(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  void on_ended(Vgpu& vgpu, uint32_t slot, unsigned engine, uint32_t count, uint64_t busy_ns, Time now);
  void forget_engine(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  void complete(Vgpu& vgpu, uint32_t slot, unsigned engine, const Granted& slice, uint64_t busy_ns, Time held,
                Time now);
  Time held_since(const Vgpu& vgpu, EngineQueue queue, const EngineState& state, const Granted& slice) const;
  static Time take_debt(Vgpu& vgpu, EngineQueue queue);
  Part take_part(Vgpu& vgpu, EngineQueue queue, Time now);
  void review_meters(EngineQueue queue, Time now);
  void set_no_waiters(Vgpu& vgpu, EngineQueue queue, bool no_waiters);
  void review_sharing(Time now);
  static bool bypasses(const Vgpu& vgpu, unsigned engine) { return vgpu.bypass.on && engine == 0; }
  bool in_no_queue(const Vgpu& vgpu, unsigned engine) const {
    return engine == 0 && (hardware_slices_ || vgpu.bypass.on);
  }
  static bool has_programs(const Vgpu& vgpu);
  static bool has_own_sms(const Vgpu& vgpu) { return vgpu.bypass.part > 0 && vgpu.bypass.fresh; }
  bool goes_first(Vgpu& vgpu, Time now) const;
  void post_uncut();
  Time review_bypasses(Time now);
  void enter_bypass(Vgpu& vgpu, Time now);
  void leave_bypass(Vgpu& vgpu, Time now);
  void read_bypass_gate(Vgpu& vgpu, uint32_t slot, Time now);
  Time probe_bypass(Vgpu& vgpu, Time now);
  sched::SharingRules sharing_rules() const;
  std::string find_why_gates() const;
  static std::string find_why_gates(const Vgpu& vgpu, uint32_t slot);
  Time review_time_slices(Time now);
  void enter_time_slices(Time now);
  void leave_time_slices(Time now);
  void read_sliced_gate(Vgpu& vgpu, uint32_t slot, Time now);
  void open_sliced_gates(Vgpu& vgpu, bool open);
  bool is_steered(Time now) const;
  Time sample_time_slices(Time now);
  void order_time_slices(Vgpu& vgpu, Time now);
  Time charge(Vgpu& vgpu, EngineQueue queue, uint64_t busy_ns, Time held, Time kept);
  void let_in(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  void arrive(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  uint32_t running_at(const Vgpu& vgpu, uint32_t slot, unsigned engine) const;
  void grant(const sched::Request& request, Time now);
  void grant_ask(Vgpu& vgpu, uint32_t slot, unsigned engine, const CoPlanner::Grant& planned, Time now);

  void make_planner(Time now);
  void post_mode(Vgpu& vgpu);
  bool admit(const sched::Request& request, Time now);
  void withdraw(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  void leave_plan(const Vgpu& vgpu, uint32_t slot, Time now);
  void snapshot_descriptor(const Vgpu& vgpu, uint32_t slot, Time now);
  void tell_plan(const Vgpu& vgpu, uint32_t slot, const Granted& slice, uint64_t busy_ns, Time now);
  void note_concurrency(Time now);
  void take_answer(const CoPlanner::Grant& grant, Time now);
  Time follow_plan(EngineQueue queue, Time now);
  bool governs(const Vgpu& vgpu) const;
  void review_governed(Time now);
  void release_ungoverned(Vgpu& vgpu, GrantPage* grant_page);

  bool take_lease(Vgpu& vgpu, EngineQueue queue, Time now);
  void open(Vgpu& vgpu, EngineQueue queue, Time now);
  void close(Vgpu& vgpu, EngineQueue queue, Time now);
  void renew(Vgpu& vgpu, EngineQueue queue, Time now);
  void end_lease(Vgpu& vgpu, EngineQueue queue, Time now);
  void give_up_lease(Vgpu& vgpu, EngineQueue queue, Time now);
  void settle_closing(Vgpu& vgpu, EngineQueue queue, Time now);
  void set_open(Vgpu& vgpu, EngineQueue queue, bool open);

  void fit_quantum(Time now);
  void maybe_open(EngineQueue queue, Time now);
  bool wants(const Vgpu& vgpu, EngineQueue queue, bool waiting_only) const;
  bool others_want(const Vgpu& vgpu, EngineQueue queue) const;
  Time review_short_work(EngineQueue queue, Time now);
  bool others_wait_for_end(const Vgpu& vgpu, EngineQueue queue) const;
  bool has_overdue(const Vgpu& vgpu, EngineQueue queue) const;
  Time dispatch(EngineQueue queue, Time now);
  Time give_up_overdue(EngineQueue queue, Time now);
  Time give_up_time_slices(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now);
  Time renew_leases(EngineQueue queue, Time now);
  void record(const Vgpu& vgpu, uint32_t slot, unsigned engine, const Granted& slice, Time ended, Time charged);

  ArbiterOptions options_;
  Time quantum_;  // that runners gather short work to now
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::map<std::string, Vgpu> vgpus_;
  sched::VgpuId next_vgpu_ = 1;
  sched::RequestId next_request_ = 1;
  struct Place {
    Vgpu* vgpu = nullptr;
    uint32_t slot = 0;
    unsigned engine = 0;
  };
  std::unordered_map<sched::RequestId, Place> waiting_;  // asks that the scheduler has not answered
  std::array<Time, kEngines> free_since_{};              // by queue: when the last time slice ended
  PlanningMode planning_mode_ = PlanningMode::kMps;
  std::unique_ptr<CoPlanner> planner_;               // null: the mode plans nothing
  bool only_mps_ = true;                             // no time-sliced virtual GPU has programs
  Time concurrent_at_ = 0;                           // when several gates last had something on the compute engine
  std::array<slice::ChargeMeter, kEngines> meters_;  // by queue
  bool hardware_slices_ = false;                     // they hold the shares of the compute engine
  std::string why_gates_ = "no program has used the compute engine yet";
  sched::TimeSliceWeights weights_;
  Time sampled_at_ = 0;
  std::vector<TimeSliceOrder> time_slice_orders_;
  bool tracing_ = false;
  std::vector<TimeSliceRecord> trace_;
  uint64_t trace_lost_ = 0;
};

}  // namespace bandsaw
