#include "backend/vgpud/api/shares.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/vgpud/arbiter/partitions.h"
#include "memory/base/log_about.h"

namespace bandsaw {
namespace {

constexpr const char* kSdq = "sdq";
constexpr const char* kMrq = "mrq";

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {"band+", "band", "credit", "fifo"};
  return names;
}

Status check_policy(const std::string& policy) {
  const auto& names = policy_names();
  if (std::find(names.begin(), names.end(), policy) != names.end()) return {};
  return Status::error(EINVAL, "no policy '{}'; there are {}", policy.substr(0, 64), fmt::join(names, ", "));
}

Status check_queues(const std::string& queues) {
  if (queues == kSdq || queues == kMrq) return {};
  return Status::error(EINVAL, "no queues '{}'; there are mrq (a queue for each engine) and sdq (one for all)",
                       queues.substr(0, 64));
}

PolicyChoice choice_of(const ArbiterOptions& options) {
  return {options.policy, options.model == sched::QueueModel::kSdq ? kSdq : kMrq};
}

sched::QueueModel queue_model(const PolicyChoice& choice) {
  return choice.queues == kSdq ? sched::QueueModel::kSdq : sched::QueueModel::kMrq;
}

ArbiterOptions effective_options(const ArbiterOptions& configured, const StoredChoice& stored) {
  ArbiterOptions options = configured;
  if (stored.chosen.policy.empty() || stored.configured != choice_of(configured)) return options;
  options.policy = stored.chosen.policy;
  options.model = queue_model(stored.chosen);
  return options;
}

ArbiterOptions own_options(const ArbiterOptions& common, const PhysicalDevice& device) {
  PolicyChoice choice = choice_of(common);
  if (!device.policy.empty()) choice.policy = device.policy;
  if (!device.queues.empty()) choice.queues = device.queues;
  ArbiterOptions options = common;
  options.policy = choice.policy;
  options.model = queue_model(choice);
  options.copies_beside = device.kind == "cuda";
  return options;
}

void set_planning_mode(const Gpus& gpus, PlanningMode mode) {
  for (const Gpu& gpu : gpus.all()) gpu.arbiter->set_planning_mode(gpu.device.planning.value_or(mode));
}

// All of them know the same policies, so none refuses what another took.
Status set_policy(const Gpus& gpus, const PolicyChoice& choice) {
  for (const Gpu& gpu : gpus.all()) {
    const PhysicalDevice& device = gpu.device;
    const PolicyChoice own{device.policy.empty() ? choice.policy : device.policy,
                           device.queues.empty() ? choice.queues : device.queues};
    Status status = gpu.arbiter->set_policy(own.policy, queue_model(own));
    if (!status.ok()) return status;
  }
  return {};
}

PlanningMode effective_planning_mode(PlanningMode configured, const StoredPlanningMode& stored) {
  return stored.chosen && stored.configured == configured ? *stored.chosen : configured;
}

EngineShares engine_shares(const VgpuSpec& spec) {
  const auto share = [&spec](uint32_t percent) {
    return sched::Share{.percent = static_cast<int>(percent),
                        .reservation = static_cast<int>(spec.reserve),
                        .cap = static_cast<int>(spec.cap),
                        .priority = spec.priority};
  };
  return {share(spec.compute), share(spec.copy), share(spec.copy)};
}

int64_t latency_ns(const VgpuSpec& spec) { return int64_t{spec.latency_us} * 1000; }

int64_t kernel_deadline_ns(const VgpuSpec& spec) { return int64_t{spec.kernel_deadline_ms} * 1'000'000; }

void tell_arbiter(const Gpu& gpu, const VgpuSpec& spec, std::span<const VgpuSpec> all) {
  gpu.arbiter->set_sharing(spec.name, spec.sharing);
  gpu.arbiter->set_latency(spec.name, latency_ns(spec));
  gpu.arbiter->set_kernel_deadline(spec.name, kernel_deadline_ns(spec));
  gpu.arbiter->set_sm_part(spec.name, own_part(spec, all, gpu.device));
}

void add_to_arbiter(const Gpu& gpu, const VgpuSpec& spec, std::span<const VgpuSpec> all) {
  if (Status status = gpu.arbiter->add(spec.name, engine_shares(spec)); !status.ok()) {
    log::error(log::About{spec.name, spec.device}, "the arbiter does not take it, and its shares are not enforced: {}",
               status.message());
  }
  tell_arbiter(gpu, spec, all);
}

// A small part stays: what its programs cannot do without on the device. What nobody there could borrow takes no room.
std::optional<MemoryTerms> memory_terms(const VgpuSpec& spec, std::span<const VgpuSpec> all, uint64_t host_memory) {
  if (swap_memory(spec) == 0 || spec.suspended) return std::nullopt;
  uint64_t given = 0, lenders = 1, here = 0;
  for (const VgpuSpec& other : all) {
    given += host_swap_memory(other);
    if (other.name == spec.name || swap_memory(other) == 0 || other.suspended) continue;
    ++lenders;
    here += other.device == spec.device;
  }
  const uint64_t reserved = reserved_memory(spec), free = host_memory > given ? host_memory - given : 0;
  return MemoryTerms{spec.memory, reserved, here == 0 ? 0 : std::min(reserved / 8 * 7, free / lenders)};
}

void tell_memory(const Gpus& gpus, std::span<const VgpuSpec> all, uint64_t host_memory, bool lend) {
  for (const VgpuSpec& spec : all) {
    auto terms = memory_terms(spec, all, host_memory);
    if (terms && !lend) terms->lendable = 0;
    if (const Gpu* gpu = gpus.of(spec)) gpu->arbiter->set_memory(spec.name, terms);
  }
}

nlohmann::json to_json(const ArbiterOptions& options) {
  const PolicyChoice choice = choice_of(options);
  return {{"policy", choice.policy},
          {"queues", choice.queues},
          {"quantum_us", options.quantum_ns / 1000},
          {"slice_timeout_ms", options.slice_timeout_ns / 1'000'000},
          {"depth", options.depth},
          {"period_ms", options.period_ns / 1'000'000},
          {"wait_us", options.wait_ns / 1000}};
}

nlohmann::json to_json(const VgpuUse& use) {
  nlohmann::json result;
  for (size_t i = 0; i < use.engines.size(); ++i) {
    const EngineUse& engine = use.engines[i];
    result[kEngineNames[i]] = {{"busy_ns", engine.busy_ns}, {"wait_ns", engine.wait_ns},
                               {"grants", engine.grants},   {"overruns", engine.overruns},
                               {"waiting", engine.waiting}, {"in_flight", engine.in_flight}};
  }
  return result;
}

nlohmann::json used_time(const std::optional<VgpuUse>& use, const nlohmann::json& live) {
  if (use) {
    const auto busy = [&use](Engine engine) { return use->engines[index_of(engine)].busy_ns; };
    return {{"compute_ns", busy(Engine::kCompute)}, {"copy_ns", busy(Engine::kCopyIn) + busy(Engine::kCopyOut)}};
  }
  static const nlohmann::json::json_pointer compute("/usage/compute_ns"), copy("/usage/copy_ns");
  if (!live.contains(compute) || !live.contains(copy)) return {};
  return {{"compute_ns", live[compute]}, {"copy_ns", live[copy]}};
}

}  // namespace bandsaw
