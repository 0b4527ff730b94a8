#include "backend/vgpud/arbiter/plan_options.h"

#include <algorithm>
#include <thread>

namespace bandsaw {

PlanOptions plan_options(const Config& config, const PhysicalDevice& device) {
  PlanOptions options;
  // Limits of an SM are an H200's, which the software device has too; each of its threads stands for four.
  const uint32_t threads = std::max(1u, std::thread::hardware_concurrency());
  if (device.kind == "soft") options.gpu.sms = static_cast<int>(std::min(4 * threads, 132u));
  if (device.sms > 0) options.gpu.sms = static_cast<int>(device.sms);
  options.model.three_states = config.slices.three_states;
  options.take_sms = config.slices.take_sms;
  options.planners = config.planners;
  return options;
}

}  // namespace bandsaw
