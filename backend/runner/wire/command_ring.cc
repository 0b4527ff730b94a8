#include "backend/runner/wire/command_ring.h"

#include <unistd.h>

#include <climits>
#include <cstring>

#include "memory/base/eventfd.h"
#include "memory/base/futex.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

static_assert(sizeof(vgpu_ring_header) <= VGPU_RING_RECORDS_OFFSET);
static_assert(VGPU_RING_REPLY_OFFSET + VGPU_RING_REPLY_BYTES <= VGPU_RING_BYTES);
static_assert(VGPU_RING_RECORDS_BYTES % VGPU_RECORD_ALIGN == 0 && sizeof(vgpu_record) % VGPU_RECORD_ALIGN == 0);

// Words shared with the guest; the compiler may not read them twice.
template <typename T>
T load(const T& word, std::memory_order order) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <typename T>
void store(T& word, T value, std::memory_order order) {
  std::atomic_ref<T>(word).store(value, order);
}

// The first 8 bytes of every record, PAD included.
struct Front {
  uint32_t bytes, opcode;
};

class FutexWaker : public Waker {
 public:
  void wake(uint32_t* word) override { futex_wake(word); }
};

class EventWaker : public Waker {
 public:
  explicit EventWaker(UniqueFd event) : event_(std::move(event)) {}
  void wake(uint32_t*) override {
    if (!signal_event(event_.get()) && errno != EAGAIN) {
      log::error("cannot wake the guest: {}", std::strerror(errno));
    }
  }

 private:
  const UniqueFd event_;
};

}  // namespace

std::unique_ptr<Waker> make_futex_waker() { return std::make_unique<FutexWaker>(); }
std::unique_ptr<Waker> make_event_waker(UniqueFd event) { return std::make_unique<EventWaker>(std::move(event)); }

CommandRing::CommandRing(uint32_t id, RegionRef memory, Waker* waker, const std::atomic<bool>* output_pending,
                         bool goes_on)
    : id_(id),
      waker_(waker),
      output_pending_(output_pending),
      memory_(std::move(memory)),
      header_(reinterpret_cast<vgpu_ring_header*>(memory_->host())),
      records_(memory_->host() + VGPU_RING_RECORDS_OFFSET),
      reply_(memory_->host() + VGPU_RING_REPLY_OFFSET) {
  // Guests hand over zeroed pages; this side's count begins at 0 in any case.
  if (!goes_on) store(header_->head, __u64{0}, std::memory_order_release);
}

CommandRing::State CommandRing::state() {
  std::lock_guard lock(mutex_);
  return {head_.load(), late_error_, unanswered_, call_};
}

bool CommandRing::set_state(const State& state) {
  if (state.head % VGPU_RECORD_ALIGN != 0) return false;
  std::lock_guard lock(mutex_);
  tail_ = room_from_ = state.head;
  head_.store(tail_);
  late_error_ = state.late_error;
  unanswered_ = false;
  if (!closed_) store(header_->head, __u64{tail_}, std::memory_order_release);
  return true;
}

CommandRing::Take CommandRing::broken(std::string* why, std::string text) {
  *why = fmt::format("ring {}: {}", id_, text);
  tail_ -= tail_ % VGPU_RECORD_ALIGN;
  head_.store(tail_, std::memory_order_relaxed);
  give_room();
  return Take::kBroken;
}

void CommandRing::give_room() {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  if (std::exchange(room_from_, head) != head) store(header_->head, __u64{head}, std::memory_order_release);
}

// The next record's lines lie in the cache of the guest's core; they come over while this one is executed.
void CommandRing::prefetch_from(uint64_t head) const {
  constexpr uint64_t kLine = 64, kLines = 4;  // a launch with a few parameters
  for (uint64_t i = 0; i < kLines; ++i) {
    __builtin_prefetch(records_ + (head + i * kLine) % VGPU_RING_RECORDS_BYTES);
  }
}

