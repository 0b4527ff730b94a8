// This runner's slot in the account of its virtual GPU (backend/control/runner_link.h).
#pragma once

#include <cstdint>
#include <memory>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// Counters are relaxed: they are read for people, and order nothing. Thread-safe once mapped.
class AccountView {
 public:
  // A private account without a limit, until the session's is mapped.
  AccountView();
  ~AccountView();
  AccountView(const AccountView&) = delete;
  AccountView& operator=(const AccountView&) = delete;

  // Call before any work is done.
  Status map(const UniqueFd& fd, uint32_t slot);

  AccountSlot& slot() { return *slot_; }
  GateBoard& board() { return account_->board; }
  uint64_t share() const;
  uint64_t used() const;
  // Reserves or gives back memory; false: the processes of this virtual GPU together would pass the share.
  bool charge(int64_t bytes);
  // Gives back what this process holds; for the end.
  void release_all();
  void count_time(int engine, uint64_t nanoseconds, uint64_t bytes);

 private:
  std::unique_ptr<Account> own_;
  Account* account_ = nullptr;
  AccountSlot* slot_ = nullptr;
};

inline void count(std::atomic<uint64_t>& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace bandsaw::runner
