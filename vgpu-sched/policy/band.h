// BAND, the bandwidth-aware non-preemptive device scheduler, as Gdev has it.
//
// It differs from Credit in two points. First, a virtual GPU goes to the tail of the queue only when its budget is used
// up *and* its utilisation exceeds its bandwidth; this makes up for the errors of time slices that cannot be preempted.
// Second, before the engine passes to a virtual GPU whose utilisation exceeds its bandwidth, it is kept free for a
// short while, so that a neighbour with short time slices can ask again and is served at its arrival.
//
// Source: Gdev (USENIX ATC 2012), section 5.2 and figure 2; period 30 ms and wait 500 us from its section 6.
// Utilisation is a decaying mean over PolicyOptions::memory, and a budget stays within one period in both directions:
// the paper leaves both open.
#pragma once

#include <vector>

#include "vgpu-sched/policy/policy.h"

namespace bandsaw::sched {

class Band : public Policy {
 public:
  explicit Band(const PolicyOptions& options) : options_(options) {}

  void on_join(Slot slot, const State& state, Time now) override;
  void on_leave(Slot slot, const State& state, Time now) override;
  void on_arrival(Slot slot, bool woken, const State& state, Time now) override;
  void on_dispatch(Slot slot, const State& state, Time now) override;
  void on_completion(Slot slot, Time measured, const State& state, Time now) override;
  void on_period(Time periods, const State& state, Time now) override;
  Decision decide(const State& state, Time now) override;
  bool holds_back(Slot slot, const State& state, Time now) override;

 private:
  struct Entry {
    Time budget = 0;
    double used = 0;  // nanoseconds, decayed at used_at
    Time used_at = 0;
  };

  bool over_bandwidth(Slot slot, const State& state, Time now);

  PolicyOptions options_;
  std::vector<Entry> entries_;  // by slot
  std::vector<Slot> order_;     // head first
  Slot last_ = kNoSlot;         // whose time slice ended last
  Slot arrived_ = kNoSlot;      // who asked while the engine was kept free
  Time wait_end_ = 0;           // 0: not kept free
};

}  // namespace bandsaw::sched
