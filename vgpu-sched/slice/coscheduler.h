// The co-scheduler of one physical GPU: queues of calls, a planner, and the plan in force.
//
// Driven by events with explicit times; after each event the caller asks next() until there is none:
//
//   scheduler.arrival(call, now);
//   while (auto issue = scheduler.next(now)) send(*issue);
//
// A plan stays in force until the set of ready kernels changes, until the last block of one of its kernels is issued
// (Kernelet, section 3.1: sizes of grid slices stay until either kernel finishes), or until its pair proves to be
// slower than one after the other. A bounded number of grid slices of each kernel is in flight.
//
// A call that is being measured (Call::alone) runs by itself. It is planned when it has waited longest of all; then
// nothing else is planned beside it.
//
// The caller tells progress() of kernels that run in persistent blocks before it tells arrival(), since the allocation
// depends on how many blocks each has left.
//
// Pure: no clock, threads, system calls. A time before an earlier one counts as the earlier one. Calls from one thread
// at a time. Owns the planner; what the planner refers to outlives it. Errors leave everything as it was.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "vgpu-sched/slice/meter.h"
#include "vgpu-sched/slice/planner.h"
#include "vgpu-sched/slice/queues.h"

namespace bandsaw::slice {

// What is to be done now.
struct Issue {
  // kGridSlice: launch these blocks. kPersistent: the kernel, which runs in persistent blocks, is to have `resident`
  // blocks on each SM from now on.
  enum class Kind : std::uint8_t { kGridSlice, kPersistent };
  Kind kind = Kind::kGridSlice;
  Sharing sharing = Sharing::kSpace;
  KernelId kernel = 0;
  Range range;
  int resident = 0;  // blocks on each SM that the plan counts on; 0: as many as the hardware takes
};

class CoScheduler {
 public:
  // `meter`, where there is one, is told of pairs and of their grid slices; it outlives this.
  explicit CoScheduler(std::unique_ptr<Planner> planner, SpeedMeter* meter = nullptr)
      : planner_(std::move(planner)), meter_(meter) {}

  // As Queues' of the same names.
  [[nodiscard]] Error arrival(const Call& call, Time now) { return queues_.arrival(call, later(now)); }
  [[nodiscard]] Error copies_done(KernelId id, Time now) { return queues_.copies_done(id, later(now)); }
  [[nodiscard]] Error progress(KernelId id, Blocks done) { return queues_.progress(id, done); }
  // So many blocks of the grid had been claimed at `seen` by `resident` persistent blocks on each SM. `seen` may be of
  // another clock than `now`.
  [[nodiscard]] Error claimed(KernelId id, Blocks done, int resident, Time seen);
  [[nodiscard]] Error grid_slice_done(KernelId id, Blocks first, Time now, bool* over = nullptr);
  [[nodiscard]] Error departure(KernelId id, Time now) { return queues_.departure(id, later(now)); }
  // The kernel has no blocks left to issue, whatever was issued of it here: as its blocks end, others may have their
  // room.
  void issued_all(KernelId id) { (void)queues_.take(id, ~Blocks{0}); }
  // The next call of next() makes a new plan: something that plans depend on has changed, such as a profile.
  void replan() { planned_ = false; }

  std::optional<Issue> next(Time now);

  const Queues& queues() const { return queues_; }
  const Plan& plan() const { return plan_; }
  std::uint64_t plans() const { return plans_; }

 private:
  Time later(Time now) { return now_ = std::max(now, now_); }
  void make_plan();
  std::span<const ReadyKernel> choose_from();
  void review_pair(bool measured);
  std::optional<Issue> issue(const Part& part);

  std::unique_ptr<Planner> planner_;
  SpeedMeter* meter_;
  Queues queues_;
  Plan plan_;
  std::vector<ReadyKernel> chosen_;
  bool planned_ = false;
  std::uint64_t planned_at_ = 0;  // Queues::changes()
  std::uint64_t plans_ = 0;
  Time now_ = 0;
};

}  // namespace bandsaw::slice
