// Sleeping on a word in memory that processes share, and waking who sleeps there. Source: futex(2).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>

namespace bandsaw {

// `word` is 32 bits wide; that it may be a plain one of a C header is why it has no type here.
inline void futex_wake(void* word) { ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// Sleeps while *word is `seen`, for at most this long; may return early.
inline void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, long nanoseconds) {
  const timespec patience{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

}  // namespace bandsaw
