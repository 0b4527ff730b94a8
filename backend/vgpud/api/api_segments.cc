// /v1/segments: named memory of one virtual GPU that others may use. What is granted and revoked here is on disk, then
// told to the sessions of the device; they enforce it.
#include <algorithm>
#include <memory>
#include <utility>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/segments.h"
#include "memory/base/clock.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {

using api::refuse;
using api::refuse_storage;
using api::send;
using nlohmann::json;

namespace {

// What a session says of the segment with this id; null: nothing.
json said_of(const json& live, const std::string& id) {
  if (!live.is_object()) return {};
  for (const json& one : live.value("segments", json::array())) {
    if (one.value("id", "") == id) return one;
  }
  return {};
}

std::string user_name(const std::vector<VgpuSpec>& vgpus, uint32_t index) {
  const auto found = std::find_if(vgpus.begin(), vgpus.end(), [&](const VgpuSpec& one) { return one.index == index; });
  return found == vgpus.end() ? fmt::format("#{}", index) : found->name;
}

// As a client sees it: what the registry has, if it has it, and what the owner's session says.
json segment_view(json view, const json& said, const std::vector<VgpuSpec>& vgpus) {
  json users = json::array();
  for (const json& user : said.is_object() ? said.value("users", json::array()) : json::array()) {
    users.push_back({{"vgpu", user_name(vgpus, user.value("vgpu", 0u))}, {"count", user.value("count", 0u)}});
  }
  view["users"] = std::move(users);
  view["state"] = said.is_object() ? said.value("state", "none") : "no session";
  view["error"] = said.is_object() ? said.value("error", "") : "";
  return view;
}

}  // namespace

uint64_t Api::next_segment_id() const {
  uint64_t id = monotonic_ns() & INT64_MAX;  // what has ended before may still be in use
  for (const SegmentSpec& one : registry_->segments()) id = std::max(id, one.id + 1);
  return id;
}

std::optional<SegmentSpec> Api::segment_of(const HttpRequest& request, const Answer& answer) const {
  const std::string& name = request.path[2];
  const std::optional<SegmentSpec> found = registry_->find_segment(name);
  if (!found) refuse(answer, 404, fmt::format("no shared segment '{}'", name.substr(0, 80)), "`vgpuctl segment list`");
  return found;
}

void Api::list_segments(const Answer& answer) {
  collect([this, answer](const json&, const json& vgpus) {
    json all = json::array();
    for (const SegmentSpec& segment : registry_->segments()) {
      json view = to_json(segment);
      const auto owner =
          std::find_if(vgpus.begin(), vgpus.end(), [&](const json& one) { return one["name"] == segment.vgpu; });
      const json live = owner == vgpus.end() ? json() : (*owner)["live"];
      view["device"] = owner == vgpus.end() ? "" : owner->value("device", "");
      view["made_by"] = "administrator";
      view["named"] = true;
      all.push_back(segment_view(std::move(view), said_of(live, std::to_string(segment.id)), registry_->all()));
    }
    // What programs have made, and what has lost its name and is still in use.
    for (const json& vgpu : vgpus) {
      const json live = vgpu.value("live", json());
      for (const json& said : live.is_object() ? live.value("segments", json::array()) : json::array()) {
        const bool own = said.value("own", false), named = said.value("named", false);
        if (named && !own) continue;
        json view = {{"id", said.value("id", "")},
                     {"name", said.value("name", "")},
                     {"vgpu", vgpu["name"]},
                     {"bytes", said.value("bytes", uint64_t{0})},
                     {"grants", json::array()},
                     {"device", vgpu.value("device", "")},
                     {"made_by", own ? "programs" : "administrator"},
                     {"named", named}};
        all.push_back(segment_view(std::move(view), said, registry_->all()));
      }
    }
    send(answer, 200, all);
  });
}

void Api::create_segment(const json& body, const Answer& answer) {
  SegmentSpec made;
  made.name = text_in(body, "name");
  made.vgpu = text_in(body, "vgpu");
  if (!valid_name(made.name)) {
    return refuse(answer, 400, fmt::format("'{}' is not a name", made.name.substr(0, 80)), kNameRule);
  }
  const std::optional<VgpuSpec> owner = registry_->find(made.vgpu);
  if (!owner) return not_found(made.vgpu, answer);
  const json size = body.value("size", json());
  if (!size.is_number_unsigned() || size == 0 || size > owner->memory) {
    return refuse(answer, 400, "'size' must be bytes, from 1 to the owner's memory share",
                  fmt::format("'{}' has {}", owner->name, format_size(owner->memory)));
  }
  made.bytes = segment_bytes(size.get<uint64_t>());
  session_manager_->request(owner->name, {{"op", "status"}}, [this, made, answer](const Result<json>& reply) {
    if (!reply.ok()) {
      return refuse(answer, 409, fmt::format("the session of '{}' does not say what it uses", made.vgpu),
                    "try again once it runs (`vgpuctl list` shows its state)");
    }
    const auto bytes = [&reply](const char* key) {
      return static_cast<uint64_t>(std::max<int64_t>(reply.value().value(key, int64_t{0}), 0));
    };
    const uint64_t used = bytes("memory_used"), resident = used - std::min(used, bytes("memory_swapped"));
    commit_segment(made, used, resident, answer);
  });
}

