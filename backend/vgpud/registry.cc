#include "backend/vgpud/registry.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "backend/control/paths.h"
#include "backend/vgpud/api/share_limits.h"
#include "memory/base/json.h"
#include "memory/base/log.h"
#include "memory/base/replace_file.h"

namespace bandsaw {
namespace {

constexpr int kVersion = 1;

Status check_stored(const VgpuSpec& spec, const std::vector<VgpuSpec>& before, const std::string& path) {
  if (!valid_name(spec.name)) return Status::error(EINVAL, "{}: '{}' is not a name", path, spec.name);
  for (const VgpuSpec& other : before) {
    if (other.name == spec.name) return Status::error(EINVAL, "{}: '{}' is there twice", path, spec.name);
    if (other.index == spec.index) {
      return Status::error(EINVAL, "{}: '{}' and '{}' have one index", path, spec.name, other.name);
    }
  }
  return {};
}

// "soft" is "soft:0", whichever of the two a configuration says.
bool is_named(const PhysicalDevice& device, const std::string& name) {
  const auto full = [](const std::string& text) { return text == "soft" ? std::string("soft:0") : text; };
  return full(device.name) == full(name);
}

}  // namespace

Result<Registry> Registry::open(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Status::error(error.value(), "cannot make {}: {}", directory, error.message());
  Registry registry(directory);
  if (Status status = registry.load(); !status.ok()) return status;
  return registry;
}

Status Registry::load() {
  if (::access(path().c_str(), F_OK) != 0 && errno == ENOENT) return {};
  std::ifstream file(path());
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status::error(EIO, "cannot read {}", path());
  const auto json = parse_json(text.str());
  if (!json.is_object() || !json.contains("version") || !json.contains("vgpus") || !json["vgpus"].is_array()) {
    return Status::error(EINVAL, "{} is not a registry; repair it or move it away", path());
  }
  if (json["version"] != kVersion) {
    return Status::error(EINVAL, "{} has version {}, this vgpud knows {}", path(), json_text(json["version"]),
                         kVersion);
  }
  for (const auto& entry : json["vgpus"]) {
    VgpuSpec spec;
    spec.device.clear();
    Status status = from_json(entry, true, &spec);
    if (!status.ok()) return Status::error(EINVAL, "{}: {}", path(), status.message());
    if (spec.sharing == Sharing::kMps && !entry.contains("group")) {
      spec.group = kGroupOfEarlier;
      log::warn(
          "virtual GPU '{}' is mps since before there were groups, and is in the group '{}' with all others of that "
          "time",
          spec.name, spec.group);
    }
    if (status = check_stored(spec, content_.specs, path()); !status.ok()) return status;
    content_.specs.push_back(std::move(spec));
  }
  if (const std::string changes = lower_to_fit(&content_.specs); !changes.empty()) {
    log::warn("{}: the shares sum to more than 100 %, and are lowered: {}", path(), changes);
  }
  Status status = load_choice(json);
  if (status.ok()) status = load_segments(json);
  if (status.ok()) status = load_drained(json);
  return status.ok() ? load_planning_mode(json) : status;
}

Status Registry::load_choice(const nlohmann::json& file) {
  if (!file.contains("scheduler")) return {};
  const auto read = [](const nlohmann::json& object, PolicyChoice* choice) {
    if (!object.is_object() || !object.value("policy", nlohmann::json()).is_string() ||
        !object.value("queues", nlohmann::json()).is_string()) {
      return false;
    }
    *choice = {object["policy"].get<std::string>(), object["queues"].get<std::string>()};
    return check_policy(choice->policy).ok() && check_queues(choice->queues).ok();
  };
  StoredChoice stored;
  const auto& scheduler = file["scheduler"];
  if (!read(scheduler, &stored.chosen) || !read(scheduler.value("configured", nlohmann::json()), &stored.configured)) {
    return Status::error(EINVAL, "{}: 'scheduler' is not a choice of a policy; repair it or remove it", path());
  }
  content_.choice = stored;
  return {};
}

Status Registry::put_choice(const StoredChoice& choice) {
  Content changed = content_;
  changed.choice = choice;
  return commit(std::move(changed));
}

Status Registry::load_planning_mode(const nlohmann::json& file) {
  const char* key = file.contains("planning") ? "planning" : "corun";  // the second: as earlier versions wrote it
  if (!file.contains(key)) return {};
  const auto& stored = file[key];
  const auto read = [&stored](const char* field) {
    const auto value = stored.is_object() ? stored.value(field, nlohmann::json()) : nlohmann::json();
    return parse_planning_mode(value.is_string() ? value.get<std::string>() : "");
  };
  const auto chosen = read("mode"), configured = read("configured");
  if (!chosen.ok() || !configured.ok()) {
    return Status::error(EINVAL, "{}: '{}' is not a choice of a mode; repair it or remove it", path(), key);
  }
  content_.planning_mode = {chosen.value(), configured.value()};
  return {};
}

Status Registry::put_planning_mode(const StoredPlanningMode& mode) {
  Content changed = content_;
  changed.planning_mode = mode;
  return commit(std::move(changed));
}

Status Registry::load_drained(const nlohmann::json& file) {
  if (!file.contains("drained")) return {};
  const auto is_text = [](const nlohmann::json& one) { return one.is_string(); };
  const auto& list = file["drained"];
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_text)) {
    return Status::error(EINVAL, "{}: 'drained' is no list of devices; repair it or remove it", path());
  }
  content_.drained = list.get<std::set<std::string>>();
  return {};
}

