#include "guest-driver/cupti/clock.h"

#include <ctime>

#include "memory/base/clock.h"

namespace bandsaw::cupti {
namespace {

constexpr uint64_t kApartNs = 1'000'000;  // between two pairs at least, so that their own errors count for little
constexpr uint64_t kOldNs = 100'000'000;  // after which another pair is read

uint64_t realtime() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

// Leaked: records are written until the process is gone.
Clock& Clock::get() {
  static auto* const made = new Clock;
  return *made;
}

void Clock::use(CUpti_TimestampCallbackFunc read) {
  std::lock_guard lock(mutex_);
  read_ = read;
  first_ = last_ = {};
}

uint64_t Clock::now() const {
  std::lock_guard lock(mutex_);
  return read_ ? read_() : realtime();
}

// Of several readings, the one that took least.
Clock::Pair Clock::sample() const {
  Pair best;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 4; i++) {
    const auto before = static_cast<uint64_t>(monotonic_ns());
    const uint64_t other = read_ ? read_() : realtime();
    const uint64_t took = static_cast<uint64_t>(monotonic_ns()) - before;
    if (took >= shortest) continue;
    shortest = took;
    best = {before + took / 2, other};
  }
  return best;
}

uint64_t Clock::convert(uint64_t monotonic_ns) {
  std::lock_guard lock(mutex_);
  if (!first_.monotonic_ns) first_ = last_ = sample();
  const auto age = static_cast<uint64_t>(bandsaw::monotonic_ns()) - last_.monotonic_ns;
  if (age > kOldNs || last_.monotonic_ns - first_.monotonic_ns < kApartNs) {
    while (last_.monotonic_ns - first_.monotonic_ns < kApartNs) last_ = sample();
    if (age > kOldNs) last_ = sample();
  }
  const double rate =
      static_cast<double>(last_.other - first_.other) / static_cast<double>(last_.monotonic_ns - first_.monotonic_ns);
  const auto since = static_cast<double>(static_cast<int64_t>(monotonic_ns - last_.monotonic_ns));
  return last_.other + static_cast<uint64_t>(static_cast<int64_t>(since * rate));
}

}  // namespace bandsaw::cupti
