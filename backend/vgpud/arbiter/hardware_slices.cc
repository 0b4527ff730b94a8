#include "backend/vgpud/arbiter/hardware_slices.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/vgpud/arbiter/unqueued_gates.h"

namespace bandsaw {
namespace {

// Who has work is read so often, while several virtual GPUs have some.
constexpr sched::Time kSample = sched::kMillisecond;
// Time slices are compared so often with what was ordered: a call takes the driver 0.3 ms.
constexpr sched::Time kCheck = sched::kSecond;
// Of a channel group whose time slice nobody has set, as measured on an H200.
constexpr sched::Time kDriversSlice = 2 * sched::kMillisecond;
// A runner whose time slice was another one so often is ended.
constexpr int kChangesMost = 3;

// What a counter of the runner's has grown by since it was `seen`, at most a second at a time.
void add_new(uint64_t counter, uint64_t* seen, sched::Time* sum) {
  const uint64_t more = counter - std::exchange(*seen, counter);
  *sum += static_cast<sched::Time>(std::min<uint64_t>(more, sched::kSecond));
}

}  // namespace

void HardwareSlices::set(const VgpuState& vgpu) { weights_.set(vgpu.id, vgpu.shares[kCompute], vgpu.latency); }

sched::Time HardwareSlices::latency_cost(const VgpuState& vgpu) const { return weights_.latency_cost(vgpu.id); }

bool HardwareSlices::keeps_engine(const VgpuState& vgpu) const { return on_ && weights_.keeps(vgpu.id); }

void HardwareSlices::remove(const VgpuState& vgpu) { weights_.remove(vgpu.id); }

void HardwareSlices::set_groups(VgpuState& vgpu, uint32_t slot, uint32_t count) {
  SlicedRunner& runner = vgpu.sliced.runners[slot];
  if (count == 0 && (runner.groups > 0 || runner.lost)) return lose_groups(vgpu, slot);
  // Its changes stay: they are the runner's.
  runner = {.groups = count, .changes = runner.changes, .changed_at = runner.changed_at};
  if (const auto gates = vgpu.slots.find(slot); gates != vgpu.slots.end())
    gates->second[kCompute].sliced.ordered_us = 0;  // new ones have the driver's time slice
}

// Its contexts are gone. It may make others, and say so; until then it has nothing to compute with.
void HardwareSlices::lose_groups(VgpuState& vgpu, uint32_t slot) {
  SlicedRunner& runner = vgpu.sliced.runners[slot];
  runner.groups = 0;
  if (std::exchange(runner.lost, true) || !vgpu.grant_page) return;
  const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  runner.begun = gate.begun;
  runner.asked = gate.asked;
}

bool HardwareSlices::found_changed(VgpuState& vgpu, uint32_t slot, sched::Time now, std::vector<RunnerEnd>* ends) {
  SlicedRunner& runner = vgpu.sliced.runners[slot];
  if (runner.changes++ == 0) runner.changed_at = now;
  if (runner.changes >= kChangesMost)
    ends->push_back({vgpu.name, slot, RunnerEndReason::kOwnTimeSlices, runner.changed_at});
  return runner.changes == 1;
}

void HardwareSlices::forget_groups(VgpuState& vgpu, uint32_t slot) { vgpu.sliced.runners[slot] = {.ended = true}; }

// The gates hold the shares until this runner is gone, unless it is only its contexts that are.
void HardwareSlices::order_failed(VgpuState& vgpu, uint32_t slot, const Status& error) {
  if (error.code() == ESRCH) return lose_groups(vgpu, slot);
  vgpu.sliced.runners[slot].error = error.code();
}

std::vector<TimeSliceOrder> HardwareSlices::take_orders() { return std::exchange(orders_, {}); }

std::string HardwareSlices::why_gates() const {
  const VgpuState* const vgpu = table_->find(why_.vgpu);
  const std::string program = "a program of " + (vgpu ? vgpu->name : "a virtual GPU that is gone");
  switch (why_.reason) {
    case WhyGates::Reason::kNone:
      return "";
    case WhyGates::Reason::kNotScheduled:
      return "policy none holds no shares";
    case WhyGates::Reason::kPolicy:
      return "policy " + options_->policy + " grants the engine to one at a time";
    case WhyGates::Reason::kOneQueue:
      return "all engines have one queue";
    case WhyGates::Reason::kNobody:
      return "no program has used the compute engine yet";
    case WhyGates::Reason::kMpsClient:
      return program + " is a client of MPS";
    case WhyGates::Reason::kNoGroups:
      return program + " has no known channel groups";
    case WhyGates::Reason::kCannotBeSet:
      return "the time slices of " + program + " cannot be set: " + std::strerror(why_.error);
  }
  return "";
}

// A program that has used the compute engine, and will not before it has said more.
bool HardwareSlices::is_quiet(const VgpuState& vgpu, uint32_t slot) {
  const auto runner = vgpu.sliced.runners.find(slot);
  if (runner == vgpu.sliced.runners.end()) return false;
  if (runner->second.ended) return true;  // its session will clear its gates
  const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  return runner->second.lost && gate.begun == runner->second.begun && gate.asked == runner->second.asked;
}

// Of a program that has used the compute engine.
WhyGates HardwareSlices::find_why(const VgpuState& vgpu, uint32_t slot) {
  using Reason = WhyGates::Reason;
  const auto runner = vgpu.sliced.runners.find(slot);
  if (runner == vgpu.sliced.runners.end() || runner->second.groups == 0)
    return {vgpu.mps ? Reason::kMpsClient : Reason::kNoGroups, vgpu.id};
  if (runner->second.error != 0) return {Reason::kCannotBeSet, vgpu.id, runner->second.error};
  return {Reason::kNone};
}

WhyGates HardwareSlices::find_why() const {
  using Reason = WhyGates::Reason;
  if (!options_->scheduled) return {Reason::kNotScheduled};
  if (options_->policy != "band+") return {Reason::kPolicy};
  if (options_->model == sched::QueueModel::kSdq) return {Reason::kOneQueue};
  bool any = false;
  for (const VgpuState& vgpu : table_->all()) {
    if (!vgpu.grant_page) continue;
    for (const auto& [slot, gates] : vgpu.slots) {
      const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
      if (gate.begun == 0 && gate.asked == 0) continue;
      if (is_quiet(vgpu, slot)) continue;
      if (const WhyGates why = find_why(vgpu, slot); why.reason != Reason::kNone) return why;
      any = true;
    }
  }
  // Who comes first decides: until then nothing is changed.
  return {any || on_ ? Reason::kNone : Reason::kNobody};
}

void HardwareSlices::leave_if_impossible(sched::Time now) {
  why_ = find_why();
  if (why_.reason != WhyGates::Reason::kNone) leave(now);
}

sched::Time HardwareSlices::review(sched::Time now) {
  if (why_.reason != WhyGates::Reason::kNone) return kNever;
  if (!on_) enter(now);
  return sample(now);
}

void HardwareSlices::enter(sched::Time now) {
  on_ = true;
  sampled_at_ = now;
  for (VgpuState& vgpu : table_->all()) unqueued_->take_out(vgpu, ComputeGates::kTimeSliced, now);
  for (VgpuState& vgpu : table_->all()) {
    for (const auto& [slot, gates] : vgpu.slots) read(vgpu, slot, now);
  }
}

void HardwareSlices::leave(sched::Time now) {
  if (!on_) return;
  (void)sample(now);
  on_ = false;
  for (VgpuState& vgpu : table_->all()) {
    vgpu.sliced.open = false;
    if (vgpu.grant_page) {
      vgpu.grant_page->time_slice_ns = vgpu.grant_page->keep_engine = 0;
      for (const auto& [slot, gates] : vgpu.slots) vgpu.grant_page->gates[slot][kCompute].own_time_slice_ns = 0;
    }
    unqueued_->put_back(vgpu, now);
  }
}

// One that has a cap is let in by its tokens, and must not run far ahead of them.
void HardwareSlices::set_open(VgpuState& vgpu, bool open) {
  vgpu.sliced.open = open;
  const uint32_t word = !open ? 0 : vgpu.shares[kCompute].cap < 100 ? 1 : kOpenWide;
  for (auto& [slot, gates] : vgpu.slots) {
    Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    gate.open = word;
    if (!open) {
      gate.no_waiters = 0;
      gates[kCompute].sliced.no_waiters = false;
    } else if (std::exchange(gates[kCompute].waiting, false)) {
      GrantTable::answer(vgpu, slot, kCompute);
    }
  }
}

void HardwareSlices::read(VgpuState& vgpu, uint32_t slot, sched::Time now) {
  const auto [count, more] = UnqueuedGates::take_ended(vgpu, slot);
  const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  const uint64_t own_ns = gate.own_ns;
  vgpu.account.use[kCompute].grants += std::min(count, kGateSlots);
  // At most the time that passed, whatever the runner says.
  GateState& state = vgpu.slots[slot][kCompute];
  SlicedGate& sliced = state.sliced;
  if (sliced.measured_since == 0) sliced.measured_since = now;
  const sched::Time most = now - sliced.measured_since - sliced.measured;
  const uint64_t measured = std::min(more, static_cast<uint64_t>(std::max<sched::Time>(most, 0)));
  sliced.measured += static_cast<sched::Time>(measured);
  const uint64_t own = own_ns - std::exchange(sliced.own_ns, own_ns);
  sliced.own += static_cast<sched::Time>(std::min(own, measured));
  add_new(gate.paused_ns, &sliced.paused_ns, &sliced.paused);
  add_new(gate.issued_ns, &sliced.issued_ns, &sliced.issued);
  add_new(gate.steps_ns, &sliced.steps_ns, &sliced.done);
  if (!UnqueuedGates::take_ask(vgpu, slot)) return;
  state.waiting = true;
  sliced.busy_at = vgpu.last_wanted[kCompute] = now;
  if (!weights_.may_run(vgpu.id)) return;
  if (!vgpu.sliced.open) sampled_at_ = -sched::kLongest;  // at once: the time before is the others'
  set_open(vgpu, true);
}

// Somebody is to be held to a share or a cap.
bool HardwareSlices::is_steered(sched::Time now) const {
  return weights_.active() > 1 || weights_.orders_processes() ||
         std::ranges::any_of(table_->all(), [&](const VgpuState& vgpu) {
           return vgpu.shares[kCompute].cap < 100 && now - vgpu.last_wanted[kCompute] <= options_->period_ns;
         });
}

std::vector<sched::TimeSliceWeights::Load> HardwareSlices::read_all(sched::Time now) {
  std::vector<sched::TimeSliceWeights::Load> loads;
  for (VgpuState& vgpu : table_->all()) {
    for (auto& [slot, gates] : vgpu.slots) {
      GateState& state = gates[kCompute];
      read(vgpu, slot, now);
      // Who was let in just now is about to begin.
      const bool let_in = state.sliced.busy_at == now && !state.waiting;
      const bool busy = let_in || GrantTable::running_at(vgpu, slot, kCompute) > 0;
      if (busy) state.sliced.busy_at = now;
      if (busy || state.waiting) vgpu.last_wanted[kCompute] = now;
      loads.push_back({.vgpu = vgpu.id,
                       .process = slot,
                       .priority = options_->process_priorities ? GrantTable::priority_at(vgpu, slot, kCompute) : 0,
                       .busy = busy,
                       .measured = state.sliced.measured,
                       .own = state.sliced.own,
                       .rests = vgpu.grant_page->gates[slot][kCompute].rests,
                       .paused = state.sliced.paused,
                       .issued = state.sliced.issued,
                       .done = state.sliced.done,
                       .cut_samples = vgpu.grant_page->gates[slot][kCompute].cut_samples,
                       .learnt = vgpu.grant_page->gates[slot][kCompute].learnt});
    }
  }
  return loads;
}

// Reads who has work, divides the time since the last time among them, and orders time slices. Returns when to be
// called again: while nobody is steered, once in a period.
sched::Time HardwareSlices::sample(sched::Time now) {
  const sched::Time interval = is_steered(now) ? kSample : options_->period_ns;
  if (now - sampled_at_ < interval) return sampled_at_ + interval;
  sampled_at_ = now;
  weights_.advance(now, read_all(now));
  bool any = false;
  for (VgpuState& vgpu : table_->all()) {
    const sched::Time used_now = weights_.used(vgpu.id);
    vgpu.account.use[kCompute].busy_ns += static_cast<uint64_t>(used_now - std::exchange(vgpu.sliced.used, used_now));
    const bool used = now - vgpu.last_wanted[kCompute] <= options_->period_ns;
    // Runners tell nothing while their gates are open: who is idle has to ask again, and need not be read meanwhile.
    if (const bool open = used && weights_.may_run(vgpu.id); open != vgpu.sliced.open) set_open(vgpu, open);
    post_alone(vgpu);
    any = any || used;
    if (used && weights_.active_processes() > 1) order(vgpu, now);
    post_slice(vgpu);
    post_keep(vgpu);
  }
  return any ? now + (is_steered(now) ? kSample : options_->period_ns) : kNever;
}

// Tells the gates whether no other process has work. Runners read the word often, so it is written when it changes.
void HardwareSlices::post_alone(VgpuState& vgpu) {
  const bool alone = weights_.active_processes() <= 1;
  for (auto& [slot, gates] : vgpu.slots) {
    if (gates[kCompute].sliced.no_waiters == alone) continue;
    gates[kCompute].sliced.no_waiters = alone;
    vgpu.grant_page->gates[slot][kCompute].no_waiters = alone ? 1 : 0;
  }
}

// Work that is longer than that may have been interrupted.
void HardwareSlices::post_slice(VgpuState& vgpu) const {
  if (!vgpu.grant_page) return;
  std::atomic<uint64_t>& word = vgpu.grant_page->time_slice_ns;
  const auto slice = static_cast<uint64_t>(shortest_slice(vgpu));
  if (word.load(std::memory_order_relaxed) != slice) word = slice;
  for (const auto& [slot, gates] : vgpu.slots) {
    const auto own = static_cast<uint64_t>(slice_at(vgpu, slot, gates[kCompute]).value_or(0));
    std::atomic<uint64_t>& own_word = vgpu.grant_page->gates[slot][kCompute].own_time_slice_ns;
    const uint64_t differs = options_->process_priorities && own > slice ? own : 0;
    if (own_word.load(std::memory_order_relaxed) != differs) own_word = differs;
  }
}

void HardwareSlices::post_keep(VgpuState& vgpu) {
  if (!vgpu.grant_page) return;
  const uint32_t keeps = weights_.keeps(vgpu.id) ? 1 : 0;
  std::atomic<uint32_t>& word = vgpu.grant_page->keep_engine;
  if (word.load(std::memory_order_relaxed) != keeps) word = keeps;
}

// What the hardware has for a process, as far as it is known.
std::optional<sched::Time> HardwareSlices::slice_at(const VgpuState& vgpu, uint32_t slot, const GateState& gate) {
  const auto runner = vgpu.sliced.runners.find(slot);
  if (runner == vgpu.sliced.runners.end() || runner->second.groups == 0) return std::nullopt;
  const sched::Time ordered = gate.sliced.ordered_us * sched::kMicrosecond * runner->second.groups;
  return ordered == 0 ? kDriversSlice : ordered;
}

sched::Time HardwareSlices::shortest_slice(const VgpuState& vgpu) {
  sched::Time shortest = sched::kLongest;
  for (const auto& [slot, gates] : vgpu.slots)
    shortest = std::min(shortest, slice_at(vgpu, slot, gates[kCompute]).value_or(sched::kLongest));
  return shortest == sched::kLongest ? kDriversSlice : shortest;
}

void HardwareSlices::order(VgpuState& vgpu, sched::Time now) {
  for (auto& [slot, gates] : vgpu.slots) {
    SlicedGate& gate = gates[kCompute].sliced;
    const auto runner = vgpu.sliced.runners.find(slot);
    if (now - gate.busy_at > options_->period_ns || runner == vgpu.sliced.runners.end() || runner->second.groups == 0)
      continue;
    const auto wanted =
        static_cast<uint32_t>(weights_.slice(vgpu.id, slot) / runner->second.groups / sched::kMicrosecond);
    const bool changes = std::exchange(gate.ordered_us, wanted) != wanted;
    sched::Time& checked_at = runner->second.checked_at;
    if (!changes && now - checked_at < kCheck) continue;
    checked_at = now;
    orders_.push_back({vgpu.name, slot, wanted, !changes});
  }
}

}  // namespace bandsaw
