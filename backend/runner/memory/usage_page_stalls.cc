// What a running program does that stops everybody on a GPU for a moment, while others have work: further contexts, and
// faults. Programs' beginnings are the session's, from the same budget (backend/session/usage_page_stalls.cc).
#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/control/stall_budget.h"
#include "backend/runner/memory/usage_page_view.h"
#include "memory/base/clock.h"

namespace bandsaw::runner {
namespace {

constexpr int64_t kLook = 10'000'000;  // ns: how often it is seen whether others still have work

}  // namespace

void UsagePageView::pace_context() {
  const int64_t begin = monotonic_ns();
  if (!others_work(page_->grant_page, begin)) return;
  const uint32_t most = limits_->stall_ms.load(std::memory_order_relaxed);
  const int64_t until = begin + StallBudget(&page_->stalls_paid_at).take(kContextStall, most, begin);
  int64_t now = begin;
  for (; now < until && others_work(page_->grant_page, now); now = monotonic_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(until - now, kLook)));
  }
  if (now == begin) return;
  count(page_->stall_waits);
  count(page_->stall_wait_ns, static_cast<uint64_t>(now - begin));
}

void UsagePageView::charge_fault() {
  const int64_t now = monotonic_ns();
  if (!others_work(page_->grant_page, now)) return;
  const uint32_t most = limits_->stall_ms.load(std::memory_order_relaxed);
  (void)StallBudget(&page_->stalls_paid_at).take(kFaultStall, most, now);
}

}  // namespace bandsaw::runner
