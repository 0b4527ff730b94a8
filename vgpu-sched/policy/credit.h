// Xen's Credit scheduler, with time slices in place of time on a processor. It is here for comparison. It expects work
// that can be preempted and is always there; time slices are neither.
//
// Every period hands out its length as credit, by shares, among the virtual GPUs that were active. Measured time is
// taken off. A virtual GPU with credit is UNDER, one without is OVER; UNDER goes first. A sleeper that wakes with
// credit is BOOSTed before both, until the period ends. Equals go in turn, a time slice each. Shares get lost in two
// places: credit and debt are cut to one period, and the engine goes to whoever waits at the moment when a time slice
// ends.
//
// Sources: Gdev (USENIX ATC 2012), sections 5.2 and 7.5; the description of Xen's Credit scheduler in its public wiki.
#pragma once

#include <vector>

#include "vgpu-sched/policy/policy.h"

namespace bandsaw::sched {

class Credit : public Policy {
 public:
  explicit Credit(const PolicyOptions& options) : options_(options) {}

  void on_join(Slot slot, const State& state, Time now) override;
  void on_leave(Slot slot, const State& state, Time now) override;
  void on_arrival(Slot slot, bool woken, const State& state, Time now) override;
  void on_dispatch(Slot slot, const State& state, Time now) override;
  void on_completion(Slot slot, Time measured, const State& state, Time now) override;
  void on_period(Time periods, const State& state, Time now) override;
  Decision decide(const State& state, Time now) override;
  bool holds_back(Slot slot, const State& state, Time now) override;

 private:
  enum class Class { kBoost, kUnder, kOver };
  struct Entry {
    Time credit = 0;
    Class level = Class::kUnder;
    bool active = false;  // in this period
  };

  PolicyOptions options_;
  std::vector<Entry> entries_;  // by slot
  std::vector<Slot> order_;     // of the turns
};

}  // namespace bandsaw::sched
