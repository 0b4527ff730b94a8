// MPS in the control API: whether a virtual GPU shares the device in space, and how that is planned.
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/arbiter/partitions.h"
#include "memory/base/log.h"

namespace bandsaw {

using nlohmann::json;

Status Api::take_planning_mode(json* body, std::optional<PlanningMode>* mode) const {
  if (!body->is_object() || !body->contains("planning")) return {};
  const json value = (*body)["planning"];
  body->erase("planning");
  if (!value.is_string()) return Status::error(EINVAL, "'planning' must be a text");
  const auto parsed = parse_planning_mode(value.get<std::string>());
  if (!parsed.ok()) return parsed.status();
  if (is_lab_mode(parsed.value()) && !config_.lab) {
    return Status::error(EINVAL, "the planning mode '{}' is the lab's; there are {}", to_text(parsed.value()),
                         fmt::join(planning_mode_names(), ", "));
  }
  *mode = parsed.value();
  return {};
}

Status Api::set_planning_mode(PlanningMode mode) {
  if (mode == effective_planning_mode(config_.planning_mode, registry_->planning_mode())) return {};
  if (Status status = registry_->put_planning_mode({mode, config_.planning_mode}); !status.ok()) return status;
  session_manager_->set_planning_mode(mode);
  bandsaw::set_planning_mode(*gpus_, mode);
  log::info("MPS virtual GPUs are planned by {}", to_text(mode));
  return {};
}

// What whoever asks for it should know.
std::string Api::group_note(const VgpuSpec& spec) const {
  std::vector<std::string> others;
  for (const VgpuSpec& other : registry_->all()) {
    const bool shares = other.device == spec.device && other.sharing == Sharing::kMps && other.name != spec.name;
    if (shares) others.push_back("'" + other.name + "'");
  }
  const std::string who =
      spec.group.empty() ? "alone: no other virtual GPU uses its MPS daemon"
                         : fmt::format("in group '{}', with {}", spec.group,
                                       others.empty() ? "nobody else yet" : fmt::format("{}", fmt::join(others, ", ")));
  const std::string what =
      spec.group.empty()
          ? ""
          : ". They share a server: a fault on the GPU in one ends the programs of all of them, a block's "
            "uninitialised shared memory has what a block of another left there, and caches are common";
  return fmt::format("mps: '{}' is {}{}", spec.name, who, what);
}

std::vector<std::string> Api::sharing_notes(const VgpuSpec& spec, bool made) const {
  std::vector<std::string> notes;
  if (!made) {
    notes.push_back(fmt::format("sharing is {} for programs that start from now on; those that run go on as they began",
                                to_text(spec.sharing)));
  }
  if (spec.sharing != Sharing::kMps) return notes;
  const Gpu* gpu = gpus_->of(spec);
  if (!gpu || gpu->device.kind != "cuda") {
    notes.push_back(
        fmt::format("device '{}' has no contexts that MPS could join: there, mps only lets work of "
                    "different virtual GPUs run at once",
                    spec.device));
    return notes;
  }
  notes.push_back(group_note(spec));
  if (const std::string error = session_manager_->mps_error(spec.device); !error.empty()) {
    notes.push_back(fmt::format("programs on it are refused for now: {}", error));
  }
  return notes;
}

// Of modes that plan; null for the others.
json Api::plan_state(const PlanState& plan) const {
  if (!plan.planned) return {};
  json parts = json::array();
  for (const PlanState::Part& part : plan.plan) {
    parts.push_back(
        {{"vgpu", part.vgpu}, {"kernel", part.kernel}, {"grid_slice", part.grid_slice}, {"resident", part.resident}});
  }
  return {{"plans", plan.plans},
          {"pairs", plan.pairs},
          {"alone", plan.alone},
          {"granted", plan.grants},
          {"resized", plan.resizes},
          {"observed", plan.observed},
          {"room_requests", plan.room_requests},
          {"sm_requests", plan.sm_requests},
          {"foreseen", plan.foreseen},
          {"judged_forecasts", plan.judged},
          {"forecast_error_percent", static_cast<uint64_t>(100 * plan.forecast_error)},
          {"refused_descriptors", plan.refused},
          {"unplanned", plan.unplanned},
          {"shapes", plan.shapes},
          {"measured_shapes", plan.measured_shapes},
          {"parts", parts}};
}

json Api::mps_state(const Gpu& gpu) const {
  json state = session_manager_->describe_mps(gpu.device.name);
  state["partitions"] = describe_partitions(registry_->all(), gpu.device);
  state["plan"] = plan_state(gpu.arbiter->plan());
  return state;
}

// After `now` is in the registry; `asked` is what the request said.
std::vector<std::string> Api::sms_notes(const VgpuSpec& before, const VgpuSpec& now,
                                        std::optional<uint32_t> asked) const {
  std::vector<std::string> notes;
  const Gpu* gpu = gpus_->of(now);
  if (!gpu) return notes;
  const PhysicalDevice& device = gpu->device;
  if (asked && *asked != now.sms) {
    notes.push_back(fmt::format("{} SMs are made {}: device '{}' gives them out in groups of {}", *asked, now.sms,
                                device.name, device.sm_step));
  }
  if (before.sms == now.sms) return notes;
  if (now.sms > 0) {
    const SmPart part = sm_part(now, registry_->all(), device);
    notes.push_back(
        fmt::format("{} are its own, and it does not wait for others there; those that are time-sliced still "
                    "take turns with all of the GPU",
                    sms_text(part, device)));
  }
  notes.emplace_back(
      "SMs are given anew for programs that start from now on, on all MPS virtual GPUs; those that run keep "
      "theirs until they end, and may share SMs with new ones until then");
  return notes;
}

}  // namespace bandsaw