bool Registry::drained(const PhysicalDevice& device) const {
  return content_.drained.contains(device.uuid.empty() ? device.name : device.uuid);
}

Status Registry::put_drained(const PhysicalDevice& device, bool drained) {
  Content changed = content_;
  const std::string& key = device.uuid.empty() ? device.name : device.uuid;
  if (drained)
    changed.drained.insert(key);
  else
    changed.drained.erase(key);
  return commit(std::move(changed));
}

Status Registry::commit(Content changed) {
  auto list = nlohmann::json::array();
  for (const VgpuSpec& spec : changed.specs) list.push_back(to_json(spec));
  nlohmann::json file = {{"version", kVersion}, {"vgpus", list}};
  const auto& [chosen, configured] = changed.choice;
  if (!chosen.policy.empty()) {
    file["scheduler"] = {{"policy", chosen.policy},
                         {"queues", chosen.queues},
                         {"configured", {{"policy", configured.policy}, {"queues", configured.queues}}}};
  }
  const StoredPlanningMode& mode = changed.planning_mode;
  if (mode.chosen) file["planning"] = {{"mode", to_text(*mode.chosen)}, {"configured", to_text(mode.configured)}};
  for (const SegmentSpec& segment : changed.segments) file["segments"].push_back(to_json(segment));
  if (!changed.drained.empty()) file["drained"] = changed.drained;
  Status status = replace_file(path(), json_text(file, 2) + "\n");
  if (status.ok()) content_ = std::move(changed);
  return status;
}

std::optional<VgpuSpec> Registry::find(const std::string& name) const {
  const auto found =
      std::find_if(content_.specs.begin(), content_.specs.end(), [&](const VgpuSpec& s) { return s.name == name; });
  return found == content_.specs.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> names;
  for (const VgpuSpec& spec : content_.specs) names.push_back(spec.name);
  return names;
}

uint32_t Registry::free_index() const {
  for (uint32_t index = 0;; ++index) {
    if (std::none_of(content_.specs.begin(), content_.specs.end(),
                     [index](const VgpuSpec& s) { return s.index == index; })) {
      return index;
    }
  }
}

