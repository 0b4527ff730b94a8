// Counts what becomes of kernels that are to be cut, in this runner's slot of the account.
#pragma once

#include <mutex>
#include <string_view>

#include "backend/runner/memory/account.h"

namespace bandsaw::runner {

// Thread-safe. `account` outlives it.
class SliceStats {
 public:
  explicit SliceStats(AccountView* account) : account_(account) {}

  SliceCounters& counters() { return account_->slot().slices; }
  // One more kernel stays whole, in words for people; the caller sees to it that each is counted once.
  void refused(std::string_view kernel, std::string_view reason);

 private:
  AccountView* const account_;
  std::mutex mutex_;  // of those who look for a reason's place
};

}  // namespace bandsaw::runner
