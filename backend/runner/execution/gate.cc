#include "backend/runner/execution/gate.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/base/eventfd.h"
#include "memory/base/futex.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kUnitsMax = 1 << 16, kUnmeasuredMost = 64;
// How long time slices are where no arbiter has set it. They are measured there too.
constexpr uint64_t kQuantumNs = 2'000'000, kQuantumMostNs = 1'000'000'000;
// At a gate that stands wide open: units of a time slice, and time slices at a time of a stream, and of all. The first
// two let a stream run as far ahead of the device as the driver would, about a thousand launches.
constexpr uint64_t kWideUnits = 64;
constexpr uint32_t kWideDepth = 16, kWideDepthMost = 64;
// Of a time slice of graphs that fill no quantum, where nobody else has the device: to measure one costs 5 us or more.
constexpr uint64_t kGraphUnits = 512;
// After a pause of this length the next work may be of another length: what was proven is forgotten.
constexpr std::chrono::milliseconds kForget{50};
// After so many time slices of nothing but known launches the next one is taken to be so too.
constexpr uint32_t kKnownInARow = 16;

}  // namespace

GateView::GateView(const Clock* clock)
    : clock_(*clock), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), launch_times_(clock) {}

void GateView::connect(GrantPage* grant_page, uint32_t slot, UniqueFd doorbell) {
  grant_page_ = grant_page;
  slot_ = slot;
  doorbell_ = std::move(doorbell);
  write_descriptor(grant_page_->kernel_descriptors[slot_], {});
}

void GateView::call_arbiter() {
  if (doorbell_ && !signal_event(doorbell_.get())) log::warn("the arbiter's doorbell: {}", std::strerror(errno));
}

void GateView::ring_doorbell() {
  if (!set_pending(*grant_page_, slot_) || !doorbell_) return;
  if (!signal_event(doorbell_.get())) log::warn("the arbiter's doorbell: {}", std::strerror(errno));
}

bool GateView::enter(unsigned engine, uint64_t units, uint64_t stream) {
  if (!grant_page_) return true;
  if (!join(engine, {.units = units, .stream = stream})) return false;
  note_other_work(engine);
  return true;
}

bool GateView::join(unsigned engine, const Work& work) {
  EngineState& state = engine_states_[engine];
  TimeSlice& slice = state.slice;
  if (engine == kCompute && slice.begun && seen_over()) close(engine);
  if (slice.begun) {
    const Clock::Point now = clock_.now();
    state.in_time = now - slice.since < std::chrono::nanoseconds(quantum_ns());
    if (engine == kCompute) last_entered_ = now;
    if (state.in_time && (slice.units + work.units <= slice.limit || holds_graph(slice, work))) {
      if (!may_join(state, work.stream)) return false;
      slice.units += work.units;
      if (engine == kCompute) stream_depths_.add(&slice.streams, work.stream);
      return true;
    }
    close(engine);
  }
  return begin(engine, work, false);
}

// A stream that would have to wait for the ends of its time slices does not prolong those of others either.
bool GateView::may_join(EngineState& state, uint64_t stream) {
  const TimeSlice& slice = state.slice;
  if (!slice.counted || stream == 0 || slice.streams.contains(stream)) return true;
  const Gate& gate = grant_page_->gates[slot_][kCompute];
  return has_room(state, depth(state, gate, false), stream, true);
}

// A graph of many nodes is many units, and would be a time slice of its own.
bool GateView::holds_graph(const TimeSlice& slice, const Work& work) const {
  return work.units > 1 && work.known_ns != 0 && slice.alone && is_alone() && slice.units + work.units <= kGraphUnits &&
         slice.own_ns + work.known_ns <= quantum_ns();
}

bool GateView::enter_alone(unsigned engine, uint64_t units, uint64_t stream, const std::optional<LaunchId>& id) {
  if (!grant_page_) return true;
  if (!begin_alone(engine, {.units = units, .stream = stream})) return false;
  note_other_work(engine);
  if (id && beside_others_) note_part(*id);
  return true;
}

// Grid slices of one launch overlap: only the first one has the device to itself.
void GateView::note_part(const LaunchId& id) {
  EngineState& state = engine_states_[kCompute];
  const LaunchTimes::Known known = launch_times_.find(id, is_alone());
  if (known.sample && state.in_flight == 1 && may_learn()) {
    state.slice.sample = id;
    launch_times_.begin_sample(id);
  }
  if (known.ns == 0) return;
  state.slice.own_ns = known.ns;
  state.slice.known_units = state.slice.units;
}

