#include "backend/session/runner_launch_config.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/sandbox/launcher_link.h"

namespace bandsaw {
namespace {

constexpr uint32_t kSoftSmsMost = UINT16_MAX, kAllSms = 1000;

Status take_text(const nlohmann::json& object, const char* key, std::string* out) {
  if (!object.contains(key)) return {};
  if (!object[key].is_string()) return Status::error(EINVAL, "'{}' must be a text", key);
  *out = object[key].get<std::string>();
  return {};
}

Status take_number(const nlohmann::json& request, const char* key, uint32_t least, uint32_t most, uint32_t* out) {
  if (!request.contains(key)) return {};
  const auto& value = request[key];
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least || value.get<uint64_t>() > most) {
    return Status::error(EINVAL, "'{}' must be a number from {} to {}", key, least, most);
  }
  *out = value.get<uint32_t>();
  return {};
}

Status read_mps(const nlohmann::json& mps, SharingConfig* sharing_config) {
  if (!mps.is_object()) return Status::error(EINVAL, "'mps' must be an object");
  for (const auto& [key, field] :
       {std::pair{"directory", &sharing_config->directory}, std::pair{"error", &sharing_config->error},
        std::pair{"lost", &sharing_config->lost}, std::pair{"gpu", &sharing_config->gpu}}) {
    if (Status status = take_text(mps, key, field); !status.ok()) return status;
  }
  return {};
}

}  // namespace

Status read_sharing_config(const nlohmann::json& request, SharingConfig* sharing_config) {
  SharingConfig read = *sharing_config;
  std::string sharing = to_text(read.sharing), mode = to_text(read.mode), sms = to_text(read.sms);
  std::string priority = to_text(read.priority);
  Status status = take_text(request, "sharing", &sharing);
  if (status.ok()) status = take_text(request, "planning", &mode);
  if (status.ok()) status = take_text(request, "sms", &sms);
  if (status.ok()) status = take_text(request, "mps_priority", &priority);
  if (status.ok()) status = take_text(request, "device", &read.device);
  if (status.ok()) status = take_text(request, "gpu", &read.gpu);
  if (status.ok()) status = take_text(request, "guard", &read.guard);
  if (status.ok()) status = take_number(request, "soft_sms", 0, kSoftSmsMost, &read.soft_sms);
  if (status.ok()) status = take_number(request, "sm_thousandths", 1, kAllSms, &read.sm_thousandths);
  if (status.ok()) status = take_text(request, "device_error", &read.device_error);
  if (status.ok() && request.contains("mps")) status = read_mps(request["mps"], &read);
  if (!status.ok()) return status;
  const auto parsed_sharing = parse_sharing(sharing);
  if (!parsed_sharing.ok()) return parsed_sharing.status();
  const auto parsed_mode = parse_planning_mode(mode);
  if (!parsed_mode.ok()) return parsed_mode.status();
  const auto part = parse_sm_part(sms);
  if (!part.ok()) return part.status();
  const auto parsed_priority = parse_mps_priority(priority);
  if (!parsed_priority.ok()) return parsed_priority.status();
  read.sharing = parsed_sharing.value();
  read.mode = parsed_mode.value();
  read.sms = part.value();
  read.priority = parsed_priority.value();
  *sharing_config = std::move(read);
  return {};
}

bool same_device(const SharingConfig& one, const SharingConfig& other) {
  if (!one.gpu.empty() && !other.gpu.empty()) return one.gpu == other.gpu;
  const auto full = [](const std::string& name) { return name == "soft" ? std::string("soft:0") : name; };
  return full(one.device) == full(other.device);
}

