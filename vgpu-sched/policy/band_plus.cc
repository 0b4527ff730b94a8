#include "vgpu-sched/policy/band_plus.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "vgpu-sched/policy/promised.h"

namespace bandsaw::sched {
namespace {

constexpr double kNewGap = 0.5;  // what a gap counts in the mean
// A neighbour's gap may be so many times its mean before the wait for it ends.
constexpr double kLateGap = 4;
// Time slices are short up to so many times PolicyOptions::ahead: one too many of them costs nobody much.
constexpr Time kShort = 6;
// Nobody waits longer than kPeriods periods or, if that is longer, than kTurns times one of its time slices divided by
// its fraction, whatever its debt.
constexpr Time kPeriods = 2;
constexpr double kTurns = 1.5;

Time in_flight(const Tenant& tenant) {
  Time sum = 0;
  for (const Request& request : tenant.in_flight) sum += tenant.expected(request);
  return sum;
}

bool unknown_in_flight(const Tenant& tenant) {
  return std::any_of(tenant.in_flight.begin(), tenant.in_flight.end(),
                     [&](const Request& request) { return tenant.expected(request) == 0; });
}

}  // namespace

void BandPlus::on_join(Slot slot, const State& state, Time now) {
  entries_.resize(state.tenants.size());
  entries_[slot] = Entry{};
  entries_[slot].gap = static_cast<double>(2 * options_.wait);
  entries_[slot].idle_since = entries_[slot].tokens_at = now;
}

void BandPlus::on_leave(Slot slot, const State& state, Time now) {
  entries_[slot] = Entry{};
  if (turn_slot_ == slot) turn_slot_ = kNoSlot;
  share_out(state);
}

void BandPlus::on_change(Slot slot, const State& state, Time now) {
  retire(state, now);
  Entry& entry = entries_[slot];
  const Tenant& tenant = state.tenants[slot];
  entry.tokens = std::min(tokens(slot, state, now), 0.0);
  entry.tokens_at = now;
  if (tenant.idle() && !entry.idle) {
    entry.idle = true;
    entry.idle_since = now;
  }
  if (tenant.paused && entry.active) {
    entry.active = false;
    entry.idle_since = now;
  } else if (!tenant.paused && !entry.active && !tenant.idle()) {
    activate(slot, state, now);
  }
  share_out(state);
}

// Who has been idle for longer than a short gap no longer takes part.
void BandPlus::retire(const State& state, Time now) {
  bool changed = false;
  for (Entry& entry : entries_) {
    if (!entry.active || !entry.idle || now - entry.idle_since <= options_.wait) continue;
    entry.active = false;
    changed = true;
  }
  if (changed) share_out(state);
}

void BandPlus::activate(Slot slot, const State& state, Time now) {
  Entry& entry = entries_[slot];
  const double paid = static_cast<double>(now - entry.idle_since) * state.tenants[slot].share.percent / 100;
  if (entry.lag < 0) entry.lag = std::min(entry.lag + paid, 0.0);
  // A short absence is an accident of the program's own threads: it does not cost what is owed.
  if (now - entry.idle_since > options_.period) entry.lag = std::min(entry.lag, static_cast<double>(options_.carry));
  entry.active = entry.woken = true;
  share_out(state);
}

// Fractions anew, and lags moved so that they add up to zero: only their distances mean something.
void BandPlus::share_out(const State& state) {
  double percent = 0;
  double lags = 0;
  bool bounded = false;
  std::vector<Share> active;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    if (!entries_[slot].active) continue;
    const Share& share = state.tenants[slot].share;
    active.push_back(share);
    percent += share.percent;
    lags += entries_[slot].lag;
    bounded = bounded || share.reservation > 0 || share.cap < 100;
  }
  const double scale = bounded ? scale_to_fill(active) : 1;
  double sum = 0;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (!entry.active) continue;
    const Share& share = state.tenants[slot].share;
    entry.fraction = bounded ? part_of(share, scale) : share.percent / percent;
    sum += entry.fraction;
  }
  for (Entry& entry : entries_) {
    if (!entry.active) continue;
    entry.fraction /= sum;  // below 1 where everybody is capped
    entry.lag -= entry.fraction * lags;
  }
}

void BandPlus::on_arrival(Slot slot, bool woken, const State& state, Time now) {
  retire(state, now);
  Entry& entry = entries_[slot];
  if (entry.idle) {
    const Time gap = std::min(now - entry.idle_since, 10 * options_.wait);
    entry.gap += kNewGap * (static_cast<double>(gap) - entry.gap);
    entry.idle = entry.late = false;
    entry.unserved_since = now;
  }
  if (!entry.active && !state.tenants[slot].paused) activate(slot, state, now);
}

