// The co-scheduler of one physical GPU: queues of calls, a planner, and the plan in force.
//
// Driven by events with explicit times; after each event the caller asks next() until there is none:
//
//   scheduler.arrival(call, now);
//   while (auto issue = scheduler.next(now)) send(*issue);
//
// A plan is kept until the set of ready kernels changes or one of its kernels has its last block issued (Kernelet,
// section 3.1: sizes of grid slices stay until either kernel finishes), or the two prove to be slower than one after
// the other. Of each kernel a bounded number of grid slices is in flight.
//
// Calls that are measured (Call::alone) have their turn by themselves: when one has waited longest, nothing else is
// planned, and before that it is not.
//
// Of kernels in persistent blocks the caller tells progress() before it tells of an arrival, so that the
// allocation knows what each has left.
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
  // The same of persistent blocks, so many on each SM, as seen at `seen`, which may be another clock's.
  [[nodiscard]] Error claimed(KernelId id, Blocks done, int resident, Time seen);
  [[nodiscard]] Error grid_slice_done(KernelId id, Blocks first, Time now, bool* over = nullptr);
  [[nodiscard]] Error departure(KernelId id, Time now) { return queues_.departure(id, later(now)); }
  // All its blocks are under way, whatever was issued of it here: others may have the room of those that end.
  void issued_all(KernelId id) { (void)queues_.take(id, ~Blocks{0}); }
  // Plans anew with the next call of next(): something else has changed, as a measured profile.
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