RunnerLaunchConfig runner_launch_config(const SharingConfig& sharing_config) {
  RunnerLaunchConfig launch_config;
  const std::string& device = sharing_config.device;
  if (!sharing_config.device_error.empty()) {
    launch_config.refusal = ENODEV;
    launch_config.why = fmt::format("device '{}' is lost: {}", device, sharing_config.device_error);
    return launch_config;
  }
  launch_config.gpu = sharing_config.gpu;
  launch_config.variables.push_back(std::string("BANDSAW_SHARING=") + to_text(sharing_config.sharing));
  launch_config.variables.push_back("BANDSAW_GUARD=" + sharing_config.guard);
  if (sharing_config.sharing == Sharing::kMps) {
    launch_config.variables.push_back(std::string("BANDSAW_PLANNING_MODE=") + to_text(sharing_config.mode));
  }
  const bool cuda = is_cuda(sharing_config);
  if (sharing_config.sharing != Sharing::kMps || !cuda) {
    launch_config.variables.push_back(std::string("CUDA_MPS_PIPE_DIRECTORY=") + kNoMpsDirectory);
    const bool alone = cuda && !sharing_config.gpu.empty();  // the only one in sight is number 0
    if (alone) launch_config.variables.push_back("CUDA_VISIBLE_DEVICES=" + sharing_config.gpu);
    launch_config.variables.push_back("BANDSAW_DEVICE=" + (alone ? "cuda:0" : device));
    launch_config.variables.emplace_back("BANDSAW_SMS=");
    if (cuda && sharing_config.replaceable) launch_config.variables.emplace_back(kReplaceableRunner);
    if (sharing_config.soft_sms > 0) {
      launch_config.variables.push_back("BANDSAW_SOFT_SMS=" + std::to_string(sharing_config.soft_sms));
    }
    return launch_config;
  }
  if (sharing_config.directory.empty()) {
    launch_config.refusal = sharing_config.error.empty() ? EAGAIN : ENODEV;
    launch_config.why = "sharing is 'mps', and there is no MPS daemon" +
                        (sharing_config.error.empty() ? std::string(" yet") : ": " + sharing_config.error);
    return launch_config;
  }
  launch_config.mps = sharing_config.directory;
  launch_config.priority = sharing_config.priority;
  launch_config.socket = sharing_config.directory + "/control";
  launch_config.variables.push_back("CUDA_MPS_PIPE_DIRECTORY=" + sharing_config.directory);
  // The daemon was given this one GPU by its UUID, and to its clients it is number 0, whatever number it has elsewhere.
  launch_config.variables.push_back("CUDA_VISIBLE_DEVICES=" + sharing_config.gpu);
  launch_config.variables.push_back("BANDSAW_DEVICE=cuda:0");
  launch_config.variables.push_back("CUDA_MPS_CLIENT_PRIORITY=" +
                                    std::to_string(static_cast<int>(sharing_config.priority)));
  if (sharing_config.sm_thousandths < kAllSms) {
    launch_config.variables.push_back(
        fmt::format("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={:.1f}", sharing_config.sm_thousandths / 10.0));
  }
  launch_config.variables.emplace_back("BANDSAW_MPS=1");
  launch_config.variables.push_back("BANDSAW_SMS=" + to_text(sharing_config.sms));
  return launch_config;
}

// Numbers of CUresult: uncorrectable memory errors, and exceptions of kernels. What a runner holds against its own
// guest (CUDA_ERROR_INVALID_VALUE) is not among them.
bool is_shared_fault(uint32_t sticky) {
  constexpr uint32_t kUncorrectable = 214, kLink = 220, kIllegalAddress = 700, kTimeout = 702, kAssert = 710,
                     kFirstException = 714, kLastException = 719;
  return sticky == kUncorrectable || sticky == kLink || sticky == kIllegalAddress || sticky == kTimeout ||
         sticky == kAssert || (sticky >= kFirstException && sticky <= kLastException);
}

std::vector<std::string> with_variables(const std::vector<std::string>& environment,
                                        const std::vector<std::string>& variables) {
  const auto name = [](const std::string& variable) {
    return std::string_view(variable).substr(0, variable.find('=') + 1);
  };
  std::vector<std::string> result;
  for (const std::string& old : environment) {
    const bool replaced =
        std::any_of(variables.begin(), variables.end(), [&](const std::string& one) { return name(one) == name(old); });
    if (!replaced) result.push_back(old);
  }
  result.insert(result.end(), variables.begin(), variables.end());
  return result;
}

}  // namespace bandsaw
