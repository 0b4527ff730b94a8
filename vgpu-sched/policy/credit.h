// Xen's Credit scheduler, with time slices in the place of time on a processor. Here to show why it does not do: it
// takes for granted that work is preempted and always there, and a time slice is neither.
//
// Every period hands out its length as credit, by shares, among the virtual GPUs that were active; measured time is
// taken off. Who has credit is UNDER and goes before who is OVER; a sleeper that wakes with credit is BOOSTed before
// both, until the period ends. Equals go in turn, a time slice each. Credit is kept within one period, in both
// directions: that, and the engine going to whoever waits at the moment a time slice ends, is where shares get lost.
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
