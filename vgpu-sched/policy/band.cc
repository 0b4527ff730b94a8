#include "vgpu-sched/policy/band.h"

#include <algorithm>
#include <cmath>

namespace bandsaw::sched {

void Band::on_join(Slot slot, const State& state, Time now) {
  entries_.resize(state.tenants.size());
  entries_[slot] = Entry{};
  entries_[slot].used_at = now;
  order_.push_back(slot);
}

void Band::on_leave(Slot slot, const State& state, Time now) {
  std::erase(order_, slot);
  if (last_ == slot) last_ = kNoSlot;
  if (arrived_ == slot) arrived_ = kNoSlot;
}

void Band::on_arrival(Slot slot, bool woken, const State& state, Time now) {
  if (wait_end_ != 0 && arrived_ == kNoSlot) arrived_ = slot;
}

void Band::on_dispatch(Slot slot, const State& state, Time now) {
  wait_end_ = 0;
  arrived_ = kNoSlot;
}

bool Band::over_bandwidth(Slot slot, const State& state, Time now) {
  Entry& entry = entries_[slot];
  const auto memory = static_cast<double>(options_.memory);
  entry.used *= std::exp(-static_cast<double>(now - entry.used_at) / memory);
  entry.used_at = now;
  return entry.used * 100 > memory * state.tenants[slot].share.percent;
}

void Band::on_completion(Slot slot, Time measured, const State& state, Time now) {
  Entry& entry = entries_[slot];
  over_bandwidth(slot, state, now);
  entry.used += static_cast<double>(measured);
  entry.budget -= measured;
  last_ = slot;
  if (entry.budget < 0 && over_bandwidth(slot, state, now)) {
    std::erase(order_, slot);
    order_.push_back(slot);
  }
}

void Band::on_period(Time periods, const State& state, Time now) {
  const Time length = std::min<Time>(periods, 1000) * options_.period;
  for (const Slot slot : order_) {
    Entry& entry = entries_[slot];
    entry.budget += length * state.tenants[slot].share.percent / 100;
    entry.budget = std::clamp(entry.budget, -options_.period, options_.period);
  }
}

bool Band::holds_back(Slot slot, const State& state, Time now) {
  return entries_[slot].budget < 0 && over_bandwidth(slot, state, now);
}

Decision Band::decide(const State& state, Time now) {
  const auto head =
      std::find_if(order_.begin(), order_.end(), [&](Slot slot) { return state.tenants[slot].runnable(); });
  if (head == order_.end()) {
    wait_end_ = 0;
    return {};
  }
  Slot next = *head;
  if (state.holder == kNoSlot && next != last_ && over_bandwidth(next, state, now)) {
    if (wait_end_ == 0) wait_end_ = now + options_.wait;
    const bool other = arrived_ != kNoSlot && state.tenants[arrived_].runnable();
    if (other) next = arrived_;
    if (!other && now < wait_end_) return {.kind = Answer::Kind::kWait, .slot = kNoSlot, .until = wait_end_};
  }
  return {.kind = Answer::Kind::kDispatch, .slot = next, .until = 0};
}

}  // namespace bandsaw::sched
