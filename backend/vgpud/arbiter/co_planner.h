// Chooses which long kernel of the MPS virtual GPUs gets its next grid slice now, and of how many blocks. It stands
// between the gates, at which runners describe their kernels (backend/control/kernel_descriptor.h), and the
// co-scheduler of vgpu-sched/slice.
//
// Driven by the arbiter, in its time. A kernel takes part while its asks are let through by its engine queue, is left
// out while they are not, and is forgotten when it neither runs nor asks. What the co-scheduler issues for a kernel
// that does not ask yet is granted with its next ask. Nobody waits for a plan that plans nothing: while the engine
// would stand idle, who asks is granted.
//
// What descriptors say is bounded here, and used for planning only. Bounded: kKernelsMost kernels and kShapesMost
// shapes for each owner. Pure: no clock, threads, system calls; calls from one thread at a time.
// Source: Kernelet, section 3; the plans are those of vgpu-sched/slice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/control/gate_link.h"
#include "backend/control/kernel_descriptor.h"
#include "backend/control/sharing.h"
#include "backend/vgpud/arbiter/planner_source.h"
#include "vgpu-sched/slice/coscheduler.h"
#include "vgpu-sched/slice/profiler.h"
#include "vgpu-sched/slice/short_work.h"

namespace bandsaw {

struct PlanOptions {
  slice::GpuModel gpu;
  slice::ModelOptions model;
  slice::PlannerOptions planner;
  MakePlannerSource planners;  // null: production's
  bool take_sms = false;       // who asks for room gets SMs of its own, where kernels can leave single ones
};

// For people; sums since the mode was chosen.
struct PlanState {
  bool planned = false;                      // by a planner that looks at descriptors
  uint64_t plans = 0, pairs = 0, alone = 0;  // plans; those of two or more kernels; those of one
  uint64_t grants = 0;                       // grid slices that were planned
  uint64_t resizes = 0;                      // of persistent blocks
  uint64_t sm_requests = 0;                  // kernels were told to leave single SMs
  uint64_t observed = 0;                     // speeds of pairs, measured while they ran
  uint64_t room_requests = 0;                // short work found no room, and others were to make some
  uint64_t foreseen = 0;                     // forecasts of whether short work finds room
  uint64_t judged = 0;                       // of these, compared with the time that it took
  double forecast_error = 0;                 // of the last of them, relative
  uint64_t refused = 0;                      // descriptors that made no sense
  uint64_t unplanned = 0;                    // granted because the plan would have left the engine idle
  uint64_t shapes = 0, measured_shapes = 0;
  struct Part {
    std::string vgpu, kernel;
    uint64_t grid_slice = 0;  // blocks; 0: all that are left
    int resident = 0;         // on each SM; 0: as many as fit
  };
  std::vector<Part> plan;        // in force; `vgpu` is filled in by the arbiter
  std::vector<uint64_t> owners;  // of its parts
};

class CoPlanner {
 public:
  using Time = slice::Time;
  using Place = uint64_t;  // a gate; chosen by the caller
  using Owner = uint64_t;  // the virtual GPU that it belongs to; chosen by the caller
  static constexpr Time kNever = INT64_MAX;
  static constexpr size_t kShapesMost = 64;
  static constexpr size_t kKernelsMost = 16;

  struct Grant {
    Place place = 0;
    uint64_t number = 0;  // 0: no grid slice, but other residency for one that runs
    uint64_t blocks = 0;  // 0: as the runner likes
    uint32_t resident = 0;
    uint32_t leave_sms = 0;  // that its persistent blocks are to leave
  };

  struct ShortWork {
    slice::ShortWorkForecast forecast;
    Time takes = 0;  // from its grant to its end, with what was learnt; 0: not known
    int sms = 0;     // that would hold all of its blocks at once, where kernels can leave single ones
  };

  // Null: the mode needs no descriptors.
  static std::unique_ptr<CoPlanner> make(PlanningMode mode, const PlanOptions& options);

  // The gate asks for a time slice for the kernel that it describes, and its engine queue lets the ask through. False:
  // the descriptor cannot be planned with, and the ask is granted as that of short work.
  bool ask(Place place, Owner owner, const KernelDescriptor& descriptor, Time now);
  // The gate asks, and its engine queue holds the ask back.
  void hold_back(Place place, Time now);
  // Takes in what the gate describes now, whether it asks or not: a call and how far it is. No call: nothing more will
  // be asked for the last one.
  void snapshot(Place place, const KernelDescriptor& descriptor, Time now);
  // A granted grid slice is over. `busy`: the engine's time for it, 0 if not known; `alone`: nothing else ran
  // meanwhile.
  void grid_slice_done(Place place, uint64_t number, Time busy, bool alone, Time now);
  // Short work runs beside what is planned. What it meets, by its descriptor (`brief`); none: that makes no sense.
  // `open`: what others have begun at open gates.
  std::optional<ShortWork> foresee(Owner owner, const KernelDescriptor& descriptor,
                                   std::span<const KernelDescriptor> open = {});
  // It took so long. `meets`: what was forecast of it. `alone`: nothing else ran meanwhile.
  void short_work_done(Owner owner, uint64_t shape, const ShortWork& meets, Time took, bool alone);
  // leave_room(): some found no room on the SMs. From now on the kernel with most persistent blocks leaves it the room
  // of so many of them on each SM, or, where that is configured and its runner can, so many SMs of its own, for as long
  // as short work comes. keep_room(): some has come and found room.
  void leave_room(int blocks, int sms, Time now);
  void keep_room(Time now);
  // SMs that persistent blocks which no plan has are to leave, where these can. None: others are planned; they are to
  // end, and to ask.
  std::optional<uint32_t> unplanned_leave_sms() const;
  // The part of the SMs that the owner's kernels in flight take with so many blocks as are planned; 0: none is known.
  double part_of(Owner owner) const;
  // The gate describes nothing any more; what it has in flight is forgotten.
  void gone(Place place, Time now);
  void forget_owner(Owner owner);
  // Forgets all kernels; what was measured stays.
  void clear(Time now);

