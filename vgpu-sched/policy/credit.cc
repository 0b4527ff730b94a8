#include "vgpu-sched/policy/credit.h"

#include <algorithm>

namespace bandsaw::sched {

void Credit::on_join(Slot slot, const State& state, Time now) {
  entries_.resize(state.tenants.size());
  entries_[slot] = Entry{};
  order_.push_back(slot);
}

void Credit::on_leave(Slot slot, const State& state, Time now) { std::erase(order_, slot); }

void Credit::on_arrival(Slot slot, bool woken, const State& state, Time now) {
  Entry& entry = entries_[slot];
  entry.active = true;
  if (woken && entry.level == Class::kUnder) entry.level = Class::kBoost;
}

void Credit::on_dispatch(Slot slot, const State& state, Time now) {
  std::erase(order_, slot);
  order_.push_back(slot);
}

void Credit::on_completion(Slot slot, Time measured, const State& state, Time now) {
  entries_[slot].credit -= measured;
  entries_[slot].active = true;
}

void Credit::on_period(Time periods, const State& state, Time now) {
  Time shares = 0;
  for (const Slot slot : order_) {
    entries_[slot].active = entries_[slot].active || !state.tenants[slot].idle();
    if (entries_[slot].active) shares += state.tenants[slot].share.percent;
  }
  // After more periods than these every virtual GPU's budget is at its bound.
  const Time length = std::min<Time>(periods, 1000) * options_.period;
  for (const Slot slot : order_) {
    Entry& entry = entries_[slot];
    if (!entry.active) continue;
    entry.credit += length * state.tenants[slot].share.percent / shares;
    // More than a period's worth looks like one who does not want it.
    if (entry.credit > options_.period) entry.credit = 0;
    entry.credit = std::max(entry.credit, -options_.period);
    entry.level = entry.credit < 0 ? Class::kOver : Class::kUnder;
    entry.active = !state.tenants[slot].idle();
  }
}

// True: it has no credit left, and one that has some is at work.
bool Credit::holds_back(Slot slot, const State& state, Time now) {
  if (entries_[slot].level != Class::kOver) return false;
  return std::any_of(order_.begin(), order_.end(), [&](Slot other) {
    return !state.tenants[other].in_flight.empty() && entries_[other].level != Class::kOver;
  });
}

Decision Credit::decide(const State& state, Time now) {
  Decision decision;
  for (const Slot slot : order_) {
    if (!state.tenants[slot].runnable()) continue;
    if (decision.slot != kNoSlot && entries_[slot].level >= entries_[decision.slot].level) continue;
    decision = {.kind = Answer::Kind::kDispatch, .slot = slot, .until = 0};
  }
  return decision;
}

}  // namespace bandsaw::sched
