// Counts what becomes of kernels that are to be cut, in this runner's slot of the usage page.
#pragma once

#include <mutex>
#include <string_view>

#include "backend/runner/memory/usage_page_view.h"

namespace bandsaw::runner {

// Thread-safe. `usage_page` outlives it.
class SlicingStats {
 public:
  explicit SlicingStats(UsagePageView* usage_page) : usage_page_(usage_page) {}

  SlicingCounters& counters() { return usage_page_->slot().slicing; }
  // One more kernel stays whole, in words for people; the caller sees to it that each is counted once.
  void refused(std::string_view kernel, std::string_view reason);

 private:
  UsagePageView* const usage_page_;
  std::mutex mutex_;  // of those who look for a reason's place
};

}  // namespace bandsaw::runner
