#include "guest-driver/libcuda/core/command_ring.h"

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/transport.h"
#include "memory/base/clock.h"
#include "memory/base/yield.h"

namespace bandsaw::libcuda {
namespace {

// How long to sleep before asking whether the host lives. Short at first, in case an answer was lost; then doubled,
// because a thread that sleeps long usually has nothing to do.
constexpr uint32_t kProbeFirst = 100, kProbeLast = 1600;  // ms

template <typename T>
T load(const T& word, std::memory_order order = std::memory_order_acquire) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <typename T>
void store(T& word, T value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref<T>(word).store(value, order);
}

uint64_t nanoseconds() { return static_cast<uint64_t>(monotonic_ns()); }

// The shortest time to poll before sleeping. On one core polling would only keep the runner from working.
constexpr uint32_t kSpinLeast = 2'000;  // ns
// A sleep whose length lies between these two should have been a poll. A shorter one is as good as a poll: the runner
// then shares our core and cannot answer while we poll. A longer one is what sleeping is for.
constexpr uint64_t kShortSleep = 15'000, kLongSleep = 150'000;  // ns; or the longest poll, if that is longer

long cores() {
  static const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online;
}
bool one_core() { return cores() < 2; }
// With many cores polling costs the runner nothing: any sleep that a poll could have spared was a mistake.
bool many_cores() { return cores() >= 4; }

// How long a poll keeps its core whatever happens. With more threads than cores, polls that keep their cores hold up
// all answers, those they wait for as well.
constexpr uint64_t kUnyielding = 50'000;  // ns

uint32_t round_up(uint32_t bytes) { return (bytes + VGPU_RECORD_ALIGN - 1) / VGPU_RECORD_ALIGN * VGPU_RECORD_ALIGN; }

// Of a wait that is long because kernels are compiled: once, until none are any more.
void say_compiling(uint32_t kernels) {
  static std::atomic<bool> said{false};
  if (kernels == 0) {
    said.store(false, std::memory_order_relaxed);
  } else if (!said.exchange(true)) {
    notice("compiling %u kernel%s; the next run finds what is compiled in the cache", kernels, kernels == 1 ? "" : "s");
  }
}

}  // namespace

CommandRing::CommandRing(vgpu_ring_header* header, Transport* transport, std::atomic<uint64_t>* next_seq)
    : header_(header),
      transport_(transport),
      next_seq_(next_seq),
      records_(reinterpret_cast<char*>(header) + VGPU_RING_RECORDS_OFFSET),
      tail_(load(header->tail)),
      head_seen_(load(header->head)) {}

void CommandRing::set_poll_budget(uint32_t nanoseconds) {
  if (nanoseconds == spin_most_) return;
  spin_most_ = nanoseconds;
  spin_ = nanoseconds;
}

template <typename Ready>
bool CommandRing::wait_until(Ready ready) {
  if (ready()) return true;
  const uint64_t start = one_core() ? 0 : nanoseconds();
  CoreWatch core;
  for (uint64_t spun = 0; start && spun < spin_; spun = nanoseconds() - start) {
    if (spun > kUnyielding && core.is_wanted()) break;
    for (int i = 0; i < 16; i++) {
      if (ready()) {
        spin_ = spin_most_;
        return true;
      }
      _mm_pause();
    }
  }
  const uint64_t sleep_start = start ? nanoseconds() : 0;
  uint64_t seen = transport_->snapshot(header_);
  store(header_->guest_waiting, 1u, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the host reads guest_waiting after it has answered
  bool answered = true;
  for (uint32_t timeout_ms = kProbeFirst; !ready(); timeout_ms = std::min(timeout_ms * 2, kProbeLast)) {
    const int error = transport_->wait(header_, &seen, timeout_ms);
    say_compiling(load(header_->compiling));
    if (error == EPIPE || (error && !transport_->alive())) {
      answered = ready();  // an answer may have come before the end
      break;
    }
  }
  store(header_->guest_waiting, 0u, std::memory_order_relaxed);
  const uint64_t slept = start ? nanoseconds() - sleep_start : 0;
  const uint64_t long_sleep = std::max<uint64_t>(kLongSleep, spin_most_);
  const bool spin_longer = (many_cores() || slept > kShortSleep) && slept < long_sleep;
  const uint32_t least = std::min(spin_most_, many_cores() ? kSpinUsual / 2 : kSpinLeast);
  spin_ = spin_longer ? std::min(spin_ * 2, spin_most_) : std::max(spin_ / 2, least);
  return answered;
}

bool CommandRing::wait_for_room(uint32_t bytes) {
  auto fits = [&] {
    head_seen_ = load(header_->head);
    return tail_ - head_seen_ + bytes <= VGPU_RING_RECORDS_BYTES;
  };
  // The runner wakes nobody for room, so poll.
  for (uint32_t round = 0; !fits(); round++) {
    if (round < 64) {
      sched_yield();
      continue;
    }
    usleep(100);
    if (round % 256 == 0 && !transport_->alive()) return false;
  }
  return true;
}

void* CommandRing::reserve(uint32_t opcode, uint32_t payload, uint64_t context) {
  const uint32_t bytes = round_up(static_cast<uint32_t>(sizeof(vgpu_record)) + payload);
  uint32_t at = static_cast<uint32_t>(tail_ % VGPU_RING_RECORDS_BYTES);
  const uint32_t room = VGPU_RING_RECORDS_BYTES - at;
  pad_ = bytes > room ? room : 0;
  reserved_ = bytes;
  if (tail_ - head_seen_ + pad_ + bytes > VGPU_RING_RECORDS_BYTES && !wait_for_room(pad_ + bytes)) return nullptr;
  if (pad_) {
    // The runner reads the first 8 bytes of a PAD record only, and there may be no more than 16.
    auto* pad = reinterpret_cast<vgpu_record*>(records_ + at);
    pad->bytes = pad_;
    pad->opcode = VGPU_OPCODE_PAD;
    at = 0;
  }
  auto* record = reinterpret_cast<vgpu_record*>(records_ + at);
  record->bytes = bytes;
  record->opcode = opcode;
  record->context = context;
  record->reserved = 0;
  return record + 1;
}

uint64_t CommandRing::publish() {
  const uint64_t at = (tail_ + pad_) % VGPU_RING_RECORDS_BYTES;
  auto* record = reinterpret_cast<vgpu_record*>(records_ + at);
  // Nothing may come between taking the number and publishing: later records of other rings wait for this one.
  const uint64_t seq = next_seq_->fetch_add(1, std::memory_order_relaxed);
  record->seq = seq;
  tail_ += pad_ + reserved_;
  store(header_->tail, static_cast<__u64>(tail_));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the runner reads tail after it has set host_sleeping
  if (load(header_->host_sleeping, std::memory_order_relaxed)) transport_->kick();
  return seq;
}

bool CommandRing::wait_reply(uint64_t seq) {
  return wait_until([&] { return load(header_->reply_seq) == seq; });
}

CUresult CommandRing::reply_result() const {
  return static_cast<CUresult>(load(header_->reply_result, std::memory_order_relaxed));
}

uint32_t CommandRing::reply_bytes() const {
  const uint32_t bytes = load(header_->reply_bytes, std::memory_order_relaxed);
  return bytes < VGPU_RING_REPLY_BYTES ? bytes : VGPU_RING_REPLY_BYTES;
}

uint32_t CommandRing::reply_flags() const { return load(header_->reply_flags, std::memory_order_relaxed); }

CUresult CommandRing::sticky_error() const {
  return static_cast<CUresult>(load(header_->sticky_error, std::memory_order_relaxed));
}

bool CommandRing::done_yet(vgpu_done done, CUresult* result) const {
  const uint64_t word = load(header_->done[done.slot]);
  const uint32_t token = static_cast<uint32_t>(word >> 32);
  if (static_cast<int32_t>(token - done.token) < 0) return false;
  *result = token == done.token ? static_cast<CUresult>(static_cast<uint32_t>(word)) : CUDA_SUCCESS;
  return true;
}

bool CommandRing::wait_done(vgpu_done done, CUresult* result) {
  *result = CUDA_SUCCESS;
  if (done.token == 0) return true;
  return wait_until([&] { return done_yet(done, result); });
}

CommandRing* CommandRingPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      CommandRing* const ring = free_.back();
      free_.pop_back();
      return ring;
    }
  }
  vgpu_ring_header* header = nullptr;
  if (transport_->add_ring(&header) != 0) return nullptr;
  return new CommandRing(header, transport_, next_seq_);
}

void CommandRingPool::give_back(CommandRing* ring) {
  std::lock_guard lock(mutex_);
  free_.push_back(ring);
}

}  // namespace bandsaw::libcuda