void BandPlus::on_dispatch(Slot slot, const State& state, Time now) {
  entries_[slot].woken = false;
  if (turn_slot_ != slot) turn_used_ = 0;
  turn_slot_ = slot;
}

void BandPlus::on_completion(Slot slot, Time measured, const State& state, Time now) {
  retire(state, now);
  Entry& owner = entries_[slot];
  const auto time = static_cast<double>(measured);
  const auto most = static_cast<double>(options_.debt);
  owner.tokens = tokens(slot, state, now) - time;
  owner.tokens_at = owner.unserved_since = now;
  owner.lag -= time;
  for (Entry& entry : entries_) {
    if (!entry.active) continue;
    entry.lag = std::clamp(entry.lag + time * entry.fraction, -most, most);
  }
  if (turn_slot_ == slot) turn_used_ += measured;
  if (state.tenants[slot].idle()) {
    owner.idle = true;
    owner.idle_since = now;
  }
}

double BandPlus::tokens(Slot slot, const State& state, Time now) const {
  const Entry& entry = entries_[slot];
  const int cap = state.tenants[slot].share.cap;
  if (cap >= 100) return 0;
  const double filled = entry.tokens + static_cast<double>(now - entry.tokens_at) * cap / 100;
  return std::min(filled, static_cast<double>(options_.period) * cap / 100);
}

// How far behind: what is owed, less what is in flight, in times of its own fraction.
double BandPlus::lag_per_share(Slot slot, const State& state) const {
  const Entry& entry = entries_[slot];
  return (entry.lag - static_cast<double>(in_flight(state.tenants[slot]))) / entry.fraction;
}

bool BandPlus::before(Slot one, Slot other, const State& state) const {
  const double lag_one = lag_per_share(one, state);
  const double lag_other = lag_per_share(other, state);
  if ((lag_one >= 0) != (lag_other >= 0)) return lag_one >= 0;
  const int priority_one = state.tenants[one].share.priority;
  const int priority_other = state.tenants[other].share.priority;
  if (lag_one >= 0 && priority_one != priority_other) return priority_one > priority_other;
  if (entries_[one].woken != entries_[other].woken && std::abs(lag_one - lag_other) < 1) return entries_[one].woken;
  return lag_one > lag_other;
}

bool BandPlus::is_capped(Slot slot, const State& state, Time now) const {
  const Tenant& tenant = state.tenants[slot];
  return tenant.share.cap < 100 && tokens(slot, state, now) < static_cast<double>(in_flight(tenant));
}

// By how much it has waited longer than anybody should (kPeriods, kTurns); 0: it has not.
Time BandPlus::overdue(Slot slot, const State& state, Time now) const {
  const Tenant& tenant = state.tenants[slot];
  const Entry& entry = entries_[slot];
  if (!tenant.in_flight.empty() || entry.fraction <= 0) return 0;
  const double turn = kTurns * static_cast<double>(tenant.typical) / entry.fraction;
  const double most = std::max(static_cast<double>(kPeriods * options_.period), turn);
  const double waits = static_cast<double>(now - entry.unserved_since);
  return waits > most ? static_cast<Time>(waits - most) : 0;
}

// The one to go next among those that have work and are not stopped by their caps.
Slot BandPlus::choose(const State& state, Time now) const {
  Slot best = kNoSlot, latest = kNoSlot;
  Time late = 0;
  bool keep_turn = false;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (!tenant.runnable()) continue;
    if (is_capped(slot, state, now)) continue;
    if (best == kNoSlot || before(slot, best, state)) best = slot;
    keep_turn = keep_turn || slot == turn_slot_;
    if (const Time by = overdue(slot, state, now); by > late) {
      late = by;
      latest = slot;
    }
  }
  if (latest != kNoSlot) return latest;
  if (keep_turn && turn_used_ < options_.turn && !entries_[best].woken &&
      state.tenants[best].share.priority <= state.tenants[turn_slot_].share.priority) {
    return turn_slot_;
  }
  return best;
}

