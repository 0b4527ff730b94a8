#include "guest-driver/libcuda/api/copy_threads.h"

#include <emmintrin.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace bandsaw::libcuda {
namespace {

constexpr size_t kAloneBelow = 256u << 10;  // handing pieces out costs about 2 us
constexpr size_t kLine = 64;
constexpr unsigned kHelpersMost = 3;
constexpr unsigned kCoresPerHelper = 4;  // the rest is the program's
constexpr std::chrono::microseconds kPollBudget{50};

// memcpy past the caches: the target's old content need not be fetched.
void stream_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(to) & 63);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
  std::memcpy(to, from, bytes);
}

struct PlainCopy {
  std::byte* to;
  const std::byte* from;
  bool streaming;
};

void copy_part(const void* about, size_t offset, size_t bytes) {
  const auto& copy = *static_cast<const PlainCopy*>(about);
  copy.streaming ? stream_bytes(copy.to + offset, copy.from + offset, bytes)
                 : static_cast<void>(std::memcpy(copy.to + offset, copy.from + offset, bytes));
}

}  // namespace

CopyThreads& CopyThreads::get() {
  static CopyThreads& threads =
      *new CopyThreads(std::min(kHelpersMost, std::thread::hardware_concurrency() / kCoresPerHelper));
  return threads;
}

void CopyThreads::Job::run(unsigned index) const {
  const size_t begin = std::min(bytes, index * part), end = std::min(bytes, begin + part);
  if (begin < end) work(about, begin, end - begin);
}

void CopyThreads::copy(void* to, const void* from, size_t bytes, bool streaming) {
  const PlainCopy copy{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), streaming};
  share(bytes, kLine, copy_part, &copy);
}

void CopyThreads::share(size_t bytes, size_t unit, Work work, const void* about) {
  const Job whole{work, about, bytes, bytes};
  if (bytes < kAloneBelow || helpers_ == 0 || !mutex_.try_lock()) return whole.run(0);
  const std::lock_guard lock(mutex_, std::adopt_lock);
  start();
  const size_t threads = helpers_ + 1;
  job_ = whole;
  job_.part = ((bytes + threads - 1) / threads + unit - 1) / unit * unit;
  left_.store(helpers_, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  job_.run(helpers_);  // the last part, which may be shorter, is the caller's
  while (left_.load(std::memory_order_acquire) != 0) _mm_pause();
}

// Called with mutex_ held.
void CopyThreads::start() {
  if (started_) return;
  started_ = true;
  sigset_t all, before;
  sigfillset(&all);  // the program's signals are for the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < helpers_; ++i) std::thread([this, i] { help(i); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void CopyThreads::help(unsigned index) {
  pthread_setname_np(pthread_self(), "cuda-copy");
  for (uint32_t seen = 0;; ++seen) {
    const auto until = std::chrono::steady_clock::now() + kPollBudget;
    while (round_.load(std::memory_order_acquire) == seen && std::chrono::steady_clock::now() < until) _mm_pause();
    round_.wait(seen, std::memory_order_acquire);
    job_.run(index);
    left_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace bandsaw::libcuda
