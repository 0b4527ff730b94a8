#include "backend/runner/execution/context_pace.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/control/stall_budget.h"
#include "memory/base/clock.h"

namespace bandsaw::runner {
namespace {

constexpr int64_t kLook = 10'000'000;  // ns: how often it is seen whether others still have work

bool is_paced(UsagePageView* usage_page, int64_t now) {
  const GrantPage& page = usage_page->grant_page();
  return page.no_arbiter == 0 && others_work(page.others_worked_at, now);
}

}  // namespace

void pace_context(UsagePageView* usage_page) {
  const int64_t begin = monotonic_ns();
  if (!is_paced(usage_page, begin)) return;
  const int64_t until = begin + usage_page->stalls().take(kContextStall, usage_page->stall_ms(), begin);
  int64_t now = begin;
  for (; now < until && is_paced(usage_page, now); now = monotonic_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(until - now, kLook)));
  }
  if (now > begin) usage_page->count_stall_wait(static_cast<uint64_t>(now - begin));
}

void charge_fault(UsagePageView* usage_page) {
  const int64_t now = monotonic_ns();
  if (is_paced(usage_page, now)) (void)usage_page->stalls().take(kFaultStall, usage_page->stall_ms(), now);
}

}  // namespace bandsaw::runner