void Registry::settle(std::span<const PhysicalDevice> devices) {
  std::set<std::string> noted;  // GPUs that virtual GPUs are known to be on
  for (const VgpuSpec& spec : content_.specs) noted.insert(spec.device_uuid);
  for (VgpuSpec& spec : content_.specs) {
    const auto by_uuid = [&spec](const PhysicalDevice& one) {
      return !one.uuid.empty() && one.uuid == spec.device_uuid;
    };
    // A GPU of this name that is noted elsewhere has only come to this number.
    const auto by_name = [&spec, &noted](const PhysicalDevice& one) {
      return spec.device.empty() || (is_named(one, spec.device) &&
                                     (one.uuid.empty() || spec.device_uuid.empty() || !noted.contains(one.uuid)));
    };
    auto found = std::find_if(devices.begin(), devices.end(), by_uuid);
    if (found == devices.end()) found = std::find_if(devices.begin(), devices.end(), by_name);
    if (found == devices.end()) {
      if (!spec.device_uuid.empty()) spec.device = "cuda:" + spec.device_uuid;  // whatever has its number now
      continue;
    }
    if (!spec.device_uuid.empty() && (found->name != spec.device || found->uuid != spec.device_uuid)) {
      log::warn("'{}' was on '{}' ({}), and is on '{}' ({})", spec.name, spec.device, spec.device_uuid, found->name,
                found->uuid);
    }
    spec.device = found->name;
    if (!found->uuid.empty()) spec.device_uuid = found->uuid;
  }
}

Status Registry::put(const VgpuSpec& spec) {
  Content changed = content_;
  std::erase_if(changed.specs, [&](const VgpuSpec& s) { return s.name == spec.name; });
  const auto place =
      std::find_if(changed.specs.begin(), changed.specs.end(), [&](const VgpuSpec& s) { return s.name > spec.name; });
  changed.specs.insert(place, spec);
  return commit(std::move(changed));
}

// Nobody who gets the name, or the index, later is to have its rights.
Status Registry::remove(const std::string& name) {
  Content changed = content_;
  std::erase_if(changed.specs, [&](const VgpuSpec& s) { return s.name == name; });
  std::erase_if(changed.segments, [&](const SegmentSpec& s) { return s.vgpu == name; });
  for (SegmentSpec& segment : changed.segments) segment.grants.erase(name);
  return commit(std::move(changed));
}

Status Registry::load_segments(const nlohmann::json& file) {
  if (!file.contains("segments")) return {};
  if (!file["segments"].is_array()) return Status::error(EINVAL, "{}: 'segments' is no list; repair it", path());
  for (const auto& entry : file["segments"]) {
    const auto segment = segment_from_json(entry);
    if (!segment.ok()) return Status::error(EINVAL, "{}: {}", path(), segment.status().message());
    if (find_segment(segment.value().name)) {
      return Status::error(EINVAL, "{}: the shared segment '{}' is there twice", path(), segment.value().name);
    }
    content_.segments.push_back(segment.value());
  }
  return {};
}

std::optional<SegmentSpec> Registry::find_segment(const std::string& name) const {
  const auto found = std::find_if(content_.segments.begin(), content_.segments.end(),
                                  [&](const SegmentSpec& s) { return s.name == name; });
  return found == content_.segments.end() ? std::nullopt : std::optional(*found);
}

Status Registry::put_segment(const SegmentSpec& segment) {
  Content changed = content_;
  std::erase_if(changed.segments, [&](const SegmentSpec& s) { return s.name == segment.name; });
  const auto place = std::find_if(changed.segments.begin(), changed.segments.end(),
                                  [&](const SegmentSpec& s) { return s.name > segment.name; });
  changed.segments.insert(place, segment);
  return commit(std::move(changed));
}

Status Registry::remove_segment(const std::string& name) {
  Content changed = content_;
  std::erase_if(changed.segments, [&](const SegmentSpec& s) { return s.name == name; });
  return commit(std::move(changed));
}

}  // namespace bandsaw