bool GateView::begin_alone(unsigned engine, const Work& work) {
  if (engine_states_[engine].slice.begun) close(engine);
  return begin(engine, work, true);
}

bool GateView::enter_launch(const LaunchId& id, double part, uint64_t units) {
  if (!grant_page_) return true;
  note_stream(id.stream);
  TimeSlice& slice = engine_states_[kCompute].slice;
  const LaunchTimes::Known known = launch_times_.find(id, is_alone());
  if (known.sample && may_learn() && !stream_eras_.any_of_the_past()) {
    if (!begin_alone(kCompute, {.units = units, .stream = id.stream})) return false;
    slice.sample = id;
    launch_times_.begin_sample(id);
  } else if (!join(kCompute, {units, known.ns, id.stream})) {
    return false;
  }
  note_step_within();
  step_times_.launch(id.shape, known.ns);
  issue_times_.launch(last_entered_, known.ns);
  slice.known &= known.ns != 0;
  if (known.ns != 0) slice.known_units += units;
  slice.work_ns += static_cast<uint64_t>(static_cast<double>(known.ns) * part);
  slice.own_ns += known.ns;
  slice.left_to_others += 1 - part;
  return true;
}

// While others have work: the program has seen the ends of all of its own, whether or not that was seen here.
bool GateView::seen_over() const {
  return grant_page_->gates[slot_][kCompute].no_waiters.load(std::memory_order_relaxed) == 0 && !keeps_engine_ &&
         device_->time_slices_over(kCompute);
}

// What ends a sample is to be on the device right behind it.
void GateView::launched(bool success) {
  TimeSlice& slice = engine_states_[kCompute].slice;
  if (!slice.begun || !slice.sample) return;
  if (!success) slice.sample.reset();
  slice.sample_waited = device_->time_slice_waits(kCompute);
  close(kCompute);
}

void GateView::note_other_work(unsigned engine) {
  if (engine != kCompute) return;
  engine_states_[engine].slice.known = false;
  note_stream(0);
}

void GateView::note_stream(uint64_t stream) {
  if (std::exchange(stream_, stream) != stream) stream_eras_.next();
}

void GateView::enter_unasked(unsigned engine) {
  if (!grant_page_) return;
  EngineState& state = engine_states_[engine];
  if (state.slice.begun) close(engine);
  const bool counted = is_governed();
  if (counted) grant_page_->gates[slot_][engine].begun.fetch_add(1);
  start(engine, {.begun = true, .counted = counted, .units = 1, .limit = 1, .since = clock_.now()});
  if (engine == kCompute) stream_depths_.add(&state.slice.streams, 0);
  note_other_work(engine);
}

// If the time slice is counted, the caller has already counted up the gate's `begun`.
void GateView::start(unsigned engine, const TimeSlice& slice) {
  EngineState& state = engine_states_[engine];
  bool none = false, begins_step = false;  // nothing is in flight; it is the first work since a rest
  if (slice.counted) {
    none = state.in_flight++ == 0;
    const bool over = !none && engine == kCompute && seen_over();
    if (none) note_pause(engine);
    if (over) grant_page_->gates[slot_][engine].rests.fetch_add(1, std::memory_order_relaxed);  // not yet seen here
    begins_step = none || over;
    if (engine == kCompute) note_issue(slice.since, begins_step);
  }
  state.slice = slice;
  if (engine != kCompute) return device_->time_slice_begin(engine, is_wide_open(kCompute) && !is_alone());
  if (slice.wide && grant_page_->keep_engine.load(std::memory_order_relaxed) != 0) keep_engine();
  state.slice.kept = keeps_engine_;
  state.slice.era = stream_eras_.begin();
  state.slice.alone = is_alone() && !siblings_work();
  state.slice.may_learn = may_learn();
  const bool no_gap = keeps_engine_ || state.slice.alone;  // the gate may not rest between two steps
  if (begins_step || (no_gap && device_->time_slices_over(kCompute))) note_step(slice.since, none);
  (void)hardware_slice();
  device_->time_slice_begin(engine, begins_step && has_turns() && !is_known_by_launches());
}

// The hardware serves others between what this one puts on the engine.
bool GateView::has_turns() const {
  const TimeSlice& slice = engine_states_[kCompute].slice;
  return slice.wide && !slice.alone && !beside_others_ && !keeps_engine_;
}