// Until when the free engine is better kept for one that is further behind than `best` and will be back; 0: it is not.
Time BandPlus::keep_for_neighbour(Slot best, const State& state, Time now) {
  const auto wait = static_cast<double>(options_.wait);
  const Time instead = state.tenants[best].expected(state.tenants[best].waiting.front().request);
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    const Tenant& tenant = state.tenants[slot];
    if (slot == best || !entry.active || !entry.idle || entry.late || tenant.paused) continue;
    if (tenant.share.cap < 100 && tokens(slot, state, now) < 0) continue;
    const bool cheap = entry.gap * options_.gap_ratio <= static_cast<double>(std::max(tenant.typical, instead));
    const bool promised = tenant.share.reservation > 0 && entry.lag > 0;
    if (entry.gap > wait || (!cheap && !promised) || !before(slot, best, state)) continue;
    const auto end = entry.idle_since + static_cast<Time>(std::min(kLateGap * entry.gap + 1, wait));
    if (now < end) return end;
    entry.late = true;
    entry.gap = 2 * wait;
  }
  return 0;
}

// When its cap lets it go on.
Time BandPlus::tokens_for_next(Slot slot, const State& state, Time now) const {
  const Tenant& tenant = state.tenants[slot];
  const double missing = static_cast<double>(in_flight(tenant)) - tokens(slot, state, now);
  return now + std::max<Time>(1, static_cast<Time>(std::ceil(missing * 100 / tenant.share.cap)));
}

// When the first one held back by its cap may go.
Time BandPlus::next_tokens(const State& state, Time now) const {
  Time first = 0;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (!tenant.runnable() || tenant.share.cap >= 100) continue;
    const Time at = tokens_for_next(slot, state, now);
    if (first == 0 || at < first) first = at;
  }
  return first;
}

bool BandPlus::holds_back(Slot slot, const State& state, Time now) {
  retire(state, now);
  Time longest = options_.shared_debt;
  for (Slot other = 0; other < entries_.size(); ++other) {
    if (entries_[other].active) longest = std::max(longest, 2 * state.tenants[other].typical);
  }
  return entries_[slot].lag < -static_cast<double>(std::min(longest, options_.debt / 2));
}

// While MPS virtual GPUs share the engine: each is sent its next time slice as if it were alone.
Decision BandPlus::decide_shared(const State& state, Time now) const {
  Slot best = kNoSlot;
  Time wake = 0;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (!tenant.runnable()) continue;
    if (is_capped(slot, state, now)) {
      const Time at = tokens_for_next(slot, state, now);
      if (wake == 0 || at < wake) wake = at;
      continue;
    }
    if (tenant.mps && !tenant.in_flight.empty()) {
      if (tenant.lasts == 0 || tenant.waiting.front().request.engine != tenant.in_flight.back().engine) continue;
      Time expected = 0;
      for (const Request& request : tenant.in_flight) {
        expected += request.estimate > 0 ? request.estimate : tenant.lasts;
      }
      const Time until = tenant.running_since + expected - options_.ahead;
      if (now <= until) {
        const bool near = expected <= kShort * options_.ahead;
        if (near && (wake == 0 || until + 1 < wake)) wake = until + 1;
        continue;
      }
    }
    if (best == kNoSlot || before(slot, best, state)) best = slot;
  }
  if (best != kNoSlot && state.may_join(state.tenants[best])) {
    return {.kind = Answer::Kind::kDispatch, .slot = best, .until = 0};
  }
  if (wake == 0) return {};
  return {.kind = Answer::Kind::kWait, .slot = kNoSlot, .until = wake};
}

// What runs may turn out to be long: nothing is sent after a time slice of unknown length, nor long before its end; and
// for the end of a long one nobody is woken, since it may be far off.
Decision BandPlus::decide(const State& state, Time now) {
  retire(state, now);
  if (state.shared) return decide_shared(state, now);
  const Slot best = choose(state, now);
  if (state.holder != kNoSlot) {
    const Tenant& tenant = state.tenants[state.holder];
    if (best != state.holder || unknown_in_flight(tenant)) return {};
    // With one queue for all engines, another engine would work beside this one.
    if (tenant.waiting.front().request.engine != tenant.in_flight.back().engine) return {};
    const Time expected = in_flight(tenant);
    const Time until = state.running_since + expected - options_.ahead;
    if (now <= until && expected > kShort * options_.ahead) return {};
    if (now <= until) return {.kind = Answer::Kind::kWait, .slot = kNoSlot, .until = until + 1};
    return {.kind = Answer::Kind::kDispatch, .slot = best, .until = 0};
  }
  if (best == kNoSlot) {
    const Time until = next_tokens(state, now);
    if (until == 0) return {};
    return {.kind = Answer::Kind::kWait, .slot = kNoSlot, .until = until};
  }
  if (const Time until = keep_for_neighbour(best, state, now); until != 0) {
    return {.kind = Answer::Kind::kWait, .slot = kNoSlot, .until = until};
  }
  return {.kind = Answer::Kind::kDispatch, .slot = best, .until = 0};
}

}  // namespace bandsaw::sched
