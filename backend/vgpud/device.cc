#include "backend/vgpud/device.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backend/vgpud/probe.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr uint32_t kDeviceIndexMax = 1023;
constexpr size_t kShownMax = 500;  // bytes of what makes no sense

Status unusable(const PhysicalDevice& device, const std::string& why) {
  return Status::error(ENODEV,
                       "the GPU '{}' cannot be used: {}; see that `nvidia-smi` lists it and that the loader finds the "
                       "driver's libcuda.so.1 (LD_LIBRARY_PATH, ldconfig), or configure \"soft\"",
                       device.name, why);
}

Status read_answer(const std::string& text, uint64_t* memory, PhysicalDevice* device) {
  const auto answer = parse_json(text);
  const auto take = [&answer](const char* key) {
    return answer.contains(key) && answer[key].is_string() ? answer[key].get<std::string>() : std::string();
  };
  if (!answer.is_object() || !answer.contains("memory") || !answer["memory"].is_number_unsigned()) {
    return unusable(*device, "the probe's answer makes no sense: '" + text.substr(0, kShownMax) + "'");
  }
  *memory = answer["memory"].get<uint64_t>();
  device->model = take("name");
  device->uuid = take("uuid");
  device->driver = take("driver");
  const auto number = [&answer](const char* key) {
    const bool fits =
        answer.contains(key) && answer[key].is_number_unsigned() && answer[key].get<uint64_t>() < 1u << 16;
    return fits ? answer[key].get<uint32_t>() : 0;
  };
  device->sms = number("sms");
  device->sm_step = device->sms ? number("sm_step") : 0;
  return {};
}

// Runners have given up root's rights when they open these.
void warn_of_closed_nodes(uid_t uid) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("nvidia") || !entry.is_character_file(ignored)) continue;
    const bool number = name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (!number && name != "nvidiactl" && name != "nvidia-uvm") continue;
    struct stat node{};
    if (::stat(entry.path().c_str(), &node) == 0 && (node.st_mode & 0006) != 0006) {
      log::warn(
          "/dev/{} has mode {:04o}: runners, as user {}, cannot open it; make it 0666 (the driver's option "
          "NVreg_DeviceFileMode) or set session.first_uid = 0",
          name, node.st_mode & 07777, uid);
    }
  }
}

Status find_gpu(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device) {
  const auto answer = ask_device(runner, timeout, *device);
  if (!answer.ok()) return unusable(*device, answer.status().message());
  uint64_t memory = 0;
  if (Status status = read_answer(answer.value(), &memory, device); !status.ok()) return status;
  if (device->memory > memory) {
    return Status::error(EINVAL, "the memory of '{}' is configured as {}, but {} has {}", device->name,
                         format_size(device->memory), device->model, format_size(memory));
  }
  if (device->memory == 0) device->memory = memory;
  return {};
}

uint64_t machine_memory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// "GPU-" or "MIG-", then hexadecimal digits and '-': it goes into the environment of programs.
bool is_uuid(const std::string& text) {
  constexpr size_t kPrefix = 4, kLengthMax = 80;
  return (text.starts_with("GPU-") || text.starts_with("MIG-")) && text.size() > kPrefix && text.size() <= kLengthMax &&
         text.find_first_not_of("0123456789abcdefABCDEF-", kPrefix) == std::string::npos;
}

Status check_different(const std::vector<PhysicalDevice>& devices) {
  for (const PhysicalDevice& one : devices) {
    for (const PhysicalDevice& other : devices) {
      if (&one == &other || one.visible.empty() || one.visible != other.visible) continue;
      return Status::error(EINVAL, "'{}' and '{}' are one GPU ({}); leave one of them out", one.name, other.name,
                           one.visible);
    }
  }
  return {};
}

bool is_own_driver(const std::filesystem::path& library) {
  std::ifstream file(library, std::ios::binary);
  if (!file) return false;
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return content.find("BANDSAW_VGPU") != std::string::npos;  // the variable that it reads
}

}  // namespace

Result<PhysicalDevice> parse_device(const std::string& name) {
  PhysicalDevice device;
  const size_t colon = name.find(':');
  device.kind = name.substr(0, colon);
  device.name = name == "cuda" ? "cuda:0" : name;
  if (device.kind == "soft" || device.kind == "cuda") {
    if (colon == std::string::npos) return device;
    const std::string which = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), device.index);
    const bool number = error == std::errc() && end == which.data() + which.size() && device.index <= kDeviceIndexMax;
    if (number && which == std::to_string(device.index)) return device;  // one name for each
    device.index = 0;
    device.visible = which;
    if (device.kind == "cuda" && is_uuid(which)) return device;
  }
  return Status::error(EINVAL,
                       "'{}' is no device; there are \"soft\", \"soft:1\", \"cuda:0\" and, by UUID as `nvidia-smi -L` "
                       "lists them, \"cuda:GPU-...\" and \"cuda:MIG-...\"",
                       name.substr(0, 80));
}

Status find_device(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device) {
  if (device->kind == "cuda") {
    if (device->name.empty()) device->name = fmt::format("cuda:{}", device->index);
    if (Status status = find_gpu(runner, timeout, device); !status.ok()) return status;
    if (device->visible.empty() && !device->uuid.empty()) {
      device->visible = device->uuid.starts_with("GPU-") ? device->uuid : "GPU-" + device->uuid;
    }
    return {};
  }
  if (device->name.empty()) device->name = "soft";
  device->model = "Bandsaw software device";
  if (device->memory == 0) device->memory = machine_memory() / 2;
  return {};
}

Status find_again(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device) {
  PhysicalDevice found = *device;
  if (device->kind == "cuda") {
    if (Status status = find_device(runner, timeout, &found); !status.ok()) return status;
  } else if (const auto answer = ask_device(runner, timeout, *device); !answer.ok()) {
    return Status::error(ENODEV, "the software device '{}' cannot be used: {}", device->name,
                         answer.status().message());
  }
  found.lost.clear();
  *device = std::move(found);
  return {};
}

Status find_devices(const std::string& runner, uid_t uid, std::chrono::milliseconds timeout,
                    std::vector<PhysicalDevice>* devices) {
  // The software device's memory is the host's: half of it is given out by all together.
  const auto by_itself = [](const PhysicalDevice& one) { return one.kind == "soft" && one.memory == 0; };
  const auto equal_parts = static_cast<uint64_t>(std::count_if(devices->begin(), devices->end(), by_itself));
  for (PhysicalDevice& device : *devices) {
    if (by_itself(device)) device.memory = machine_memory() / 2 / equal_parts;
    const Status status = find_device(runner, timeout, &device);
    if (status.code() == EINVAL) return status;
    device.lost = status.message();
  }
  if (Status status = check_different(*devices); !status.ok()) return status;
  const auto usable = [](const PhysicalDevice& one) { return one.lost.empty(); };
  if (std::none_of(devices->begin(), devices->end(), usable)) {
    return Status::error(ENODEV, "{}", devices->front().lost);
  }
  for (const PhysicalDevice& device : *devices) {
    if (!usable(device)) log::error("going on without '{}': {}", device.name, device.lost);
  }
  const bool gpus = std::any_of(devices->begin(), devices->end(), [](const auto& one) { return one.kind == "cuda"; });
  if (uid != 0 && gpus) warn_of_closed_nodes(uid);
  return {};
}

std::string without_own_driver(const std::string& path) {
  std::string result;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (!folder.empty() && !is_own_driver(folder + "/libcuda.so.1")) result += (result.empty() ? "" : ":") + folder;
    begin = end + 1;
  }
  return result;
}

}  // namespace bandsaw