// What it is charged follows from its launches, whatever is measured. To measure from its turn on costs it some us.
bool GateView::is_known_by_launches() const {
  return engine_states_[kCompute].slice.begun_by_known && known_in_a_row_ >= kKnownInARow;
}

// Other processes of this virtual GPU have work. The arbiter, whom they need not ask, sees that a period later.
bool GateView::siblings_work() const {
  for (uint32_t slot = 0; slot < kGateSlots; ++slot) {
    const Gate& gate = grant_page_->gates[slot][kCompute];
    if (slot != slot_ && gate.begun.load(std::memory_order_relaxed) != gate.ended.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

// The first work after a rest.
void GateView::note_pause(unsigned engine) {
  const Clock::Point ended = engine_states_[engine].ended_at;
  if (ended == Clock::Point{}) return;
  const auto pause = std::max(std::chrono::nanoseconds(clock_.now() - ended), std::chrono::nanoseconds(0));
  grant_page_->gates[slot_][engine].paused_ns.fetch_add(static_cast<uint64_t>(pause.count()));
  if (engine == kCompute) step_paused_ += pause;
}

// `rested`: before this work.
void GateView::note_issue(Clock::Point now, bool rested) {
  if (rested) {
    const auto issued = std::chrono::nanoseconds(last_entered_ - first_since_rest_).count();
    grant_page_->gates[slot_][kCompute].issued_ns.fetch_add(static_cast<uint64_t>(std::max<int64_t>(issued, 0)));
    first_since_rest_ = now;
  }
  last_entered_ = now;
}

void GateView::leave(unsigned engine, Ended done) {
  if (!engine_states_[engine].slice.begun) return done(0);  // there is no grant page, and no time slice
  close(engine, std::move(done));
}

void GateView::take_back(unsigned engine, uint64_t units) {
  TimeSlice& slice = engine_states_[engine].slice;
  if (slice.begun) slice.units -= std::min(slice.units, units);
}

void GateView::pause() {
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    if (engine_states_[engine].slice.begun) close(engine);
  }
}

void GateView::rest() {
  if (issue_times_.waits()) {
    issues_ahead_.store(issue_times_.ahead(), std::memory_order_relaxed);
    step_times_.waits();
  }
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    const TimeSlice& slice = engine_states_[engine].slice;
    if (!slice.begun || !slice.counted) continue;
    const Gate& gate = grant_page_->gates[slot_][engine];
    const uint32_t open = gate.open.load();
    // Where the hardware switches between programs, what ends the time slice is to be on the device together with its
    // work: later it would have to wait for a time slice of its own.
    const bool switches = open == kOpenWide && !gate.no_waiters.load(std::memory_order_relaxed);
    if (open == 0 || switches) close(engine);
  }
}

uint64_t GateView::quantum_ns() const {
  const uint64_t told = grant_page_->quantum_ns.load(std::memory_order_relaxed);
  return told == 0 ? kQuantumNs : std::min(told, kQuantumMostNs);
}

// How many units the next time slice may have: as many as a quantum holds, but at most twice as many as the largest
// time slice that ended lately had, since the next units may be longer. Where the last time slice was still open when
// its quantum was over, at most as many as that: a program that pauses between units would wait for the end of each
// time slice.
uint64_t GateView::limit(const EngineState& state, const Gate& gate) const {
  if (gate.open.load(std::memory_order_relaxed) == kOpenWide) return kWideUnits;
  const uint64_t unit_ps = state.unit_ps.load(std::memory_order_relaxed);
  const uint64_t most = (state.in_time ? 2 : 1) * state.proven.load(std::memory_order_relaxed);
  // Before anything is known, one; where the device cannot measure, a few.
  if (unit_ps == 0) return state.unmeasured ? std::min(most, kUnmeasuredMost) : 1;
  return std::clamp<uint64_t>(quantum_ns() * 1000 / unit_ps, 1, std::min(most, kUnitsMax));
}

bool GateView::permitted(Gate& gate) {
  // `begun` is written before `open` is read: gate_link.h says why.
  gate.begun.fetch_add(1);
  if (gate.open.load() || grant_page_->no_arbiter.load()) return true;
  gate.begun.fetch_sub(1);
  return false;
}

// How many grid slices of a kernel may be in flight: as many as half a quantum holds, so that another virtual GPU
// waits no longer for them than for short work.
uint32_t GateView::grid_slices_at_once(const EngineState& state) const {
  const uint64_t unit_ps = state.unit_ps.load(std::memory_order_relaxed);
  return unit_ps == 0 ? 1 : static_cast<uint32_t>(std::min<uint64_t>(quantum_ns() * 500 / unit_ps, kGateDepthMax));
}

// How many time slices may be in flight. At an open gate the runner bounds their number. At a closed one the arbiter
// does, and the runner always asks, so that the arbiter knows at each choice that more work waits. At both, a time
// slice larger than any before is alone in flight: work that suddenly takes longer is noticed after one time slice of
// it.
GateView::Depth GateView::depth(const EngineState& state, const Gate& gate, bool own_time_slice) const {
  if (gate.open.load(std::memory_order_relaxed) == kOpenWide) return {kWideDepth, kWideDepthMost};
  const bool grows = !own_time_slice && limit(state, gate) > state.proven.load(std::memory_order_relaxed);
  if (!grows && !gate.open.load(std::memory_order_relaxed)) return {};
  // One grid slice that is longer than a quantum keeps the engine busy, and another virtual GPU waits for no more than
  // it.
  const bool alone = grows || state.unit_ps.load(std::memory_order_relaxed) / 1000 > quantum_ns();
  const uint32_t told = std::clamp<uint32_t>(grant_page_->depth.load(std::memory_order_relaxed), 1, kGateDepthMax);
  return {alone ? 1 : own_time_slice ? std::max(told, grid_slices_at_once(state)) : told, 2 * kGateDepthMax};
}

// Whether work of the stream may be put into one more time slice, or into the open one if it `joins`. Kernels of other
// streams run for as long as they like, and may even wait for this one: their time slices count only where the stream
// has enough of its own. If it may not, the end of one is what the runner waits for.
bool GateView::has_room(EngineState& state, const Depth& depth, uint64_t stream, bool joins) const {
  const uint32_t flying = state.in_flight, others = joins && flying != 0 ? flying - 1 : flying;
  if (others < depth.of_stream) return true;
  if (stream != 0 && others < depth.of_all && stream_depths_.of(stream) < depth.of_stream) return true;
  state.wait_word = &state.in_flight;
  state.wait_seen = flying;
  state.waits_below = depth;
  return false;
}

// Asks, or reads the answer to what was asked before. True: the time slice may begin, and is counted. Without an
// arbiter nobody answers, and it may begin.
bool GateView::granted(EngineState& state, Gate& gate) {
  if (!state.asking) {
    state.asking = true;
    gate.asked.fetch_add(1);
    ring_doorbell();
  }
  const uint32_t granted = gate.granted.load();
  if (granted != gate.asked.load(std::memory_order_relaxed) && !grant_page_->no_arbiter.load()) {
    state.wait_word = &gate.granted;
    state.wait_seen = granted;
    return false;
  }
  state.asking = false;
  gate.begun.fetch_add(1);
  return true;
}

uint64_t GateView::units_in(unsigned engine, uint64_t nanoseconds) const {
  const uint64_t unit_ps = engine_states_[engine].unit_ps.load(std::memory_order_relaxed);
  return unit_ps == 0 ? 0 : std::max<uint64_t>(nanoseconds * 1000 / unit_ps, 1);
}

bool GateView::is_wanted(unsigned engine) const {
  if (!is_governed()) return false;
  const Gate& gate = grant_page_->gates[slot_][engine];
  return !gate.open.load(std::memory_order_relaxed) && !gate.no_waiters.load(std::memory_order_relaxed);
}

bool GateView::is_planned(unsigned engine) const {
  return has_plans() && !grant_page_->gates[slot_][engine].open.load(std::memory_order_relaxed);
}

void GateView::describe(unsigned engine, const KernelDescriptor& descriptor) {
  if (!grant_page_) return;
  put_descriptor(engine, descriptor, engine_states_[engine].asking || is_open(engine) ? 0 : 1);
  if (descriptor.call == 0 && is_planned(engine)) ring_doorbell();
}

void GateView::describe_short_work(unsigned engine, const KernelDescriptor& descriptor) {
  if (grant_page_ && !engine_states_[engine].asking) put_descriptor(engine, descriptor, 1);
}

void GateView::report(unsigned engine, const KernelDescriptor& descriptor) {
  if (!grant_page_ || engine_states_[engine].asking) return;
  put_descriptor(engine, descriptor, 0);
  ring_doorbell();
}

// Describes the kernel of the ask number `asked + after`.
void GateView::put_descriptor(unsigned engine, KernelDescriptor descriptor, uint32_t after) {
  descriptor.asked = grant_page_->gates[slot_][engine].asked.load(std::memory_order_relaxed) + after;
  write_descriptor(grant_page_->kernel_descriptors[slot_], descriptor);
}

GateAnswer GateView::answer(unsigned engine) const {
  if (!grant_page_ || !engine_states_[engine].granted || grant_page_->planned.load(std::memory_order_relaxed) == 0)
    return {};
  const Gate& gate = grant_page_->gates[slot_][engine];
  return {true, gate.blocks.load(), gate.resident.load()};
}

uint32_t GateView::planned_resident(unsigned engine) const {
  return grant_page_ ? grant_page_->gates[slot_][engine].resident.load(std::memory_order_relaxed) : 0;
}

uint32_t GateView::wanted_sms(unsigned engine) const {
  return grant_page_ ? grant_page_->gates[slot_][engine].leave_sms.load(std::memory_order_relaxed) : 0;
}

bool GateView::moved() {
  bool any = false;
  for (EngineState& state : engine_states_) {
    if (!state.wait_word || is_waiting(state)) continue;
    state.wait_word = nullptr;
    any = true;
  }
  return any;
}

bool GateView::settle() {
  bool left = false;
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    EngineState& state = engine_states_[engine];
    if (!state.asking) continue;
    Gate& gate = grant_page_->gates[slot_][engine];
    if (!granted(state, gate)) {
      left = true;
      continue;
    }
    gate.ended.fetch_add(1);
    if (!gate.open.load()) ring_doorbell();
  }
  return left;
}

