#include "backend/vgpud/sessions/session_reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace bandsaw {
namespace {

using nlohmann::json;

constexpr int kDeepest = 8;
constexpr size_t kLongestText = 4096, kMostValues = 65536;

enum class Kind { kText, kCount, kFlag, kObject, kList };

struct Field {
  const char* at;
  Kind kind;
};

constexpr Field kUsage[] = {{"memory_bytes", Kind::kCount},
                            {"swapped_bytes", Kind::kCount},
                            {"swapped_in", Kind::kCount},
                            {"swapped_out", Kind::kCount},
                            {"swap_moves", Kind::kCount},
                            {"swap_wait_ns", Kind::kCount},
                            {"swap_move_ns", Kind::kCount},
                            {"swap_made", Kind::kCount},
                            {"swap_mapped", Kind::kCount},
                            {"calls", Kind::kCount},
                            {"launches", Kind::kCount},
                            {"bytes_in", Kind::kCount},
                            {"bytes_out", Kind::kCount},
                            {"bytes_device", Kind::kCount},
                            {"compute_ns", Kind::kCount},
                            {"copy_ns", Kind::kCount},
                            {"errors", Kind::kCount},
                            {"sticky", Kind::kCount},
                            {"slicing", Kind::kObject},
                            {"slicing/kernels", Kind::kCount},
                            {"slicing/sliceable", Kind::kCount},
                            {"slicing/launches", Kind::kCount},
                            {"slicing/grid_slices", Kind::kCount},
                            {"slicing/fallbacks", Kind::kCount},
                            {"slicing/refused", Kind::kObject}};
constexpr Field kProcess[] = {{"process", Kind::kCount}, {"pid", Kind::kCount},         {"uid", Kind::kCount},
                              {"comm", Kind::kText},     {"direct", Kind::kFlag},       {"state", Kind::kText},
                              {"runner", Kind::kCount},  {"rings", Kind::kCount},       {"regions", Kind::kCount},
                              {"mps", Kind::kText},      {"mps_priority", Kind::kText}, {"usage", Kind::kObject},
                              {"slot", Kind::kCount},    {"nice", Kind::kCount}};
constexpr Field kReply[] = {{"ok", Kind::kFlag},
                            {"error", Kind::kText},
                            {"mps", Kind::kText},
                            {"failing", Kind::kText},
                            {"notices", Kind::kFlag},
                            {"device", Kind::kText},
                            {"sandbox", Kind::kObject},
                            {"sandbox/session", Kind::kText},
                            {"sandbox/session_lacks", Kind::kText},
                            {"sandbox/runners", Kind::kText},
                            {"sandbox/runners_lack", Kind::kText},
                            {"name", Kind::kText},
                            {"uuid", Kind::kText},
                            {"pci_bus_id", Kind::kText},
                            {"pid", Kind::kCount},
                            {"uptime_s", Kind::kCount},
                            {"memory_share", Kind::kCount},
                            {"memory_used", Kind::kCount},
                            {"memory_resident", Kind::kCount},
                            {"memory_swapped", Kind::kCount},
                            {"memory_borrowed", Kind::kCount},
                            {"memory_lent", Kind::kCount},
                            {"suspension", Kind::kObject},
                            {"suspension/state", Kind::kText},
                            {"suspension/error", Kind::kText},
                            {"suspension/bytes", Kind::kCount},
                            {"suspension/asleep", Kind::kFlag},
                            {"suspension/since", Kind::kCount},
                            {"suspension/saved", Kind::kText},
                            {"suspension/leave_us", Kind::kObject},
                            {"suspension/leave_us/at_rest", Kind::kCount},
                            {"suspension/leave_us/memory", Kind::kCount},
                            {"suspension/leave_us/contexts", Kind::kCount},
                            {"suspension/leave_us/driver", Kind::kCount},
                            {"suspension/return_us", Kind::kObject},
                            {"suspension/return_us/driver", Kind::kCount},
                            {"suspension/return_us/contexts", Kind::kCount},
                            {"suspension/return_us/memory", Kind::kCount},
                            {"suspension/return_us/going_on", Kind::kCount},
                            {"saved", Kind::kText},
                            {"asleep", Kind::kFlag},
                            {"sleep_error", Kind::kText},
                            {"sleeps", Kind::kFlag},
                            {"restored", Kind::kCount},
                            {"would_sleep", Kind::kFlag},
                            {"bytes", Kind::kCount},
                            {"checkpointed", Kind::kCount},
                            {"wants_room", Kind::kFlag},
                            {"usage", Kind::kObject},
                            {"limits", Kind::kObject},
                            {"stalls", Kind::kObject},
                            {"stalls/waits", Kind::kCount},
                            {"stalls/wait_ns", Kind::kCount},
                            {"segments", Kind::kList},
                            {"processes", Kind::kList},
                            {"sharing", Kind::kText},
                            {"planning", Kind::kText},
                            {"runners", Kind::kObject},
                            {"runners/warm", Kind::kCount},
                            {"runners/living", Kind::kCount},
                            {"runners/started", Kind::kCount},
                            {"runners/failed", Kind::kCount},
                            {"vm", Kind::kObject},
                            {"vm/connected", Kind::kFlag},
                            {"vm/driver", Kind::kFlag},
                            {"vm/ram_bytes", Kind::kCount},
                            {"direct", Kind::kObject},
                            {"direct/connections", Kind::kCount}};

bool is(const json& value, Kind kind) {
  switch (kind) {
    case Kind::kText:
      return value.is_string();
    case Kind::kCount:
      return value.is_number_integer();
    case Kind::kFlag:
      return value.is_boolean();
    case Kind::kObject:
      return value.is_object();
    case Kind::kList:
      return value.is_array();
  }
  return false;
}

// Null: it is not there.
const json* find(const json& object, std::string_view path) {
  const size_t slash = path.find('/');
  if (!object.is_object()) return nullptr;
  const auto found = object.find(path.substr(0, slash));
  if (found == object.end()) return nullptr;
  return slash == path.npos ? &*found : find(*found, path.substr(slash + 1));
}

Status check_fields(const json& object, std::span<const Field> fields) {
  for (const Field& field : fields) {
    const json* const value = find(object, field.at);
    if (value && !is(*value, field.kind)) return Status::error(EPROTO, "its '{}' is {}", field.at, value->type_name());
  }
  return {};
}

bool is_plain(const std::string& text) {
  return text.size() <= kLongestText &&
         std::none_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
}

Status check_size(const json& value, int depth, size_t* values) {
  if (depth > kDeepest) return Status::error(EPROTO, "it is deeper than {} levels", kDeepest);
  if (++*values > kMostValues) return Status::error(EPROTO, "it has more than {} values", kMostValues);
  if (value.is_string() && !is_plain(value.get_ref<const std::string&>())) {
    return Status::error(EPROTO, "a text is too long, or has control characters");
  }
  if (!value.is_structured()) return {};
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (value.is_object() && !is_plain(item.key())) return Status::error(EPROTO, "a name has control characters");
    if (Status status = check_size(*item, depth + 1, values); !status.ok()) return status;
  }
  return {};
}

