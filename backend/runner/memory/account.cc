#include "backend/runner/memory/account.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>

namespace bandsaw::runner {

AccountView::AccountView() : own_(std::make_unique<Account>()), account_(own_.get()), slot_(&own_->slots[0]) {
  account_->memory_share.store(std::numeric_limits<int64_t>::max());
}

AccountView::~AccountView() {
  if (account_ != own_.get()) munmap(account_, sizeof(Account));
}

Status AccountView::map(const UniqueFd& fd, uint32_t slot) {
  struct stat info {};
  if (slot >= kAccountSlots) return Status::error(EINVAL, "account slot {} of {}", slot, kAccountSlots);
  if (fstat(fd.get(), &info) != 0) return Status::system("account");
  if (static_cast<uint64_t>(info.st_size) < sizeof(Account)) return Status::error(EINVAL, "the account is too short");
  void* mapped = mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Status::system("mapping the account");
  account_ = static_cast<Account*>(mapped);
  slot_ = &account_->slots[slot];
  return {};
}

uint64_t AccountView::share() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, account_->memory_share.load(std::memory_order_relaxed)));
}

uint64_t AccountView::used() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, account_->memory_used.load(std::memory_order_relaxed)));
}

// A runner may die between the two additions, and then the session gives back what its slot says. So the sum never
// says less than the slots: it grows first and shrinks last. The other way round, a death would lend the same bytes
// twice.
bool AccountView::charge(int64_t bytes) {
  if (bytes > 0) {
    // Compare and swap, so that two processes of one virtual GPU cannot pass the share together.
    const int64_t share = account_->memory_share.load(std::memory_order_relaxed);
    int64_t used = account_->memory_used.load(std::memory_order_relaxed);
    do {
      if (used > share || bytes > share - used) return false;
    } while (!account_->memory_used.compare_exchange_weak(used, used + bytes));
    slot_->memory_bytes.fetch_add(bytes);
  } else {
    slot_->memory_bytes.fetch_add(bytes);
    account_->memory_used.fetch_add(bytes);
  }
  return true;
}

void AccountView::release_all() {
  const int64_t held = slot_->memory_bytes.exchange(0);
  account_->memory_used.fetch_sub(held);
}

void AccountView::count_time(int engine, uint64_t nanoseconds, uint64_t bytes) {
  count(engine == 0 ? slot_->compute_ns : slot_->copy_ns, nanoseconds);
  count(engine == 0 ? slot_->bytes_device : engine == 1 ? slot_->bytes_in : slot_->bytes_out, bytes);
}

}  // namespace bandsaw::runner