void GateView::wait(std::chrono::nanoseconds most) {
  pause();  // while the runner sleeps, no time slice of it stays begun and keeps an engine from others
  std::array<FutexWord, kEngines> words;
  size_t count = 0;
  for (const EngineState& state : engine_states_) {
    if (state.wait_word) words[count++] = {state.wait_word, state.wait_seen};
  }
  if (count != 0) futex_wait_any({words.data(), count}, most.count());
}

bool GateView::begin(unsigned engine, const Work& work, bool own_time_slice) {
  EngineState& state = engine_states_[engine];
  Gate& gate = grant_page_->gates[slot_][engine];
  const bool counted = state.asking || !grant_page_->no_arbiter.load(std::memory_order_relaxed);
  if (counted && !state.asking && !has_room(state, depth(state, gate, own_time_slice), work.stream, false))
    return false;
  const bool open = counted && !state.asking && permitted(gate);
  if (counted && !open && !granted(state, gate)) return false;
  state.granted = counted && !open;
  state.wait_word = nullptr;
  const auto now = clock_.now();
  if (now - state.slice.since > kForget) state.proven = 1;  // what comes now may be something else
  start(engine, {.begun = true,
                 .counted = counted,
                 .wide = open && engine == kCompute && gate.open.load(std::memory_order_relaxed) == kOpenWide,
                 .begun_by_known = !own_time_slice && work.known_ns != 0,
                 .units = work.units,
                 .limit = own_time_slice ? 1 : limit(state, gate),
                 .since = now});
  if (engine == kCompute) stream_depths_.add(&state.slice.streams, work.stream);
  return true;
}

