// Who uses the engines of one physical GPU when: a thread that grants time slices to the runners of all its virtual
// GPUs.
//
// A runner asks through the gate in its session's usage page (backend/control/gate_link.h); the answer is a futex wake.
// As long as one virtual GPU alone has work, its gate stands open and nobody asks. What a time slice is charged is the
// GPU time its runner measured, unless the arbiter's own clock says that it held the engine from others for longer.
//
// Threads: every method may be called from any thread; none waits for a runner.
// Source: Gdev (USENIX ATC 2012), section 5; the policies are those of vgpu-sched/policy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/sharing.h"
#include "backend/vgpud/arbiter/co_planner.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw {

struct ArbiterOptions {
  // False (policy "none"): no shares hold, and only MPS virtual GPUs ask before they begin, while their mode plans.
  bool scheduled = true;
  std::string policy = "band+";  // a name that sched::make_policy knows
  sched::QueueModel model = sched::QueueModel::kMrq;
  int64_t quantum_ns = 2'000'000;  // of GPU time that a time slice of short kernels is gathered to
  int64_t slice_timeout_ns =
      250'000'000;  // a time slice that holds an engine for longer lets others on, and is charged on
  int depth = 2;    // time slices in flight on an engine
  // The hardware serves copies of several programs in turns, and is not idle between them: with band+ all virtual GPUs
  // may have a copy engine at once.
  bool copies_beside = false;
  int64_t period_ns = 30'000'000;  // over which policies keep the shares
  int64_t wait_ns = 500'000;       // BAND's wait for a bursty neighbour
  PlanOptions plan;                // of modes that plan which kernels run beside each other
  // Of MPS virtual GPUs whose kernels are planned beside each other, each is charged its part of the blocks on the SMs;
  // false: all the same.
  bool charge_by_blocks = false;
  // Of the programs of one virtual GPU those go first whose gates say so; while these differ, all of them ask for each
  // time slice. Where the hardware switches between programs, nobody asks.
  bool process_priorities = false;
};

using EngineShares = std::array<sched::Share, kEngines>;

// Of one virtual GPU on one engine: sums since it was added, and how things stand now.
struct EngineUse {
  uint64_t busy_ns = 0;  // charged
  uint64_t wait_ns = 0;  // between asking and being granted
  uint64_t grants = 0;
  uint64_t overruns = 0;  // time slices that lasted longer than the time slice timeout
  uint32_t waiting = 0, in_flight = 0;
};

// What bounds the time that short work of a virtual GPU waits for others.
enum class LatencyMeans {
  kNothing,     // it has no bound, or nothing here keeps one
  kTimeSlices,  // the others' time slices are short while it is active
  kPriorities,  // its kernels' blocks go before those of the others that are MPS
};

struct VgpuUse {
  std::string vgpu;
  EngineShares shares{};
  std::array<EngineUse, kEngines> engines{};
  LatencyMeans latency_means = LatencyMeans::kNothing;
  // What its latency bound has cost the others since it was added: GPU time of the switches that there are more because
  // time slices are shorter. An estimate (sched::TimeSliceWeights::latency_cost); 0 where priorities keep the bound.
  uint64_t latency_cost_ns = 0;
  uint32_t channel_groups = 0;  // of its runners; the hardware's time slices of these can be set
  bool keeps_engine = false;    // also in short pauses of its program (GrantPage::keep_engine)
};

// One time slice that has ended. Times are those of CLOCK_MONOTONIC, in nanoseconds.
struct TimeSliceRecord {
  static constexpr int64_t kAllProcesses = -1;  // the gate stood open: `charged` is what all of them did until `ended`
  std::string vgpu;
  int64_t process = 0;  // the guest process's slot in its virtual GPU
  sched::Engine engine{};
  int64_t asked = 0, granted = 0, ended = 0, charged = 0;
};

// Of a virtual GPU whose programs may allocate more memory than it has of the device: bytes.
struct MemoryTerms {
  uint64_t share = 0, reserved = 0;
  uint64_t lendable = 0;  // of what is reserved, that others may have while it has no work
};

class Arbiter {
 public:
  static Result<std::unique_ptr<Arbiter>> start(const ArbiterOptions& options);
  virtual ~Arbiter() = default;

  // EEXIST, EINVAL and ENOSPC (the shares do not fit), with the reason.
  virtual Status add(const std::string& vgpu, const EngineShares& shares) = 0;
  // In force with the next time slice. ENOENT, EINVAL, ENOSPC.
  virtual Status set_shares(const std::string& vgpu, const EngineShares& shares) = 0;
  virtual void remove(const std::string& vgpu) = 0;
  // Whether it may use an engine beside other MPS ones; at first it is time-sliced. One that turns to MPS is so
  // when no program of before has used an engine that still runs.
  virtual void set_sharing(const std::string& vgpu, Sharing sharing) = 0;
  // The most that its short work is to wait for others, in nanoseconds; 0: no bound. At first it has none. VgpuUse says
  // what keeps it.
  virtual void set_latency(const std::string& vgpu, int64_t latency_ns) = 0;
  // The GPU time that one time slice of it may take to compute, in nanoseconds; 0, as at first: ever so long. A runner
  // beyond it is ended, and its program's calls return CUDA_ERROR_LAUNCH_TIMEOUT. Nothing is ended while the arbiter
  // does not schedule the virtual GPU (policy "none").
  virtual void set_kernel_deadline(const std::string& vgpu, int64_t deadline_ns) = 0;
  // The part of the GPU's SMs that it has to itself, or 0. Beside other MPS ones it then waits for nobody to
  // compute, nobody waits for it, and it is charged that part of the time that it computes.
  virtual void set_sm_part(const std::string& vgpu, double part) = 0;
  // Nothing, as at first: programs may allocate what it has of the device.
  virtual void set_memory(const std::string& vgpu, const std::optional<MemoryTerms>& terms) = 0;
  // Memory of the device that is held beyond what is reserved for those that hold it: for a moment, after one that has
  // lent some has gone.
  virtual uint64_t memory_debt() const = 0;
  // How MPS virtual GPUs are planned; kMps at first.
  virtual void set_planning_mode(PlanningMode mode) = 0;
  // How many SMs plans are made for, once the device has said it.
  virtual void set_plan_sms(int sms) = 0;
  // Another policy for all virtual GPUs of this GPU; their time slices in flight stay. EINVAL: no such policy.
  virtual Status set_policy(const std::string& policy, sched::QueueModel model) = 0;
  virtual ArbiterOptions options() const = 0;
  // Why the gates hold the shares of the compute engine; empty: the hardware's time slices do.
  virtual std::string why_gates() const = 0;
  // Whether these gates stand open, and close for who has made more than its share of progress (mps_shares.h).
  virtual bool shares_by_progress() const = 0;
  // `socket`: a connection to the session's gate socket. Its end is the session's end.
  virtual void connect(const std::string& vgpu, UniqueFd socket) = 0;

  virtual std::vector<VgpuUse> use() const = 0;
  virtual PlanState plan() const = 0;
  // Time slices are recorded between start_trace() and take_trace(); `lost` counts those that found no room.
  virtual void start_trace() = 0;
  virtual std::vector<TimeSliceRecord> take_trace(uint64_t* lost) = 0;
};

}  // namespace bandsaw
