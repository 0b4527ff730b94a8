// Reports: what a virtual GPU used of what it was promised, hour by hour.
#include <charconv>
#include <ctime>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "memory/base/clock.h"

namespace bandsaw {

using api::refuse;
using nlohmann::json;

namespace {

constexpr std::string_view kHours = "hours=";
constexpr int64_t kHoursUsual = 24, kHour = 3600;

// 0: the query says nothing that is understood.
int64_t hours_of(std::string_view query) {
  if (query.empty()) return kHoursUsual;
  if (!query.starts_with(kHours)) return 0;
  query.remove_prefix(kHours.size());
  int64_t hours = 0;
  const auto [end, code] = std::from_chars(query.data(), query.data() + query.size(), hours);
  return code == std::errc() && end == query.data() + query.size() && hours <= kHistoryHours ? hours : 0;
}

}  // namespace

void Api::note_use(const json& view) {
  if (history_) history_->sample(view, ::time(nullptr), monotonic_ns());
}

// Sessions of those that nobody uses are left asleep: what was promised is known here.
void Api::note_all() {
  static const json::json_pointer processes("/live/processes"), memory("/live/memory_used");
  for (const VgpuSpec& spec : registry_->all()) {
    if (!session_manager_->used(spec.name)) {
      note_use(to_json(spec));
      continue;
    }
    view(spec, [this](const json& object) {
      note_use(object);
      const bool unused =
          object.contains(processes) && object[processes].empty() && object.value(memory, uint64_t{1}) == 0;
      if (unused) session_manager_->quiet(object.value("name", ""));
    });
  }
}

// Of one that is gone too, as long as anything is known of it.
void Api::report(const HttpRequest& request, const Answer& answer) {
  const int64_t hours = hours_of(request.query);
  if (hours <= 0) {
    return refuse(answer, 400, fmt::format("'{}' is not hours=N", request.query.substr(0, 80)),
                  fmt::format("N is 1 to {}", kHistoryHours));
  }
  const std::string name = request.path[2];
  const auto finish = [this, name, hours, answer] {
    const int64_t now = ::time(nullptr);
    const json found = history_ ? history_->report(name, now - hours * kHour, now) : json();
    if (!found.is_object() || (found["hours"].empty() && !registry_->find(name))) return not_found(name, answer);
    api::send(answer, 200, found);
  };
  const std::optional<VgpuSpec> spec = registry_->find(name);
  if (!spec) return finish();
  view(*spec, [this, finish](const json& object) {
    note_use(object);
    finish();
  });
}

}  // namespace bandsaw