void GateView::close(unsigned engine, Ended also) {
  TimeSlice& slice = engine_states_[engine].slice;
  slice.begun = false;
  if (engine == kCompute) known_in_a_row_ = slice.known ? known_in_a_row_ + 1 : 0;
  device_->time_slice_end(engine, [this, engine, slice = slice, also = std::move(also)](uint64_t busy_ns) {
    const uint64_t own_ns = slice.wide ? own_time(slice, busy_ns) : 0;
    learn(engine_states_[engine], slice.units, own_ns ? own_ns : busy_ns);
    prove(engine_states_[engine], slice.units);
    if (engine == kCompute) stream_depths_.end(slice.streams);
    const bool apart = engine == kCompute && stream_eras_.end(slice.era);
    if (slice.sample && apart && (slice.wide || beside_others_)) learn_sample(slice, busy_ns);
    if (slice.wide && slice.known && slice.alone && !slice.sample) learn_gaps(slice, busy_ns);
    if (slice.kept && slice.known && !slice.sample) note_kept(slice, busy_ns);
    if (beside_others_ && slice.counted && engine == kCompute) note_beside(slice, busy_ns);
    if (slice.counted) ended(engine, own_ns ? own_ns : slice.wide ? used(slice, busy_ns) : busy_ns, own_ns);
    if (also) also(busy_ns);
    return own_ns ? std::min(own_ns, busy_ns) : busy_ns;
  });
}

}  // namespace bandsaw::runner