  // To be called after all of the above. Each grant answers an ask; grants without a number come whenever they do.
  std::vector<Grant> run(Time now);
  // When to call run() though nothing happens.
  Time next() const;

  PlanState state() const;

 private:
  using Key = std::pair<Owner, uint64_t>;
  struct Shape {
    Shape(const KernelDescriptor& descriptor, std::string its_name)
        : described(descriptor), name(std::move(its_name)) {}

    slice::ShapeId id = slice::kNoShape;
    slice::Profiler profiler{{}};
    KernelDescriptor described;  // the last
    std::string name;
    uint32_t samples = 0;
    uint32_t users = 0;
    uint64_t used = 0;  // counts up with each use of any
  };
  struct Flying {
    uint64_t number = 0;
    slice::Range range;
  };
  struct Kernel {
    slice::KernelId id = 0;  // 0: it takes no part
    Key shape{};
    KernelDescriptor descriptor;
    bool asks = false;
    bool stays = false;  // issued as a whole: the plan sets its blocks on each SM, not its grid slices
    int resident = 0;
    uint32_t told = 0;             // the `resident` that the last grant told its runner
    uint32_t told_sms = 0;         // and `leave_sms`
    uint64_t blocks = 0;           // when it arrived
    slice::Range whole{};          // `stays`
    std::deque<slice::Range> due;  // issued, not granted
    std::deque<Flying> flying;
    Time quiet_since = 0;  // asks nothing and has nothing in flight

    bool is_persistent() const { return descriptor.variant == static_cast<uint32_t>(KernelVariant::kPersistent); }
    uint64_t done(uint64_t its_left) const { return blocks - std::min(its_left, blocks); }
    bool quiet() const { return id != 0 && !asks && flying.empty(); }
  };

  CoPlanner(PlanningMode mode, const PlanOptions& options, std::unique_ptr<PlannerSource> source);
  static bool is_sound(const KernelDescriptor& descriptor);
  slice::KernelProfile profile_of(const Shape& shape) const;
  Shape& shape_of(const Key& key, const KernelDescriptor& descriptor);
  void make_room(Owner owner);
  void drop_shape(std::map<Key, Shape>::iterator shape);
  void learn(Shape* shape);
  void measure(Kernel* kernel, uint64_t blocks, Time busy, Time now);

  bool arrive(Place place, Kernel* kernel, Time now);
  void leave(Kernel* kernel, Time now);
  void see(const Kernel& kernel, const KernelDescriptor& descriptor);
  void forget(Kernel* kernel);
  uint64_t left_of(const Kernel& kernel) const;
  void issue(Time now);
  void count_plan();
  uint32_t resident_of(const Kernel& kernel) const;
  bool makes_way(const Kernel& kernel) const;
  int sms_for(uint64_t blocks, const slice::BlockNeeds& needs, std::span<const KernelDescriptor> open) const;
  uint32_t leave_sms_of(const Kernel& kernel) const;
  Time room_for(Time now) const;
  int blocks_on_sm(const Kernel& kernel) const;
  void resize(std::vector<Grant>* grants);
  void grant(std::vector<Grant>* grants);
  Grant give(Place place, Kernel* kernel);
  bool has_room(Owner owner) const;
  bool stands_idle() const;
  void answer(Time now, std::vector<Grant>* grants);
  void drop_quiet(Time since, Time now);
  std::vector<slice::RunningKernel> running() const;
  std::optional<slice::RunningKernel> at_open_gate(const KernelDescriptor& descriptor) const;

  const PlanOptions options_;
  slice::CoRunModel model_;
  const std::unique_ptr<PlannerSource> source_;
  slice::SpeedMeter meter_;
  slice::CoScheduler scheduler_;
  std::map<Key, Shape> shapes_;
  std::map<Place, Kernel> kernels_;
  std::unordered_map<slice::KernelId, Place> places_;
  slice::ShortWorkTimes short_work_;
  uint32_t leaves_room_ = 0;  // persistent blocks on each SM
  uint32_t leaves_sms_ = 0;   // instead, of kernels that can leave single SMs
  Time room_until_ = 0;       // then
  Time short_work_at_ = 0;    // the end of the last of it
  slice::KernelId next_kernel_ = 1;
  uint64_t next_number_ = 1, uses_ = 0, plans_seen_ = 0;
  PlanState counts_;
};

}  // namespace bandsaw
