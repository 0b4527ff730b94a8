#include "vgpu-sched/policy/scheduler.h"

#include <algorithm>

#include "vgpu-sched/policy/promised.h"

namespace bandsaw::sched {
namespace {

// A time slice counts for an eighth: a change of the work shows after a few, one odd time slice does not.
constexpr Time kTypicalOf = 8;

bool valid_length(Time time) { return time >= 0 && time <= kLongest; }

}  // namespace

std::string_view describe(Error error) {
  switch (error) {
    case Error::kNone:
      return "no error";
    case Error::kUnknownVgpu:
      return "no such virtual GPU";
    case Error::kKnownVgpu:
      return "the virtual GPU is there already";
    case Error::kUnknownRequest:
      return "no such request";
    case Error::kKnownRequest:
      return "the request is there already";
    case Error::kBadShare:
      return "a share is 1 to 100, a reservation 0 to 100 and not above the cap, a cap 1 to 100";
    case Error::kOversubscribed:
      return "shares or reservations add up to more than 100";
    case Error::kBadTime:
      return "a time is negative or far too long";
  }
  return "unknown error";
}

Scheduler::Scheduler(const SchedulerOptions& options, const std::function<std::unique_ptr<Policy>()>& make)
    : queues_(options.model == QueueModel::kMrq ? kEngines : 1), period_(std::max<Time>(options.period, 1)) {
  for (auto& queue : queues_) {
    queue.policy = make();
    queue.state.depth = std::max(options.depth, 1);
  }
}

Scheduler::EngineQueue& Scheduler::engine_queue_of(Engine engine) {
  return queues_[queues_.size() == 1 ? 0 : static_cast<std::size_t>(engine)];
}

const Scheduler::EngineQueue& Scheduler::engine_queue_of(Engine engine) const {
  return queues_[queues_.size() == 1 ? 0 : static_cast<std::size_t>(engine)];
}

Slot Scheduler::slot_of(const EngineQueue& queue, VgpuId vgpu) {
  const auto& tenants = queue.state.tenants;
  for (Slot slot = 0; slot < tenants.size(); ++slot) {
    if (tenants[slot].present && tenants[slot].vgpu == vgpu) return slot;
  }
  return kNoSlot;
}

Error Scheduler::check(const EngineQueue& queue, Slot except, const Share& share) {
  Promised others;
  for (Slot slot = 0; slot < queue.state.tenants.size(); ++slot) {
    const Tenant& tenant = queue.state.tenants[slot];
    if (tenant.present && slot != except) others.add(tenant.share);
  }
  return check_share(share, others);
}

Slot Scheduler::take_slot(EngineQueue* queue) {
  auto& tenants = queue->state.tenants;
  const auto free = std::find_if(tenants.begin(), tenants.end(), [](const Tenant& t) { return !t.present; });
  const auto slot = static_cast<Slot>(free - tenants.begin());
  if (free == tenants.end()) tenants.emplace_back();
  tenants[slot] = Tenant{};
  tenants[slot].present = true;
  return slot;
}

// The time that counts, with the periods ended that are over by then.
Time Scheduler::at(Time now) {
  now_ = std::max({now_, now, Time{0}});
  if (period_end_ == 0) period_end_ = now_ + period_;
  if (now_ >= period_end_) {
    const Time periods = (now_ - period_end_) / period_ + 1;
    period_end_ += periods * period_;
    for (auto& queue : queues_) queue.policy->on_period(periods, queue.state, now_);
  }
  return now_;
}

Error Scheduler::add(VgpuId vgpu, const Share& share, Time now) {
  for (const auto& queue : queues_) {
    if (slot_of(queue, vgpu) != kNoSlot) return Error::kKnownVgpu;
    if (const Error error = check(queue, kNoSlot, share); error != Error::kNone) return error;
  }
  now = at(now);
  for (auto& queue : queues_) {
    const Slot slot = take_slot(&queue);
    queue.state.tenants[slot].vgpu = vgpu;
    queue.state.tenants[slot].share = share;
    queue.policy->on_join(slot, queue.state, now);
  }
  return Error::kNone;
}

Error Scheduler::set_share(VgpuId vgpu, Engine engine, const Share& share, Time now) {
  EngineQueue& queue = engine_queue_of(engine);
  const Slot slot = slot_of(queue, vgpu);
  if (slot == kNoSlot) return Error::kUnknownVgpu;
  if (const Error error = check(queue, slot, share); error != Error::kNone) return error;
  now = at(now);
  queue.state.tenants[slot].share = share;
  queue.policy->on_change(slot, queue.state, now);
  return Error::kNone;
}

Error Scheduler::set_paused(VgpuId vgpu, bool paused, Time now) {
  if (slot_of(queues_[0], vgpu) == kNoSlot) return Error::kUnknownVgpu;
  now = at(now);
  for (auto& queue : queues_) {
    const Slot slot = slot_of(queue, vgpu);
    queue.state.tenants[slot].paused = paused;
    queue.policy->on_change(slot, queue.state, now);
  }
  return Error::kNone;
}

Error Scheduler::remove(VgpuId vgpu, Time now) {
  if (slot_of(queues_[0], vgpu) == kNoSlot) return Error::kUnknownVgpu;
  now = at(now);
  for (auto& queue : queues_) {
    const Slot slot = slot_of(queue, vgpu);
    Tenant& tenant = queue.state.tenants[slot];
    queue.in_flight -= static_cast<int>(tenant.in_flight.size());
    tenant.present = false;
    tenant.waiting.clear();
    tenant.in_flight.clear();
    see_holders(&queue);
    queue.policy->on_leave(slot, queue.state, now);
  }
  return Error::kNone;
}

Error Scheduler::arrival(const Request& request, Time now) {
  EngineQueue& queue = engine_queue_of(request.engine);
  const Slot slot = slot_of(queue, request.vgpu);
  if (slot == kNoSlot) return Error::kUnknownVgpu;
  if (!valid_length(request.estimate)) return Error::kBadTime;
  Tenant& tenant = queue.state.tenants[slot];
  const bool known = std::any_of(tenant.waiting.begin(), tenant.waiting.end(),
                                 [&](const Waiting& w) { return w.request.id == request.id; }) ||
                     std::any_of(tenant.in_flight.begin(), tenant.in_flight.end(),
                                 [&](const Request& r) { return r.id == request.id; });
  if (known) return Error::kKnownRequest;
  now = at(now);
  const bool woken = tenant.idle();
  const auto place = std::find_if(tenant.waiting.rbegin(), tenant.waiting.rend(), [&](const Waiting& w) {
                       return w.request.priority >= request.priority;
                     }).base();
  tenant.waiting.insert(place, Waiting{request, queue.arrivals++});
  queue.policy->on_arrival(slot, woken, queue.state, now);
  return Error::kNone;
}

Error Scheduler::set_mps(VgpuId vgpu, Engine engine, bool mps, Time now) {
  EngineQueue& queue = engine_queue_of(engine);
  const Slot slot = slot_of(queue, vgpu);
  if (slot == kNoSlot) return Error::kUnknownVgpu;
  at(now);
  queue.state.tenants[slot].mps = mps;
  see_holders(&queue);
  return Error::kNone;
}

void Scheduler::set_rules(const SharingRules& rules) {
  rules_ = rules;
  rules_.most = std::max(rules.most, 1);
  for (auto& queue : queues_) queue.state.most_holders = rules_.most;
}

void Scheduler::see_holders(EngineQueue* queue) {
  State& state = queue->state;
  state.holders = 0;
  state.holder = kNoSlot;
  state.shared = true;
  for (Slot slot = 0; slot < state.tenants.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (tenant.in_flight.empty()) continue;
    ++state.holders;
    state.shared = state.shared && tenant.mps;
    if (state.holder == kNoSlot) state.holder = slot;
  }
  state.shared = state.shared && state.holders > 0;
}

void Scheduler::release(EngineQueue* queue, Slot slot, std::vector<Request>::iterator request, Time now) {
  State& state = queue->state;
  Tenant& tenant = state.tenants[slot];
  tenant.in_flight.erase(request);
  const Time lasted = now - tenant.running_since;
  tenant.lasts = tenant.lasts == 0 ? lasted : tenant.lasts + (lasted - tenant.lasts) / kTypicalOf;
  state.running_since = tenant.running_since = now;
  --queue->in_flight;
  see_holders(queue);
}

// Bars those that may not join the holders of a shared engine, whatever the policy prefers.
void Scheduler::bar(EngineQueue* queue, Time now) const {
  State& state = queue->state;
  for (Tenant& tenant : state.tenants) tenant.barred = false;
  if (!state.shared) return;
  for (Slot slot = 0; slot < state.tenants.size(); ++slot) {
    Tenant& tenant = state.tenants[slot];
    if (!tenant.mps || !tenant.runnable()) continue;
    const bool full = static_cast<int>(tenant.in_flight.size()) >= state.depth;
    const bool beside = state.holders > 1 || tenant.in_flight.empty();  // else nobody would gain
    tenant.barred = full || (beside && queue->policy->holds_back(slot, state, now));
  }
}

// Who asked first: the preferred one, or one that has nothing on the shared engine and may join it.
Slot Scheduler::first_in_order(const State& state, Slot preferred) const {
  Slot first = preferred;
  for (Slot slot = 0; slot < state.tenants.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (!tenant.runnable() || !tenant.in_flight.empty() || !state.may_join(tenant)) continue;
    if (tenant.waiting.front().sequence < state.tenants[first].waiting.front().sequence) first = slot;
  }
  return first;
}

bool Scheduler::may_go(const EngineQueue& queue, Slot slot) const {
  const State& state = queue.state;
  if (state.shared) return state.may_join(state.tenants[slot]);
  return state.holder == kNoSlot || (state.holder == slot && state.holders == 1);
}

Error Scheduler::completion(VgpuId vgpu, Engine engine, RequestId request, Time measured, Time now) {
  EngineQueue& queue = engine_queue_of(engine);
  const Slot slot = slot_of(queue, vgpu);
  if (slot == kNoSlot) return Error::kUnknownVgpu;
  if (!valid_length(measured)) return Error::kBadTime;
  Tenant& tenant = queue.state.tenants[slot];
  const auto found =
      std::find_if(tenant.in_flight.begin(), tenant.in_flight.end(), [&](const Request& r) { return r.id == request; });
  if (found == tenant.in_flight.end()) return Error::kUnknownRequest;
  now = at(now);
  release(&queue, slot, found, now);
  tenant.typical = tenant.typical == 0 ? measured : tenant.typical + (measured - tenant.typical) / kTypicalOf;
  tenant.used = std::min(tenant.used, std::numeric_limits<Time>::max() - measured) + measured;
  queue.policy->on_completion(slot, measured, queue.state, now);
  return Error::kNone;
}

Error Scheduler::cancel(VgpuId vgpu, Engine engine, RequestId request, Time now) {
  EngineQueue& queue = engine_queue_of(engine);
  const Slot slot = slot_of(queue, vgpu);
  if (slot == kNoSlot) return Error::kUnknownVgpu;
  auto& waiting = queue.state.tenants[slot].waiting;
  const auto found =
      std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& w) { return w.request.id == request; });
  if (found == waiting.end()) return Error::kUnknownRequest;
  at(now);
  waiting.erase(found);
  queue.policy->on_change(slot, queue.state, now_);
  return Error::kNone;
}

