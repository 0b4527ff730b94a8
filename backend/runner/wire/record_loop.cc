#include "backend/runner/wire/record_loop.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "memory/base/eventfd.h"
#include "memory/base/log.h"
#include "memory/base/yield.h"

namespace bandsaw::runner {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The shortest poll covers a guest that makes one call after the other, the longest one that works or rests between
// them: waking up takes as long as many calls. Where cores are few, polling for long keeps the guest's own thread from
// running.
constexpr microseconds kPollBudgetMin{50}, kPollBudgetFewCores{100}, kPollBudgetManyCores{10000};
// Somewhat longer pauses than are polled through are a reason to poll for as long as one may.
constexpr microseconds kSomewhatLonger{200};
constexpr microseconds kYieldEvery{5};
// How long work waits at a gate before the rings are looked at, the first time and after so many doublings.
constexpr std::chrono::nanoseconds kGateProbe = microseconds(200);
constexpr int kGateProbesMost = 4;
// Before that: a guest that is in the middle of a few calls.
constexpr std::chrono::nanoseconds kShortSpin = microseconds(10);
// For the end of a time slice, should nothing tell of it.
constexpr std::chrono::nanoseconds kLongestAtGate = milliseconds(100);
// A dropped ring whose records cannot come to their turn (a sequence number is missing) goes after this.
constexpr milliseconds kDropTimeout{1000};
// A record that waits for its turn waits for those between it and the last one, and all of them fit in the rings.
constexpr uint64_t kFurthestAhead = uint64_t{VGPU_RINGS_MAX} * (VGPU_RING_RECORDS_BYTES / sizeof(vgpu_record));

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Called only when there is something, so it does not block.
void drain(int event) {
  if (!drain_event(event)) log::error("eventfd: {}", std::strerror(errno));
}

}  // namespace

RecordLoop::RecordLoop(Process* process, UniqueFd kick)
    : process_(process),
      kick_(std::move(kick)),
      command_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      poll_budget_max_(has_many_cores() ? kPollBudgetManyCores : kPollBudgetFewCores),
      poll_budget_(kPollBudgetMin) {
  process_->set_others_wait([this] { return is_wanted(); });
  process_->set_expect_calls([this](Clock::time_point latest) { expect(latest); });
}

RecordLoop::~RecordLoop() {
  early_polls_.reset();
  process_->set_expect_calls(nullptr);
  stop_.store(true);
  wake();
  if (thread_.joinable()) thread_.join();
}

void RecordLoop::wake() {
  if (!signal_event(command_.get())) log::error("cannot wake the record loop: {}", std::strerror(errno));
}

void RecordLoop::expect(Clock::time_point latest) {
  polls_until_.store(latest, std::memory_order_relaxed);
  wake();
}

void RecordLoop::start() {
  thread_ = std::thread([this] { run(); });
  early_polls_.emplace(&process_->callbacks(), &process_->device_section(), [this] { return take_polls(); });
}

void RecordLoop::add_ring(CommandRingRef ring) {
  std::lock_guard lock(mutex_);
  commands_.add.push_back(std::move(ring));
  has_commands_.store(true);
  wake();
}

void RecordLoop::drop_ring(uint32_t id, std::function<void()> gone) {
  std::lock_guard lock(mutex_);
  commands_.drop.push_back({id, std::move(gone), Clock::now() + kDropTimeout});
  has_commands_.store(true);
  wake();
}

void RecordLoop::go_on(uint64_t last_seq, std::vector<AgainRecord> again) {
  std::lock_guard lock(mutex_);
  commands_.last_seq = last_seq;
  commands_.again = std::move(again);
  has_commands_.store(true);
  wake();
}

void RecordLoop::take_commands() {
  std::lock_guard lock(mutex_);
  has_commands_.store(false);
  for (CommandRingRef& ring : commands_.add) rings_.push_back(std::move(ring));
  for (Dropped& dropped : commands_.drop) dropping_.push_back(std::move(dropped));
  if (commands_.last_seq) last_seq_ = *commands_.last_seq;
  for (AgainRecord& record : commands_.again) again_.push_back(std::move(record));
  commands_ = {};
}

