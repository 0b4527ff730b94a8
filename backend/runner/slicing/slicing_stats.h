// Counts what becomes of kernels that are to be cut, in this runner's slot of the usage page.
#pragma once

#include <string>
#include <string_view>

#include "backend/runner/memory/usage_page_view.h"
#include "backend/runner/slicing/known_kernel.h"

namespace bandsaw::runner {

// For the record loop's thread. `usage_page` outlives it.
class SlicingStats {
 public:
  explicit SlicingStats(UsagePageView* usage_page) : usage_page_(usage_page) {}

  SlicingCounters& counters() { return usage_page_->slot().slicing; }
  // Each counts a kernel once: it was to be cut; a variant of it is there; it stays whole, for a reason in words for
  // people (once for each reason, and logged).
  void met(KnownKernel& kernel);
  void rewritten(KnownKernel& kernel);
  void refused(KnownKernel& kernel, const std::string& reason);
  // A call of the guest process failed.
  void failed() { count(usage_page_->slot().errors); }

 private:
  void add(std::string_view reason);

  UsagePageView* const usage_page_;
};

}  // namespace bandsaw::runner
