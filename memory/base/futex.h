// Sleeping on a word in memory that processes share, and waking who sleeps there. Source: futex(2),
// futex_waitv(2).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <span>

namespace bandsaw {

// `word` is 32 bits wide; that it may be a plain one of a C header is why it has no type here.
inline void futex_wake(void* word) { ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// Sleeps while *word is `seen`, for at most this long; may return early.
inline void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, long nanoseconds) {
  const timespec timeout{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

struct FutexWord {
  std::atomic<uint32_t>* word;
  uint32_t seen;
};

// As futex_wait, while all of them (128 at most, and at least one) are as they were seen.
inline void futex_wait_any(std::span<const FutexWord> words, long nanoseconds) {
  std::array<futex_waitv, FUTEX_WAITV_MAX> waiters{};
  for (size_t i = 0; i < words.size(); ++i) {
    waiters[i] = {words[i].seen, reinterpret_cast<uintptr_t>(words[i].word), FUTEX_32, 0};
  }
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const long sum = until.tv_nsec + nanoseconds;
  until = {until.tv_sec + sum / 1'000'000'000, sum % 1'000'000'000};
  const long woken = ::syscall(SYS_futex_waitv, waiters.data(), words.size(), 0, &until, CLOCK_MONOTONIC);
  // Linux before 5.16 does not know it: then with one eye on the first, and soon awake for the others.
  constexpr long kSoon = 100'000;
  if (woken < 0 && errno == ENOSYS) futex_wait(words[0].word, words[0].seen, std::min(nanoseconds, kSoon));
}

}  // namespace bandsaw