void RecordLoop::run() {
  pthread_setname_np(pthread_self(), "record-loop");
  while (!stop_.load(std::memory_order_relaxed)) {
    if (has_commands_.load(std::memory_order_acquire)) take_commands();
    if (process_->pass_waiting(!taken_ahead_.empty())) gate_probes_ = 0;
    if (!taken_ahead_.empty()) pass_taken();  // also what was taken just now: a record may wait for that alone
    if (process_->standstill().at_rest()) {
      rest();
      continue;
    }
    said_call_waits_ = false;
    keep_room();
    if (!process_->waiting().at_limit() && (serve_again() || serve_any())) {
      gate_probes_ = 0;
      continue;
    }
    if (!dropping_.empty()) finish_drops();
    if (process_->waits_at_gate()) {
      wait_at_gate();
    } else if (process_->waiting().full()) {
      wait_for_end();
    } else if (!spin(std::min<std::chrono::nanoseconds>(kPollBudgetMin, longest_sleep())) && !poll_on()) {
      sleep();
    }
  }
}

// Work waits at a gate, whose opening wakes this thread. Where the arbiter opens it new records do not, so it looks
// after them, less and less often.
void RecordLoop::wait_at_gate() {
  process_->gate().quiet();
  if (gate_probes_ == 0 && spin(kShortSpin)) return;
  if (process_->waits_for_own_end()) return wait_for_end();
  const DeviceSection::Scope within(&process_->device_section());  // what opens it may wait for a host function
  process_->wait_at_gate(kGateProbe * (1 << std::min(gate_probes_++, kGateProbesMost)));
}

// Until a time slice, a grid slice or a piece of a copy ends, or a record comes that may go past what waits.
void RecordLoop::wait_for_end() {
  GateView& gate = process_->gate();
  gate.quiet();
  const DeviceSection::Scope within(&process_->device_section());  // what ends may wait for a host function
  gate.pause();
  gate.listen(true);
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!gate.moved() && !any_more()) {
    pollfd fds[] = {{kick_.get(), POLLIN, 0},
                    {command_.get(), POLLIN, 0},
                    {gate.wake(), POLLIN, 0},
                    {process_->slicer().wake(), POLLIN, 0},
                    {process_->pieces().wake(), POLLIN, 0}};
    wait(fds, std::clamp(std::min(longest_sleep(), gate.longest_sleep()), kGateProbe, kLongestAtGate));
  }
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(false);
  gate.listen(false);
}

// Of wait(), whatever does not happen.
std::chrono::nanoseconds RecordLoop::longest_sleep() const {
  const auto most = std::min(process_->slicer().longest_sleep(), process_->pieces().longest_sleep());
  return dropping_.empty() ? most : std::min<std::chrono::nanoseconds>(most, kDropTimeout);
}

// True: one of them has something.
bool RecordLoop::wait(std::span<pollfd> fds, std::chrono::nanoseconds most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit = {seconds.count(), (most - seconds).count()};
  const int ready = ppoll(fds.data(), fds.size(), most == std::chrono::nanoseconds::max() ? nullptr : &limit, nullptr);
  for (const pollfd& fd : fds) {
    if (fd.revents) drain(fd.fd);
  }
  return ready > 0;
}

// Records stay in their rings until the standstill ends; whoever has asked for it hears of the first.
void RecordLoop::rest() {
  if (!dropping_.empty()) finish_drops();
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!said_call_waits_ && any_wait()) {
    said_call_waits_ = true;
    if (on_call_waits_) on_call_waits_();
  }
  pollfd fds[] = {{command_.get(), POLLIN, 0}, {kick_.get(), POLLIN, 0}};
  wait(std::span(fds).first(said_call_waits_ ? 1 : 2), longest_sleep());
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(false);
}

