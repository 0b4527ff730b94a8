// What programs make everybody on the GPU wait for: contexts at their beginning. Of further contexts and faults their
// runners take care (backend/runner/memory/usage_page_stalls.cc); both take from one budget.
#include "backend/control/stall_budget.h"
#include "backend/session/usage_page_owner.h"
#include "memory/base/clock.h"

namespace bandsaw {

void UsagePageOwner::pace_stalls(bool paces) {
  paces_ = paces;
  limits_page_->stall_ms = stall_ms();
}

uint32_t UsagePageOwner::stall_ms() const {
  return paces_ ? limits_[static_cast<size_t>(Limited::kStallMs)] : kStallUnlimited;
}

std::chrono::nanoseconds UsagePageOwner::begin_program() {
  const int64_t now = monotonic_ns();
  int64_t wait = 0;
  if (others_work(page_->grant_page, now)) {
    wait = StallBudget(&page_->stalls_paid_at).take_now(kProgramStall, stall_ms(), now);
  }
  if (wait > 0) {
    if (waits_since_ == 0) waits_since_ = now;
  } else if (const int64_t since = std::exchange(waits_since_, 0); since != 0) {
    ++page_->stall_waits;
    page_->stall_wait_ns += static_cast<uint64_t>(now - since);
  }
  return std::chrono::nanoseconds(wait);
}

std::chrono::nanoseconds UsagePageOwner::stall_debt() const {
  const int64_t now = monotonic_ns();
  if (!others_work(page_->grant_page, now)) return {};
  return std::chrono::nanoseconds(StallBudget(&page_->stalls_paid_at).debt(stall_ms(), now));
}

uint64_t UsagePageOwner::stall_owed_ms() const {
  return static_cast<uint64_t>(StallBudget(&page_->stalls_paid_at).owed(stall_ms(), monotonic_ns())) / 1'000'000;
}

}  // namespace bandsaw
