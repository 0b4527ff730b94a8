// Latency bounds in the control API: what keeps one, and what an administrator should know who set one.
#include <fmt/format.h>

#include "backend/control/mps_priority.h"
#include "backend/vgpud/api/api.h"

namespace bandsaw {
namespace {

const char* to_text(LatencyMeans means) {
  switch (means) {
    case LatencyMeans::kTimeSlices:
      return "time-slices";
    case LatencyMeans::kPriorities:
      return "priorities";
    case LatencyMeans::kNothing:
      break;
  }
  return "nothing";
}

}  // namespace

// The software device runs blocks as they come: there only gates hold others back, and they know no bound.
LatencyMeans Api::latency_means(const VgpuSpec& spec) const {
  const Gpu* gpu = gpus_->of(spec);
  if (!gpu || gpu->device.kind != "cuda") return LatencyMeans::kNothing;
  const auto use = use_of(spec);
  return use ? use->latency_means : LatencyMeans::kNothing;
}

nlohmann::json Api::latency_state(const VgpuSpec& spec) const {
  const auto use = use_of(spec);
  return {{"kept_by", to_text(latency_means(spec))},
          {"least_us", least_latency_us(spec.sharing)},
          {"cost_us", use ? use->latency_cost_ns / 1000 : 0}};
}

std::vector<std::string> Api::latency_notes(const VgpuSpec& before, const VgpuSpec& now) const {
  const bool first = mps_priority(now.latency_us, now.priority) == MpsPriority::kNormal;
  const bool was_first = mps_priority(before.latency_us, before.priority) == MpsPriority::kNormal;
  const Gpu* gpu = gpus_->of(now);
  const bool cuda = gpu && gpu->device.kind == "cuda";
  if (cuda && now.sharing == Sharing::kMps) {
    if (first == was_first) return {};
    return {
        fmt::format("kernels {} before those of other MPS virtual GPUs, in programs that start from now on; those "
                    "that run go on as they began",
                    first ? "go" : "do not go")};
  }
  const bool changed = before.latency_us != now.latency_us || before.sharing != now.sharing;
  if (!changed || now.latency_us == 0 || latency_means(now) != LatencyMeans::kNothing) return {};
  if (cuda) {
    return {"vgpud sets no time slices of the hardware here: the latency bound is noted, and not kept"};
  }
  return {fmt::format("device '{}' has neither time slices nor priorities: the latency bound is noted, and not kept",
                      now.device)};
}

}  // namespace bandsaw
