// The usage page of one virtual GPU, as its session sees it: slots of living runners, sums of the dead ones.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/control/object_limits.h"
#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// One slot's counters, copied at one moment.
struct Usage {
  int64_t memory_bytes = 0, swapped_bytes = 0;
  uint64_t swapped_in = 0, swapped_out = 0;
  uint64_t swap_moves = 0, swap_wait_ns = 0, swap_move_ns = 0;
  uint64_t swap_made = 0, swap_mapped = 0;
  uint64_t calls = 0, launches = 0;
  uint64_t bytes_in = 0, bytes_out = 0, bytes_device = 0;
  uint64_t compute_ns = 0, copy_ns = 0;
  uint64_t errors = 0;
  uint32_t sticky = 0;
  struct Slicing {
    uint64_t kernels = 0, sliceable = 0, launches = 0, grid_slices = 0, fallbacks = 0;
    std::map<std::string, uint64_t> refused;  // kernels by reason
  } slicing;

  uint64_t on_device() const { return static_cast<uint64_t>(std::max<int64_t>(memory_bytes - swapped_bytes, 0)); }
};

nlohmann::json to_json(const Usage& usage);

// What one slot's runner has used of the engines so far; zeros where the slot is free.
struct EngineUse {
  uint64_t compute_ns = 0, copy_ns = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  bool computes = false;  // kernels of it are on the device now
};

// What programs have asked for so far, and whether the device still has some of it.
struct Activity {
  uint64_t calls = 0;
  bool under_way = false;
};

class UsagePageOwner {
 public:
  static Result<UsagePageOwner> open(uint64_t memory_share, uint64_t resident = UINT64_MAX);
  UsagePageOwner(UsagePageOwner&& other) noexcept;
  ~UsagePageOwner();

  int fd() const { return fd_.get(); }
  // Of the limits page, which nobody else can map for writing.
  int limits_fd() const { return limits_fd_.get(); }
  // An eventfd that runners write when the arbiter is to read their gates.
  int doorbell() const { return doorbell_.get(); }
  // There is no arbiter any more: runners that wait at a gate may go on.
  void open_gates();
  // A zeroed slot, or -1 when all are taken.
  int take_slot();
  // Of its gates, among those of this virtual GPU: higher goes first.
  void set_priority(int slot, int32_t priority);
  // After the runner's death: its memory is free again, its counters join the sums.
  void give_back(int slot);
  unsigned taken() const { return taken_count_; }
  // Called when a slot is taken and none was.
  void on_use(std::function<void()> begins) { use_begins_ = std::move(begins); }

  // Memory that belongs to no runner: counts against the share until it is given back. False: over the share, or over
  // what may lie on the device.
  bool charge(uint64_t bytes);
  void uncharge(uint64_t bytes);
  // Memory of a slot's runner, while that stands still.
  bool charge(int slot, uint64_t bytes);
  void uncharge(int slot, uint64_t bytes);

  Usage usage(int slot) const;
  Usage total() const;  // dead and living; sticky is 0
  EngineUse engine_use(int slot) const;
  Activity activity() const;
  int64_t memory_used() const { return page_->memory_used; }
  int64_t memory_used(int slot) const { return page_->slots[slot].memory_bytes; }
  // `resident`: bytes of it that lie on the device for certain; others may lie in host memory.
  void set_memory_share(uint64_t bytes, uint64_t resident = UINT64_MAX);
  // Bytes that may lie on the device now: the reservation, with what is borrowed or without what is lent.
  uint64_t resident() const;
  // What the arbiter has ordered. Where it is less, runners hear of it at once, those too that are
  // idle.
  const MemoryOrder& order() const { return order_; }
  void set_order(const MemoryOrder& order);
  // An eventfd that wakes the slot's runner, until the slot is given back.
  void set_kick(int slot, int kick) { kicks_[slot] = kick; }
  // A runner asks others for room on the device.
  void kick_all();
  uint64_t memory_share() const { return share_; }
  // What it was at most: programs keep what they have when it becomes smaller.
  uint64_t largest_share() const { return largest_share_; }
  void set_limits(const Limits& limits);
  const Limits& limits() const { return limits_; }
  // How much is held of each; of objects as the runners say.
  std::array<uint64_t, kLimitedCount> held() const;

  // usage_page_stalls.cc: deeds that stop everybody on the GPU (stall_budget.h). Off at first, for devices where none
  // does.
  void pace_stalls(bool paces);
  // For a runner that makes a context: 0, and it is paid for; or how long it is too early.
  std::chrono::nanoseconds begin_program();
  // A fault is paid afterwards: how long until a further program may have the GPU.
  std::chrono::nanoseconds stall_debt() const;
  // How often programs had to wait for that, or for a further context, and for how long.
  struct StallWaits {
    uint64_t count = 0, ns = 0;
  };
  StallWaits stall_waits() const { return {page_->stall_waits, page_->stall_wait_ns}; }

 private:
  UsagePageOwner(UniqueFd fd, UniqueFd limits_fd, UniqueFd doorbell, UsagePage* page, LimitsPage* limits_page)
      : fd_(std::move(fd)),
        limits_fd_(std::move(limits_fd)),
        doorbell_(std::move(doorbell)),
        page_(page),
        limits_page_(limits_page) {}
  void clear_gates(uint32_t slot);
  void write_memory_limits();
  uint32_t stall_ms() const;
  uint64_t stall_owed_ms() const;
  UniqueFd fd_, limits_fd_, doorbell_;
  UsagePage* page_;
  LimitsPage* limits_page_;
  std::array<bool, kUsageSlots> taken_{};
  unsigned taken_count_ = 0;
  uint64_t share_ = 0, largest_share_ = 0, resident_ = 0;  // bytes
  int64_t charged_ = 0;                                    // bytes that belong to no runner
  MemoryOrder order_;
  std::map<int, int> kicks_;  // by slot
  Limits limits_{};
  bool paces_ = false;
  int64_t waits_since_ = 0;  // since when no program may begin; 0: one may
  Usage past_;
  std::function<void()> use_begins_;
};

}  // namespace bandsaw
