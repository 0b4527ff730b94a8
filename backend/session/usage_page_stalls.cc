// What programs make everybody on the GPU wait for: contexts at their beginning, and faults. Of further contexts their
// runners take care (backend/runner/execution/context_pace.h); both take from one budget.
#include "backend/control/stall_budget.h"
#include "backend/session/usage_page_owner.h"
#include "memory/base/clock.h"

namespace bandsaw {
namespace {

bool is_paced(const UsagePage& page, int64_t now) {
  return page.grant_page.no_arbiter == 0 && others_work(page.grant_page.others_worked_at, now);
}

}  // namespace

std::chrono::nanoseconds UsagePageOwner::begin_program() {
  const int64_t now = monotonic_ns();
  int64_t wait = 0;
  if (paces_ && is_paced(*page_, now)) {
    wait = StallBudget(&page_->stalls_paid_at)
               .take_now(kProgramStall, limits_[static_cast<size_t>(Limited::kStallMs)], now);
  }
  if (wait > 0) {
    if (waits_since_ == 0) waits_since_ = now;
  } else if (const int64_t since = std::exchange(waits_since_, 0); since != 0) {
    ++page_->stall_waits;
    page_->stall_wait_ns += static_cast<uint64_t>(now - since);
  }
  return std::chrono::nanoseconds(wait);
}

void UsagePageOwner::count_fault() {
  const int64_t now = monotonic_ns();
  if (!paces_ || !is_paced(*page_, now)) return;
  (void)StallBudget(&page_->stalls_paid_at).take(kFaultStall, limits_[static_cast<size_t>(Limited::kStallMs)], now);
}

uint64_t UsagePageOwner::stall_owed_ms() const {
  const uint32_t most = limits_[static_cast<size_t>(Limited::kStallMs)];
  return static_cast<uint64_t>(StallBudget(&page_->stalls_paid_at).owed(most, monotonic_ns())) / 1'000'000;
}

}  // namespace bandsaw