void Api::commit_segment(SegmentSpec made, uint64_t used, uint64_t resident, const Answer& answer) {
  const std::optional<VgpuSpec> owner = registry_->find(made.vgpu);
  if (!owner) return not_found(made.vgpu, answer);
  if (registry_->find_segment(made.name)) {
    return refuse(answer, 409, fmt::format("there is a shared segment '{}'", made.name),
                  "choose another name, or destroy that one");
  }
  if (registry_->segments().size() >= kSegmentsMost) {
    return refuse(answer, 409, fmt::format("this host has {} shared segments, the most there may be", kSegmentsMost),
                  "destroy one that nobody needs");
  }
  const uint64_t room = owner->memory - std::min(owner->memory, used);
  const uint64_t device_room = reserved_memory(*owner) - std::min(reserved_memory(*owner), resident);
  if (made.bytes > std::min(room, device_room)) {
    return refuse(answer, 409,
                  fmt::format("'{}' has {} left of its memory share, and the segment takes {}", owner->name,
                              format_size(std::min(room, device_room)), format_size(made.bytes)),
                  fmt::format("make it smaller, or give '{}' more memory (`vgpuctl set`)", owner->name));
  }
  made.id = next_segment_id();
  keep_segment(made, owner->device, 201, answer);
}

// On disk, then told to the sessions of that device.
void Api::keep_segment(const SegmentSpec& segment, const std::string& device, int code, const Answer& answer) {
  if (Status status = registry_->put_segment(segment); !status.ok()) return refuse_storage(answer, status);
  session_manager_->tell_all(device);
  json view = to_json(segment);
  view["device"] = device;
  send(answer, code, view);
}

void Api::destroy_segment(const HttpRequest& request, const Answer& answer) {
  const std::optional<SegmentSpec> found = segment_of(request, answer);
  if (!found) return;
  const SegmentSpec& gone = *found;
  const std::optional<VgpuSpec> owner = registry_->find(gone.vgpu);
  if (Status status = registry_->remove_segment(gone.name); !status.ok()) return refuse_storage(answer, status);
  if (owner && request.query == "force=1") {
    session_manager_->request(gone.vgpu, {{"op", "segment_end"}, {"id", std::to_string(gone.id)}},
                              [](const Result<json>& reply) {
                                if (!reply.ok()) log::warn("a shared segment's end: {}", reply.status().message());
                              });
  }
  if (owner) session_manager_->tell_all(owner->device);
  send(answer, 200, {{"name", gone.name}, {"destroyed", true}});
}

void Api::grant_segment(const HttpRequest& request, const json& body, const Answer& answer) {
  const std::optional<SegmentSpec> found = segment_of(request, answer);
  if (!found) return;
  SegmentSpec changed = *found;
  const std::string name = text_in(body, "vgpu"), access = text_in(body, "access");
  const std::optional<VgpuSpec> user = registry_->find(name);
  const std::optional<VgpuSpec> owner = registry_->find(changed.vgpu);
  if (!user) return not_found(name, answer);
  if (access != "read" && access != "write") {
    return refuse(answer, 400, "'access' must be \"read\" or \"write\"", "\"write\" is reading and writing");
  }
  if (name == changed.vgpu) {
    return refuse(answer, 409, fmt::format("'{}' owns the segment, and may read and write it", name),
                  "grant it to another virtual GPU");
  }
  if (!owner || owner->device != user->device) {
    return refuse(answer, 409,
                  fmt::format("'{}' is on device '{}', and the segment's memory on '{}'", name, user->device,
                              owner ? owner->device : "?"),
                  "virtual GPUs share segments on one physical GPU only; make one there");
  }
  changed.grants[name] = access == "write";
  if (changed.grants.size() > kGrantsMost) {
    return refuse(answer, 409, fmt::format("a segment is granted to {} virtual GPUs at most", kGrantsMost),
                  "revoke one that needs it no more");
  }
  keep_segment(changed, owner->device, 200, answer);
}

void Api::revoke_segment(const HttpRequest& request, const json& body, const Answer& answer) {
  const std::optional<SegmentSpec> found = segment_of(request, answer);
  if (!found) return;
  SegmentSpec changed = *found;
  const std::string name = text_in(body, "vgpu");
  if (changed.grants.erase(name) == 0) {
    return refuse(answer, 409, fmt::format("'{}' has no rights to '{}'", name.substr(0, 80), changed.name),
                  "`vgpuctl segment list` shows who has");
  }
  const std::optional<VgpuSpec> owner = registry_->find(changed.vgpu);
  keep_segment(changed, owner ? owner->device : "", 200, answer);
}

}  // namespace bandsaw
