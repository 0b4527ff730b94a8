// BAND+: every virtual GPU with work gets its part of the engine, within a time slice.
//
// - Each time slice's measured time is taken off its owner's lag and handed to all active virtual GPUs by their
//   fractions: a positive lag is owed time, a negative one debt. The one furthest behind goes next, so over-runs of
//   time slices that cannot be preempted are given back exactly, and nobody is ever off by more than about the longest
//   time slice.
// - Fractions follow the shares of those who are active, within reservation and cap: an idle neighbour's part is lent
//   at once. Who comes back goes next. Debt is paid off by idling; of what is owed to an idler, `carry` is kept.
// - A virtual GPU that is behind and whose gaps between time slices are short, compared with its time slices, has the
//   engine kept for so long (BAND's short wait, only where it costs little). One with a reservation gets it for gaps up
//   to `wait`.
// - A cap is a bucket filled at its rate, a period deep; over-runs make it negative. The engine may idle for it.
// - MPS virtual GPUs share the engine while none is further in debt than `shared_debt`, or than two of the longest time
//   slices of any active virtual GPU. One that needs the engine alone and is further behind stops them from beginning
//   more.
// - Priority decides among those to whom time is owed, and so costs nobody's part.
// - A virtual GPU in debt waits for two periods at most or, if that is longer, for one and a half times one of its time
//   slices divided by its fraction. Then it has a time slice. It still gets less than its share until the debt is paid.
//
// Bounds: debt and owed time stay within PolicyOptions::debt, more is forgotten. Time slices longer than that break
// shares.
// Source: BAND of Gdev (USENIX ATC 2012), section 5.2, of which it keeps the aims; lag and fractions are those
// of proportional-share scheduling (Stoica et al., RTSS 1996).
#pragma once

#include <vector>

#include "vgpu-sched/policy/policy.h"

namespace bandsaw::sched {

class BandPlus : public Policy {
 public:
  explicit BandPlus(const PolicyOptions& options) : options_(options) {}

  void on_join(Slot slot, const State& state, Time now) override;
  void on_change(Slot slot, const State& state, Time now) override;
  void on_leave(Slot slot, const State& state, Time now) override;
  void on_arrival(Slot slot, bool woken, const State& state, Time now) override;
  void on_dispatch(Slot slot, const State& state, Time now) override;
  void on_completion(Slot slot, Time measured, const State& state, Time now) override;
  Decision decide(const State& state, Time now) override;
  bool holds_back(Slot slot, const State& state, Time now) override;

 private:
  struct Entry {
    double lag = 0;       // nanoseconds owed; negative: debt
    double fraction = 0;  // of the engine's time; those of all active ones add up to 1
    bool active = false;  // has work, or had it less than `wait` ago
    bool idle = true;     // no request waiting nor in flight, since idle_since
    bool woken = false;   // came back and had no time slice since
    bool late = false;    // the engine was kept for it in vain
    Time idle_since = 0;
    Time unserved_since = 0;  // had nothing on the engine since; not while it is idle
    double gap = 0;           // moving mean of the times between its last request's end and the next one
    double tokens = 0;        // nanoseconds that its cap leaves, at tokens_at
    Time tokens_at = 0;
  };

  void retire(const State& state, Time now);
  void activate(Slot slot, const State& state, Time now);
  void share_out(const State& state);
  double lag_per_share(Slot slot, const State& state) const;
  double tokens(Slot slot, const State& state, Time now) const;
  bool before(Slot one, Slot other, const State& state) const;
  Time overdue(Slot slot, const State& state, Time now) const;
  Slot choose(const State& state, Time now) const;
  Decision decide_shared(const State& state, Time now) const;
  bool is_capped(Slot slot, const State& state, Time now) const;
  Time keep_for_neighbour(Slot best, const State& state, Time now);
  Time tokens_for_next(Slot slot, const State& state, Time now) const;
  Time next_tokens(const State& state, Time now) const;

  PolicyOptions options_;
  std::vector<Entry> entries_;  // by slot
  Slot turn_slot_ = kNoSlot;    // whose turn it is
  Time turn_used_ = 0;          // measured time of the turn
};

}  // namespace bandsaw::sched
