// This runner's slot in the usage page of its virtual GPU (backend/control/runner_link.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/control/object_limits.h"
#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"
#include "memory/swap/neighbours.h"

namespace bandsaw::runner {

// Counters are relaxed: they are read for people, and order nothing. Thread-safe once mapped.
class UsagePageView : public ObjectQuota {
 public:
  // A private usage page without a limit, until the session's is mapped.
  UsagePageView();
  ~UsagePageView() override;
  UsagePageView(const UsagePageView&) = delete;
  UsagePageView& operator=(const UsagePageView&) = delete;

  // `limits`: the limits page. Call before any work is done.
  Status map(const UniqueFd& fd, uint32_t slot, const UniqueFd& limits);

  UsageSlot& slot() { return *slot_; }
  GrantPage& grant_page() { return page_->grant_page; }
  uint64_t share() const;
  uint64_t used() const;
  // Reserves or gives back memory; false: the processes of this virtual GPU together would pass the share.
  bool charge(int64_t bytes);
  // Part of the share may lie in host memory instead of on the device.
  bool swaps() const { return limits_->memory_swap.load(std::memory_order_relaxed) != 0; }
  // Bytes that may lie on the device; only where swaps().
  uint64_t resident() const;
  // Bytes of it that this virtual GPU has whenever it has work; what resident() will be soon, if that is more: others
  // give memory up.
  uint64_t reserved() const;
  uint64_t coming() const;
  // Bytes that are on the device beyond resident(): others want them.
  uint64_t excess() const;
  // Bytes of the reservation that others may have, by what the host has room for; 0: nobody else is there.
  uint64_t lendable() const;
  // Host memory that may be kept for the next moves: counts until it is given back (below 0). False: no more. Some may
  // always.
  bool keep(int64_t bytes);
  // Tells vgpud that there is work, and whether it finds no room on the device. `now`: CLOCK_MONOTONIC, ns. True: it
  // should hear of it now.
  bool note_work(int64_t now, bool finds_no_room);
  // What this process has on the device that may leave it.
  void set_movable(uint64_t bytes) { slot_->movable.store(static_cast<int64_t>(bytes), std::memory_order_relaxed); }
  // Bytes that this process wants to be free on the device; 0: no more. kMust: for what can lie nowhere else.
  enum Ask { kWork, kMust };
  void ask(Ask what, uint64_t bytes);
  // Another process of this virtual GPU is to give up memory for that.
  bool somebody_gives(Ask what, int64_t now) const;
  // Bytes that this process is to give up, because others ask.
  uint64_t asked_of_this(int64_t now) const;
  bool within_share(uint64_t bytes) const { return used() <= share() && bytes <= share() - used(); }
  // Bytes that may come to the device now.
  uint64_t room_on_device() const;
  // As charge(), for host memory instead. It counts against the share too.
  bool charge_swapped(int64_t bytes);
  // Bytes that count on the device count in host memory from now on, or the other way round. False: no room there.
  bool move(uint64_t bytes, bool to_device);
  bool hold(Limited kind) override;
  void let_go(Limited kind) override;
  // Gives back what this process holds; for the end.
  void release_all();
  // Takes the price of a further context from the virtual GPU's budget (stall_budget.h), and sleeps until it may be
  // made, or nobody else has work. By any thread, as charge_fault().
  void pace_context();
  // Takes the price of a fault, which has happened.
  void charge_fault();
  void count_time(int engine, uint64_t nanoseconds, uint64_t bytes);

 private:
  bool add_used(int64_t bytes);
  bool add_swapped(int64_t bytes);
  int64_t on_device() const;
  std::vector<swap::Neighbour> neighbours(int64_t now) const;
  std::unique_ptr<UsagePage> own_;
  std::unique_ptr<LimitsPage> own_limits_;
  UsagePage* page_ = nullptr;
  const LimitsPage* limits_ = nullptr;
  UsageSlot* slot_ = nullptr;
  uint32_t slot_index_ = 0;
};

inline void count(std::atomic<uint64_t>& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace bandsaw::runner