Status check_usage(const json& object) {
  const auto usage = object.find("usage");
  if (usage == object.end()) return {};
  Status status = check_fields(*usage, kUsage);
  const json* const refused = find(*usage, "slicing/refused");
  if (!status.ok() || !refused) return status;
  const bool counts =
      std::all_of(refused->begin(), refused->end(), [](const json& n) { return n.is_number_integer(); });
  return counts ? Status() : Status::error(EPROTO, "its 'refused' does not count");
}

Status check_limits(const json& reply) {
  const auto limits = reply.find("limits");
  if (limits == reply.end()) return {};
  for (const json& limit : *limits) {
    static constexpr Field kLimit[] = {{"held", Kind::kCount}, {"most", Kind::kCount}};
    if (!limit.is_object()) return Status::error(EPROTO, "a limit is {}", limit.type_name());
    if (Status status = check_fields(limit, kLimit); !status.ok()) return status;
  }
  return {};
}

Status check_segments(const json& reply) {
  static constexpr Field kSegment[] = {{"id", Kind::kText},    {"name", Kind::kText}, {"bytes", Kind::kCount},
                                       {"named", Kind::kFlag}, {"own", Kind::kFlag},  {"state", Kind::kText},
                                       {"error", Kind::kText}, {"users", Kind::kList}};
  static constexpr Field kUser[] = {{"vgpu", Kind::kCount}, {"count", Kind::kCount}};
  const auto segments = reply.find("segments");
  if (segments == reply.end()) return {};
  for (const json& segment : *segments) {
    if (!segment.is_object()) return Status::error(EPROTO, "a segment is {}", segment.type_name());
    if (Status status = check_fields(segment, kSegment); !status.ok()) return status;
    for (const json& user : segment.value("users", json::array())) {
      if (!user.is_object()) return Status::error(EPROTO, "a segment's user is {}", user.type_name());
      if (Status status = check_fields(user, kUser); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace

Status check_reply(const json& reply) {
  if (!reply.is_object()) return Status::error(EPROTO, "it is not an object");
  size_t values = 0;
  Status status = check_size(reply, 0, &values);
  if (status.ok()) status = check_fields(reply, kReply);
  if (status.ok()) status = check_usage(reply);
  if (status.ok()) status = check_limits(reply);
  if (status.ok()) status = check_segments(reply);
  if (!status.ok()) return status;
  const auto processes = reply.find("processes");
  if (processes == reply.end()) return {};
  for (const json& process : *processes) {
    if (!process.is_object()) return Status::error(EPROTO, "a process is {}", process.type_name());
    status = check_fields(process, kProcess);
    if (status.ok()) status = check_usage(process);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace bandsaw
