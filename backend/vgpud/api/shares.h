// Between an administrator's words and the arbiter's: shares of a virtual GPU, the policy of a GPU, and what was used.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/gpu.h"
#include "memory/base/status.h"

namespace bandsaw {

// How a GPU is scheduled: for all its virtual GPUs.
struct PolicyChoice {
  std::string policy;  // a name that sched::make_policy knows
  std::string queues;  // "sdq": one queue for all engines; "mrq": one for each
  bool operator==(const PolicyChoice&) const = default;
};

// What an administrator chose while vgpud ran, and what the configuration said then. The choice holds until the
// configuration says something else: whoever spoke last is right.
struct StoredChoice {
  PolicyChoice chosen, configured;  // `chosen` empty: nobody chose
};

// The same about how kernels of MPS virtual GPUs are planned.
struct StoredPlanningMode {
  std::optional<PlanningMode> chosen;
  PlanningMode configured = PlanningMode::kMps;
};
PlanningMode effective_planning_mode(PlanningMode configured, const StoredPlanningMode& stored);

// The names of the policies, best first.
const std::vector<std::string>& policy_names();
// EINVAL, with the names that there are.
Status check_policy(const std::string& policy);
Status check_queues(const std::string& queues);

PolicyChoice choice_of(const ArbiterOptions& options);
// `choice` has been checked.
sched::QueueModel queue_model(const PolicyChoice& choice);
// The configured options with the stored choice, if that still holds.
ArbiterOptions effective_options(const ArbiterOptions& configured, const StoredChoice& stored);
// These with what the configuration says of the device alone.
ArbiterOptions own_options(const ArbiterOptions& common, const PhysicalDevice& device);
// On every device that has no planning mode of its own.
void set_planning_mode(const Gpus& gpus, PlanningMode mode);
// The policy on every device, but for what a device has of its own. EINVAL: there is no such policy.
Status set_policy(const Gpus& gpus, const PolicyChoice& choice);

// The same cap, reserve and priority on every engine; the copy share on both copy engines.
EngineShares engine_shares(const VgpuSpec& spec);

// Its latency bound as the arbiter takes it; 0: none.
int64_t latency_ns(const VgpuSpec& spec);
// Its deadline for kernels; 0: none.
int64_t kernel_deadline_ns(const VgpuSpec& spec);
// What the arbiter is to know of one of its virtual GPUs beside the shares; `all`: the virtual GPUs of the host.
void tell_arbiter(const Gpu& gpu, const VgpuSpec& spec, std::span<const VgpuSpec> all);
// Has it scheduled. One that the arbiter does not take is not scheduled, which is logged and better than not started.
void add_to_arbiter(const Gpu& gpu, const VgpuSpec& spec, std::span<const VgpuSpec> all);

// What one whose programs may allocate more than it has of its device may lend of that while it has no work: as far as
// `host_memory`, of which the others have some too, has room for it. Nothing: it does not swap, or is suspended.
std::optional<MemoryTerms> memory_terms(const VgpuSpec& spec, std::span<const VgpuSpec> all, uint64_t host_memory);
// Tells all arbiters; `lend`: false: nobody lends anything.
void tell_memory(const Gpus& gpus, std::span<const VgpuSpec> all, uint64_t host_memory, bool lend);

nlohmann::json to_json(const ArbiterOptions& options);
// {"compute": {busy_ns, wait_ns, grants, overruns, waiting, in_flight}, "copy_in": ..., "copy_out": ...}
nlohmann::json to_json(const VgpuUse& use);
// {compute_ns, copy_ns}: GPU time that the virtual GPU had itself. What runners count holds the time of others too,
// where the hardware divides it, so it counts only where nothing is scheduled (`use` is empty); null where nobody says.
nlohmann::json used_time(const std::optional<VgpuUse>& use, const nlohmann::json& live);

}  // namespace bandsaw