// The ring's next record becomes the pending one, if there is any. False: the ring is broken.
bool RecordLoop::fetch(const CommandRingRef& ring) {
  if (ring->has_pending) return true;
  std::string why;
  const bool keeps_room = keeps_room_.load(std::memory_order_relaxed) && ring->waiting != 0;
  const CommandRing::Take taken = ring->take(&ring->pending, &why, !keeps_room);
  if (taken == CommandRing::Take::kBroken) process_->protocol_error(why);
  ring->has_pending.store(taken == CommandRing::Take::kRecord, std::memory_order_relaxed);
  return taken != CommandRing::Take::kBroken;
}

// Executes at most one record of the ring. False: it has none whose turn it is.
bool RecordLoop::serve(const CommandRingRef& ring) {
  if (!fetch(ring)) return true;
  if (!ring->has_pending) return false;
  const uint64_t seq = ring->pending.header.seq;
  if (seq != last_seq_ + 1 && !process_->protocol_broken()) {
    if (seq > last_seq_ && seq - last_seq_ <= kFurthestAhead) return false;
    process_->protocol_error(fmt::format("ring {}: record {} after record {}", ring->id(), seq, last_seq_));
  }
  last_seq_ = seq;
  ring->has_pending.store(false, std::memory_order_relaxed);
  executes_from_ = ring.get();
  process_->execute(ring, ring->pending);
  executes_from_ = nullptr;
  return true;
}

// On another thread, while the record loop is in the device: the guest's polls for host functions, which say that one
// has returned, are answered ahead of their turn. True: there was one. They are no more than the functions that the
// device has begun, and one for each ring. The ring that they come from may be one that the record loop has yet to add.
bool RecordLoop::take_polls() {
  polls_looked_for_ = true;
  bool any = false;
  for (const CommandRingRef& ring : rings_) any |= take_poll(ring);
  std::lock_guard lock(mutex_);
  for (const CommandRingRef& ring : commands_.add) any |= take_poll(ring);
  return any;
}

bool RecordLoop::take_poll(const CommandRingRef& ring) {
  if (process_->protocol_broken() || ring.get() == executes_from_ || !fetch(ring) || !ring->has_pending) return false;
  const vgpu_record& header = ring->pending.header;
  if (header.opcode != static_cast<uint32_t>(wire::Opcode::kNextCallback)) return false;
  if (header.seq <= last_seq_ || header.seq - last_seq_ > kFurthestAhead) return false;  // wrong: serve() says so
  taken_ahead_.insert(header.seq);
  ring->has_pending.store(false, std::memory_order_relaxed);
  process_->answer_poll(ring, ring->pending);
  return true;
}

// What has been taken ahead of its turn is not waited for.
void RecordLoop::pass_taken() {
  while (!taken_ahead_.empty() && *taken_ahead_.begin() <= last_seq_ + 1) {
    last_seq_ = std::max(last_seq_, *taken_ahead_.begin());
    taken_ahead_.erase(taken_ahead_.begin());
  }
}

bool RecordLoop::serve_again() {
  if (again_.empty()) return false;
  AgainRecord next = std::move(again_.front());
  again_.pop_front();
  process_->execute(next.first, next.second);
  return true;
}

bool RecordLoop::serve_any() {
  // The next record is usually in the ring that had the last one.
  if (current_ < rings_.size() && serve(rings_[current_])) return true;
  for (size_t i = 0; i < rings_.size(); ++i) {
    if (i == current_ || !serve(rings_[i])) continue;
    current_ = i;
    return true;
  }
  return false;
}

bool RecordLoop::any_more() const {
  return std::any_of(rings_.begin(), rings_.end(), [](const CommandRingRef& ring) { return ring->has_more(); });
}

// Where enough records wait, the others are taken nevertheless: a call of another thread does not wait for all that one
// has issued. But a ring that has some of those does not get room back, so its thread may publish no more than it
// holds.
void RecordLoop::keep_room() {
  const bool full = process_->waiting().full();
  if (!keeps_room_.exchange(full) && !full) return;
  for (const CommandRingRef& ring : rings_) {
    if (!full || ring->waiting == 0) ring->give_room();
  }
}

