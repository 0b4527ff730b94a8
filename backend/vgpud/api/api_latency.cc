// Latency bounds in the control API: what keeps one, and what an administrator should know who set one.
#include <fmt/format.h>

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
  if (config_.device.kind != "cuda") return LatencyMeans::kNothing;
  for (const VgpuUse& use : arbiter_->use()) {
    if (use.vgpu == spec.name) return use.latency_means;
  }
  return LatencyMeans::kNothing;
}

nlohmann::json Api::latency_state(const VgpuSpec& spec) const {
  return {{"kept_by", to_text(latency_means(spec))}, {"least_us", least_latency_us(spec.sharing)}};
}

std::vector<std::string> Api::latency_notes(const VgpuSpec& before, const VgpuSpec& now) const {
  const bool changed = before.latency_us != now.latency_us;
  if (!changed && (now.latency_us == 0 || before.sharing == now.sharing)) return {};
  if (config_.device.kind != "cuda") {
    if (now.latency_us == 0) return {};
    return {fmt::format("device '{}' has neither time slices nor priorities: the latency bound is noted, and not kept",
                        config_.device.name)};
  }
  if (now.sharing == Sharing::kMps) {
    return {
        "a latency bound becomes a priority of programs that start from now on; those that run go on as they began"};
  }
  if (now.latency_us == 0 || latency_means(now) != LatencyMeans::kNothing) return {};
  return {"vgpud sets no time slices of the hardware here: the latency bound is noted, and not kept"};
}

}  // namespace bandsaw
