#include "backend/runner/execution/context_pace.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/control/stall_budget.h"
#include "memory/base/clock.h"

namespace bandsaw::runner {
namespace {

constexpr int64_t kLook = 10'000'000;  // ns: how often it is seen whether others still have work

}  // namespace

void pace_context(UsagePageView* usage_page) {
  const GrantPage& page = usage_page->grant_page();
  const auto paced = [&page](int64_t now) { return page.no_arbiter == 0 && others_work(page.others_worked_at, now); };
  const int64_t begin = monotonic_ns();
  if (!paced(begin)) return;
  const int64_t until = begin + usage_page->stalls().take(kContextStall, usage_page->stall_ms(), begin);
  int64_t now = begin;
  for (; now < until && paced(now); now = monotonic_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(until - now, kLook)));
  }
  if (now > begin) usage_page->count_stall_wait(static_cast<uint64_t>(now - begin));
}

}  // namespace bandsaw::runner
