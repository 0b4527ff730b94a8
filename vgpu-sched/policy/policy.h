// Who uses the engine next. A policy is one class which sees an engine queue's state and prefers one virtual GPU; the
// scheduler (scheduler.h) keeps the queues themselves, the bound on what is in flight, and the rule of who may share an
// engine.
//
// No threads: all calls to one policy come from one thread at a time. `now` never decreases from call to call.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

// Index of a virtual GPU in a queue's state; used again after it left.
using Slot = std::size_t;
inline constexpr Slot kNoSlot = ~Slot{0};

struct Waiting {
  Request request;
  std::uint64_t sequence;  // of its arrival, among all requests of the queue
};

struct Tenant {
  bool present = false;
  bool paused = false;
  bool mps = false;     // may use the engine together with other MPS virtual GPUs
  bool barred = false;  // may begin nothing more for now: others use the engine (see Scheduler)
  VgpuId vgpu = 0;
  Share share;
  std::deque<Waiting> waiting;     // in the order in which they go
  std::vector<Request> in_flight;  // in the order in which they went
  Time typical = 0;                // moving mean of its measured time slices; 0: none yet
  Time used = 0;                   // sum of its measured time slices
  Time running_since = 0;          // when its oldest request in flight came to run, about
  Time lasts = 0;                  // moving mean of how long its time slices were on the engine, alone or with others

  bool runnable() const { return present && !paused && !barred && !waiting.empty(); }
  bool idle() const { return waiting.empty() && in_flight.empty(); }
  // How long the request will run, as far as anybody knows.
  Time expected(const Request& request) const { return request.estimate > 0 ? request.estimate : typical; }
};

// One engine queue, as a policy sees it.
struct State {
  std::vector<Tenant> tenants;  // by slot; some may not be present
  Slot holder = kNoSlot;        // whose work is in flight; one of them where there are several
  Time running_since = 0;       // when the oldest request in flight came to run, about
  int depth = 1;                // the most requests in flight of each holder
  int holders = 0;              // virtual GPUs that have work in flight
  int most_holders = 1 << 30;   // the most of them at a time
  bool shared = false;          // all holders are MPS virtual GPUs

  // True: this one's next request may begin while others have work in flight.
  bool may_join(const Tenant& tenant) const {
    return shared && tenant.mps && (!tenant.in_flight.empty() || holders < most_holders);
  }
};

struct Decision {
  Answer::Kind kind = Answer::Kind::kHold;
  Slot slot = kNoSlot;  // kDispatch: whose first waiting request goes
  Time until = 0;       // kWait
};

struct PolicyOptions {
  Time period = 30 * kMillisecond;   // of the budgets of Credit and BAND, as Xen's; of BAND+: a cap's burst
  Time wait = 500 * kMicrosecond;    // how long the engine is kept for a neighbour that will be back soon
  Time memory = 300 * kMillisecond;  // BAND: over which time utilisation is taken
  // BAND+ only:
  Time turn = kMillisecond;         // a virtual GPU keeps the engine so long between equals: fewer switches
  Time ahead = 500 * kMicrosecond;  // the next time slice is sent so long before the end of one: bounds the over-run
  Time debt = kSecond;              // the most that a virtual GPU is made to give back; more is forgiven
  Time carry = 10 * kMillisecond;   // the most owed time that is kept for one idle for more than a period
  Time shared_debt = 5 * kMillisecond;  // debt up to which an MPS virtual GPU may still share the engine
  // The engine is kept for gaps up to 1/16 of the neighbour's time slices, or of the time slice that would go instead.
  int gap_ratio = 16;
};

class Policy {
 public:
  virtual ~Policy() = default;

  // `slot` is a new virtual GPU; what was known of the slot is void.
  virtual void on_join(Slot slot, const State& state, Time now) {}
  // Its share or its pause changed.
  virtual void on_change(Slot slot, const State& state, Time now) {}
  // It is gone; the state still shows its last values, but no longer its presence.
  virtual void on_leave(Slot slot, const State& state, Time now) {}
  // A request is among the waiting ones. `woken`: there was none, nor any in flight.
  virtual void on_arrival(Slot slot, bool woken, const State& state, Time now) {}
  // Its first waiting request is now the last in flight.
  virtual void on_dispatch(Slot slot, const State& state, Time now) {}
  // A request in flight is over and took `measured` of the engine.
  virtual void on_completion(Slot slot, Time measured, const State& state, Time now) {}
  // `periods` (at least one) of PolicyOptions::period are over since the last time.
  virtual void on_period(Time periods, const State& state, Time now) {}

  // Whose time slice is to go next. If that one may not begin now (another one holds the engine, or it may not join
  // those that share it), the scheduler holds until the engine is free for it. May be called any number of times
  // between two events. Called only with room in flight.
  virtual Decision decide(const State& state, Time now) = 0;

  // True: this MPS virtual GPU has had so much of a shared engine that the others go on without it for now.
  virtual bool holds_back(Slot slot, const State& state, Time now) { return false; }
};

// "fifo", "credit", "band", "band+". Null: no policy of this name.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options = {});

}  // namespace bandsaw::sched
