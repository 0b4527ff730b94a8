#include "backend/vgpud/arbiter/charging.h"

#include <algorithm>
#include <utility>

#include "backend/vgpud/arbiter/engine_queues.h"
#include "backend/vgpud/arbiter/grant_table.h"
#include "backend/vgpud/arbiter/time_slice_trace.h"

namespace bandsaw {
namespace {

// A time slice holds the engine a little longer than its measured time: contexts are switched, and the runner needs
// time itself. The usual difference is kUsualDelay and 1 / kUsualPart of the time. What exceeds it is summed up, and
// the part of the sum above kUnderreportedMost is charged.
constexpr sched::Time kUsualDelay = 200 * sched::kMicrosecond, kUnderreportedMost = 50 * sched::kMillisecond;
constexpr sched::Time kUsualPart = 8;
// Of the SMs, whatever runners say of their blocks.
constexpr double kLeastPart = 1.0 / 32;

}  // namespace

uint64_t Part::of(uint64_t busy_ns) const {
  if (own >= wall) return busy_ns;
  return static_cast<uint64_t>(static_cast<double>(busy_ns) * static_cast<double>(own) / static_cast<double>(wall));
}

// Where others waited for `kept`, a runner that reports too little is charged the difference after a while (see
// kUnderreportedMost).
sched::Time Charging::charge(VgpuState& vgpu, Queue queue, uint64_t busy_ns, sched::Time held, sched::Time kept) {
  held = std::clamp<sched::Time>(held, 0, sched::kLongest / 2);
  auto charged = std::min(static_cast<sched::Time>(std::min<uint64_t>(busy_ns, sched::kLongest / 2)), held);
  sched::Time& underreported = vgpu.account.underreported[queue];
  if (kept > 0 && table_->others_want(vgpu, queue)) {
    underreported =
        std::max<sched::Time>(0, underreported + kept - std::min(charged, kept) - kUsualDelay - kept / kUsualPart);
    if (underreported > kUnderreportedMost) {
      charged += underreported - kUnderreportedMost;
      underreported = kUnderreportedMost;
    }
  }
  return charged + take_debt(vgpu, queue);
}

sched::Time Charging::take_debt(VgpuState& vgpu, Queue queue) {
  return std::min(std::exchange(vgpu.account.debt[queue], 0), sched::kLongest / 2);
}

void Charging::complete(VgpuState& vgpu, uint32_t slot, unsigned engine, const GrantedSlice& slice, uint64_t busy_ns,
                        sched::Time held, sched::Time kept, sched::Time now) {
  const sched::Time charged = charge(vgpu, table_->queue_of(engine), busy_ns, held, kept);
  queues_->complete(vgpu, engine, slice.id, charged, now);
  vgpu.account.use[engine].busy_ns += static_cast<uint64_t>(charged);
  record(vgpu, slot, engine, slice, now, charged);
}

void Charging::record(const VgpuState& vgpu, int64_t slot, unsigned engine, const GrantedSlice& slice,
                      sched::Time ended, sched::Time charged) {
  if (!trace_->on()) return;
  trace_->add({vgpu.name, slot, static_cast<Engine>(engine), slice.asked, slice.granted, ended, charged});
}

// The last reading of a virtual GPU's meter would be wrong: ends of its other time slices read the meter too.
sched::Time Charging::held_since(const VgpuState& vgpu, Queue queue, const GateState& state,
                                 const GrantedSlice& slice) const {
  return std::max(slice.granted, vgpu.account.meters[queue].runs ? state.head_since : queues_->free_since(queue));
}

Part Charging::take_part(VgpuState& vgpu, Queue queue, sched::Time now) {
  Account::Meter& meter = vgpu.account.meters[queue];
  const Part part = {now - meter.since, std::min(meters_[queue].end(vgpu.id, now), now - meter.since)};
  meters_[queue].begin(vgpu.id, meter.footprint, now);
  meter.since = now;
  return part;
}

void Charging::Crowd::pass(sched::Time now) {
  constexpr double kWindow = 50 * sched::kMillisecond;
  if (holders > 1) wall += static_cast<double>(now - since);
  since = now;
  if (wall < kWindow) return;
  wall /= 2;
  busy /= 2;
}

uint64_t Charging::of_copy(Queue queue, uint64_t busy_ns, sched::Time now) {
  Crowd& crowd = crowds_[queue];
  if (crowd.holders < 2) return busy_ns;
  crowd.pass(now);
  crowd.busy += static_cast<double>(busy_ns);
  return static_cast<uint64_t>(static_cast<double>(busy_ns) * std::min(1.0, crowd.wall / std::max(crowd.busy, 1.0)));
}

void Charging::review_meters(Queue queue, sched::Time now) {
  crowds_[queue].pass(now);
  crowds_[queue].holders = 0;
  for (VgpuState& vgpu : table_->all()) {
    const bool runs = table_->goes_beside(vgpu, queue) &&
                      (vgpu.leases[queue].state != Lease::State::kNone || table_->has_overdue(vgpu, queue) ||
                       table_->any_gate(vgpu, queue, [](const GateState& state) { return !state.flying.empty(); }));
    crowds_[queue].holders += runs;
    Account::Meter& meter = vgpu.account.meters[queue];
    if (const bool no_waiters = runs && !table_->others_wait_for_end(vgpu, queue); no_waiters != meter.no_waiters) {
      meter.no_waiters = no_waiters;
      table_->set_no_waiters(vgpu, queue, no_waiters);
    }
    if (meter.runs == runs) continue;
    if (runs) {
      meters_[queue].begin(vgpu.id, meter.footprint, now);
    } else {
      (void)meters_[queue].end(vgpu.id, now);
    }
    meter.runs = runs;
    meter.since = now;
  }
  if (queue == table_->queue_of(kCompute)) weigh(queue, now);
}

// By blocks where those of all that have the engine are known; else all the same.
void Charging::weigh(Queue queue, sched::Time now) {
  bool known = true;
  for (const VgpuState& vgpu : table_->all()) known = known && (!vgpu.account.meters[queue].runs || vgpu.sm_part > 0);
  for (VgpuState& vgpu : table_->all()) {
    Account::Meter& meter = vgpu.account.meters[queue];
    const double footprint = known && meter.runs ? std::max(vgpu.sm_part, kLeastPart) : 1;
    if (std::exchange(meter.footprint, footprint) != footprint) meters_[queue].resize(vgpu.id, footprint, now);
  }
}

void Charging::forget(const VgpuState& vgpu, sched::Time now) {
  for (auto& meter : meters_) (void)meter.end(vgpu.id, now);
}

}  // namespace bandsaw