bool RecordLoop::any_wait() const {
  return !process_->waiting().empty() || !again_.empty() ||
         std::any_of(rings_.begin(), rings_.end(),
                     [](const CommandRingRef& ring) { return ring->has_pending || ring->has_more(); });
}

// While the device waits on this thread, for work of this process: others need not wait for the time slice's end as
// well.
bool RecordLoop::is_wanted() {
  process_->gate().rest();
  return any_more() || !process_->waiting().empty() || process_->busy() ||
         has_commands_.load(std::memory_order_acquire) || stop_.load(std::memory_order_relaxed);
}

// Polls for so long. True: there is something to do.
bool RecordLoop::spin(std::chrono::nanoseconds budget) {
  const auto until = Clock::now() + budget;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_cpu();
      if (any_more() || process_->gate().moved() || process_->slicer().moved() || process_->pieces().moved())
        return true;
    }
    process_->gate().quiet();
    if (has_commands_.load(std::memory_order_acquire) || stop_.load(std::memory_order_relaxed)) return true;
  } while (Clock::now() < until);
  return false;
}

// As spin, for longer: whoever else wants the core or the GPU has it.
bool RecordLoop::poll_on() {
  {
    const DeviceSection::Scope within(&process_->device_section());
    process_->gate().pause();
  }
  if (std::exchange(polls_looked_for_, false)) return true;  // and records fetched, whose turn it may be
  if (process_->slicer().is_watching()) return longest_sleep() < kYieldEvery;  // then it is looked at again at once
  const auto until =
      std::max(Clock::now() + poll_budget_ - kPollBudgetMin, polls_until_.load(std::memory_order_relaxed));
  CoreWatch core;
  while (Clock::now() < until) {
    if (spin(kYieldEvery)) return true;
    if (core.is_wanted()) return false;
  }
  return false;
}

void RecordLoop::sleep() {
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!any_more()) {
    const auto before = Clock::now();
    pollfd fds[] = {{kick_.get(), POLLIN, 0},
                    {command_.get(), POLLIN, 0},
                    {process_->slicer().wake(), POLLIN, 0},
                    {process_->pieces().wake(), POLLIN, 0}};
    const std::chrono::nanoseconds most = longest_sleep();
    while (!wait(fds, std::min(most, process_->gate().longest_sleep())) && most == most.max()) process_->gate().quiet();
    const bool pays = poll_budget_ + (Clock::now() - before) < poll_budget_max_ + kSomewhatLonger;
    poll_budget_ = std::clamp<std::chrono::nanoseconds>(pays ? poll_budget_ * 2 : poll_budget_ / 2, kPollBudgetMin,
                                                        poll_budget_max_);
  }
  for (const CommandRingRef& ring : rings_) ring->set_sleeping(false);
}

void RecordLoop::drop(Dropped& dropped, size_t at) {
  const CommandRingRef ring = std::move(rings_[at]);
  rings_.erase(rings_.begin() + static_cast<ptrdiff_t>(at));
  current_ = 0;
  {
    const DeviceSection::Scope within(&process_->device_section());
    process_->forget_ring(dropped.id);
  }
  ring->close();  // unmaps
  dropped.gone();
}

void RecordLoop::finish_drops() {
  for (size_t i = 0; i < dropping_.size();) {
    Dropped& dropped = dropping_[i];
    const auto found = std::find_if(rings_.begin(), rings_.end(),
                                    [&](const CommandRingRef& ring) { return ring->id() == dropped.id; });
    if (found == rings_.end()) {
      dropped.gone();
    } else if (process_->holds(**found)) {  // its work comes to its turn with the gate
      ++i;
      continue;
    } else if (((*found)->has_pending || (*found)->has_more()) && Clock::now() < dropped.deadline) {
      ++i;
      continue;
    } else {
      drop(dropped, static_cast<size_t>(found - rings_.begin()));
    }
    dropping_.erase(dropping_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace bandsaw::runner