CommandRing::Take CommandRing::take(Record* record, std::string* why, bool gives_room) {
  for (uint64_t head = head_.load(std::memory_order_relaxed);;) {
    if (head == tail_) {
      const uint64_t tail = load(header_->tail, std::memory_order_acquire);
      if (tail == head) return Take::kNothing;
      const uint64_t before = std::exchange(tail_, tail);
      if (tail - room_from_ > VGPU_RING_RECORDS_BYTES || tail % VGPU_RECORD_ALIGN != 0) {
        return broken(why, fmt::format("the tail went from {} to {}", before, tail));
      }
    }
    const uint64_t at = head % VGPU_RING_RECORDS_BYTES;
    const uint64_t room = VGPU_RING_RECORDS_BYTES - at;
    const auto front =
        std::bit_cast<Front>(load(*reinterpret_cast<const uint64_t*>(records_ + at), std::memory_order_relaxed));
    if (front.opcode == VGPU_OPCODE_PAD) {
      if (front.bytes != room || front.bytes > tail_ - head) {
        return broken(why, fmt::format("padding of {} bytes where {} are left in the record area", front.bytes, room));
      }
    } else {
      if (front.bytes < sizeof(vgpu_record) || front.bytes % VGPU_RECORD_ALIGN != 0 ||
          front.bytes > VGPU_RECORD_MAX_BYTES || front.bytes > room || front.bytes > tail_ - head) {
        return broken(why, fmt::format("a record of {} bytes with {} published and {} to the record area's end",
                                       front.bytes, tail_ - head, room));
      }
      record->bytes.resize(front.bytes);
      std::memcpy(record->bytes.data(), records_ + at, front.bytes);
      std::memcpy(record->bytes.data(), &front, sizeof(front));  // as checked, should the guest have written since
      std::memcpy(&record->header, record->bytes.data(), sizeof(vgpu_record));
    }
    head += front.bytes;
    head_.store(head, std::memory_order_relaxed);
    if (gives_room) give_room();
    if (head != tail_) prefetch_from(head);
    if (front.opcode != VGPU_OPCODE_PAD) return Take::kRecord;
  }
}

bool CommandRing::has_more() const {
  if (has_pending.load(std::memory_order_relaxed)) return false;
  return load(header_->tail, std::memory_order_acquire) != head_.load(std::memory_order_relaxed);
}

void CommandRing::set_sleeping(bool sleeping) {
  store(header_->host_sleeping, __u32{sleeping}, std::memory_order_relaxed);
}

RegionRef CommandRing::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return std::move(memory_);
}

bool CommandRing::begin_sync(const vgpu_record& header, bool synchronising) {
  std::lock_guard lock(mutex_);
  if (std::exchange(unanswered_, true)) return false;
  call_ = header;
  synchronising_ = synchronising;
  return true;
}

void CommandRing::reply(uint64_t seq, CUresult result, std::span<const std::byte> fixed,
                        std::span<const std::byte> tail) {
  std::lock_guard lock(mutex_);
  unanswered_ = false;
  if (closed_) return;
  if (synchronising_ && result == CUDA_SUCCESS) result = std::exchange(late_error_, CUDA_SUCCESS);
  if (fixed.size() + tail.size() > VGPU_RING_REPLY_BYTES) {
    log::error("a reply of {} bytes does not fit", fixed.size() + tail.size());
    result = CUDA_ERROR_NOT_SUPPORTED;
    fixed = tail = {};
  }
  if (!fixed.empty()) std::memcpy(reply_, fixed.data(), fixed.size());
  if (!tail.empty()) std::memcpy(reply_ + fixed.size(), tail.data(), tail.size());
  const __u32 flags = output_pending_->load(std::memory_order_acquire) ? VGPU_REPLY_OUTPUT_PENDING : 0;
  store(header_->reply_result, static_cast<__s32>(result), std::memory_order_relaxed);
  store(header_->reply_bytes, static_cast<__u32>(fixed.size() + tail.size()), std::memory_order_relaxed);
  store(header_->reply_flags, flags, std::memory_order_relaxed);
  store(header_->reply_seq, static_cast<__u64>(seq), std::memory_order_release);
  wake_if_waiting();
}

void CommandRing::done(const vgpu_done& done, CUresult result) {
  if (done.token == 0) return;
  const uint64_t word = (static_cast<uint64_t>(done.token) << 32) | static_cast<uint32_t>(result);
  const uint32_t slot = done.slot % VGPU_RING_DONE_SLOTS;
  std::lock_guard lock(mutex_);
  if (closed_) return;
  // Ends of work on one stream are told by several threads, so an earlier one may come after a later one has its slot:
  // it would be there for good, and who waits for the later one with it.
  std::optional<uint32_t>& last = done_tokens_[slot];
  if (last && static_cast<int32_t>(done.token - *last) < 0) return;
  last = done.token;
  store(header_->done[slot], static_cast<__u64>(word), std::memory_order_release);
  wake_if_waiting();
}

void CommandRing::set_late_error(CUresult error) {
  std::lock_guard lock(mutex_);
  if (late_error_ == CUDA_SUCCESS) late_error_ = error;
}

void CommandRing::set_sticky(CUresult error) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  store(header_->sticky_error, static_cast<__u32>(error), std::memory_order_release);
  wake_if_waiting();
}

void CommandRing::set_compiling(uint32_t kernels) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  store(header_->compiling, static_cast<__u32>(kernels), std::memory_order_release);
  wake_if_waiting();
}

// Called with mutex_ held.
void CommandRing::wake_if_waiting() {
  // Pairs with the guest's: it announces that it waits, then looks once more for what was stored above.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (load(header_->guest_waiting, std::memory_order_relaxed) == 0) return;
  std::atomic_ref<__u32>(header_->wake).fetch_add(1, std::memory_order_release);
  waker_->wake(&header_->wake);
}

}  // namespace bandsaw::runner
