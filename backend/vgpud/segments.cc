#include "backend/vgpud/segments.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"
#include "memory/base/json.h"

namespace bandsaw {

using nlohmann::json;

namespace {

const char* access_text(bool writes) { return writes ? "write" : "read"; }

const VgpuSpec* find_vgpu(std::span<const VgpuSpec> vgpus, const std::string& name) {
  const auto found = std::find_if(vgpus.begin(), vgpus.end(), [&](const VgpuSpec& one) { return one.name == name; });
  return found == vgpus.end() ? nullptr : &*found;
}

}  // namespace

json to_json(const SegmentSpec& segment) {
  json grants = json::array();
  for (const auto& [vgpu, writes] : segment.grants) grants.push_back({{"vgpu", vgpu}, {"access", access_text(writes)}});
  return {{"id", std::to_string(segment.id)},
          {"name", segment.name},
          {"vgpu", segment.vgpu},
          {"bytes", segment.bytes},
          {"grants", std::move(grants)}};
}

Result<SegmentSpec> segment_from_json(const json& object) {
  SegmentSpec made;
  if (!object.is_object()) return Status::error(EINVAL, "a shared segment is no object");
  made.name = text_in(object, "name");
  made.vgpu = text_in(object, "vgpu");
  const std::string id = text_in(object, "id");
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), made.id);
  const auto bytes = object.find("bytes"), grants = object.find("grants");
  if (error != std::errc() || end != id.data() + id.size() || made.id == 0 || made.id > INT64_MAX ||
      !valid_name(made.name) || !valid_name(made.vgpu) || bytes == object.end() || !bytes->is_number_unsigned() ||
      grants == object.end() || !grants->is_array()) {
    return Status::error(EINVAL, "'{}' is no shared segment", made.name.substr(0, 80));
  }
  made.bytes = bytes->get<uint64_t>();
  for (const json& grant : *grants) {
    const std::string vgpu = text_in(grant, "vgpu"), access = text_in(grant, "access");
    if (!valid_name(vgpu) || (access != "read" && access != "write")) {
      return Status::error(EINVAL, "a grant of the shared segment '{}' is none", made.name);
    }
    made.grants[vgpu] = access == "write";
  }
  return made;
}

json segments_for(const VgpuSpec& vgpu, std::span<const SegmentSpec> segments, std::span<const VgpuSpec> vgpus) {
  json told = json::array();
  for (const SegmentSpec& segment : segments) {
    const VgpuSpec* const owner = find_vgpu(vgpus, segment.vgpu);
    // One that was moved to another device is not reached there.
    if (!owner || owner->device != vgpu.device) continue;
    const auto grant = segment.grants.find(vgpu.name);
    const bool own = segment.vgpu == vgpu.name;
    if (!own && grant == segment.grants.end()) continue;
    json one = {{"id", std::to_string(segment.id)},
                {"name", segment.name},
                {"bytes", segment.bytes},
                {"owner", owner->index},
                {"access", access_text(own || grant->second)}};
    if (own) {
      json grants = json::array();
      for (const auto& [name, writes] : segment.grants) {
        const VgpuSpec* const user = find_vgpu(vgpus, name);
        if (user && user->device == vgpu.device)
          grants.push_back({{"vgpu", user->index}, {"access", access_text(writes)}});
      }
      one["grants"] = std::move(grants);
    }
    told.push_back(std::move(one));
  }
  return told;
}

}  // namespace bandsaw