void Scheduler::tick(Time now) { at(now); }

Answer Scheduler::next(Engine engine, Time now) {
  now = at(now);
  EngineQueue& queue = engine_queue_of(engine);
  State& state = queue.state;
  if (!state.shared && queue.in_flight >= state.depth) return {};
  bar(&queue, now);
  const Decision decision = queue.policy->decide(state, now);
  if (decision.kind == Answer::Kind::kWait) return {.kind = decision.kind, .request = {}, .until = decision.until};
  if (decision.kind == Answer::Kind::kHold) return {};
  if (!may_go(queue, decision.slot)) return {};
  const Slot slot = state.shared && rules_.in_order ? first_in_order(state, decision.slot) : decision.slot;
  Tenant& tenant = state.tenants[slot];
  const Request request = tenant.waiting.front().request;
  tenant.waiting.pop_front();
  if (queue.in_flight++ == 0) state.running_since = now;
  if (tenant.in_flight.empty()) tenant.running_since = now;
  tenant.in_flight.push_back(request);
  see_holders(&queue);
  queue.policy->on_dispatch(slot, state, now);
  return {.kind = Answer::Kind::kDispatch, .request = request, .until = 0};
}

const Tenant* Scheduler::tenant(VgpuId vgpu, Engine engine) const {
  const EngineQueue& queue = engine_queue_of(engine);
  const Slot slot = slot_of(queue, vgpu);
  return slot == kNoSlot ? nullptr : &queue.state.tenants[slot];
}

}  // namespace bandsaw::sched
