// Which method of which resource does what: the control API's routes, as openapi.yaml describes them.
#include <fmt/ranges.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/shares.h"
#include "memory/base/json.h"
#include "memory/base/log_about.h"

namespace bandsaw {

using api::refuse;
using nlohmann::json;

struct Api::Route {
  const char* method;
  const char* path;  // {name}: of a virtual GPU that is there, of one in a report, of a shared segment, or of a device
  void (*handle)(Api&, const Call&);
};

struct Api::Call {
  const HttpRequest& request;
  const VgpuSpec& vgpu;  // of a path with {name}
  const Answer& answer;
  json body() const { return parse_json(request.body); }
};

namespace {

constexpr std::string_view kName = "{name}";

// Whether the parts of a request's path are those of a route's.
bool matches(std::string_view route, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (!route.starts_with('/')) return false;
    route.remove_prefix(1);
    const std::string_view wanted = route.substr(0, route.find('/'));
    if (wanted != kName && wanted != part) return false;
    route.remove_prefix(wanted.size());
  }
  return route.empty();
}

// The target and the body, for a line of the log.
std::string printed(const HttpRequest& request) {
  constexpr size_t kMost = 512;
  std::string text = fmt::format("/{} {}", fmt::join(request.path, "/"), request.body).substr(0, kMost);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// "alice (1000)", or the number alone where the host has no name for it.
std::string user_text(uid_t uid) {
  const ::passwd* const found = ::getpwuid(uid);
  return found ? fmt::format("{} ({})", found->pw_name, uid) : std::to_string(uid);
}

// Of the virtual GPU that a request wants to be made; empty: it is no such request.
std::string new_name(const HttpRequest& request) {
  const bool makes = request.path.size() == 2 && (request.path[1] == "vgpus" || request.path[1] == "segments");
  const json body = makes ? parse_json(request.body) : json();
  if (!body.is_object() || !body.contains("name") || !body["name"].is_string()) return "";
  return body["name"].get<std::string>();
}

}  // namespace

const std::vector<Api::Route>& Api::table() {
  static const std::vector<Route> routes = {
      {"GET", "/v1/status", [](Api& api, const Call& call) { api.status(call.answer); }},
      {"POST", "/v1/shutdown", [](Api& api, const Call& call) { api.shut_down(call.answer); }},
      {"GET", "/v1/vgpus", [](Api& api, const Call& call) { api.list(call.answer); }},
      {"POST", "/v1/vgpus", [](Api& api, const Call& call) { api.create(call.body(), call.answer); }},
      {"GET", "/v1/vgpus/{name}", [](Api& api, const Call& call) { api.show(call.vgpu, 200, call.answer); }},
      {"PATCH", "/v1/vgpus/{name}",
       [](Api& api, const Call& call) { api.change(call.body(), call.vgpu, call.answer); }},
      {"DELETE", "/v1/vgpus/{name}",
       [](Api& api, const Call& call) { api.destroy(call.vgpu, call.request.query == "force=1", call.answer); }},
      {"POST", "/v1/vgpus/{name}/attach",
       [](Api& api, const Call& call) { api.attach(call.body(), call.vgpu, call.answer); }},
      {"POST", "/v1/vgpus/{name}/detach", [](Api& api, const Call& call) { api.detach(call.vgpu, call.answer); }},
      {"POST", "/v1/vgpus/{name}/suspend",
       [](Api& api, const Call& call) { api.suspend(call.vgpu, call.request.query == "contexts=stay", call.answer); }},
      {"POST", "/v1/vgpus/{name}/resume", [](Api& api, const Call& call) { api.resume(call.vgpu, call.answer); }},
      {"POST", "/v1/vgpus/{name}/save",
       [](Api& api, const Call& call) { api.save(call.vgpu, call.request.peer.uid, call.answer); }},
      {"POST", "/v1/vgpus/{name}/restore",
       [](Api& api, const Call& call) { api.bring_back(call.vgpu, call.request.peer.uid, call.answer); }},
      {"POST", "/v1/vgpus/{name}/move",
       [](Api& api, const Call& call) { api.move(call.body(), call.vgpu, call.answer); }},
      {"GET", "/v1/vgpus/{name}/xml", [](Api& api, const Call& call) { api.xml(call.vgpu, call.answer); }},
      {"PATCH", "/v1/devices/{name}",
       [](Api& api, const Call& call) { api.change_device(call.request, call.body(), call.answer); }},
      {"GET", "/v1/scheduler", [](Api& api, const Call& call) { api.scheduler(call.answer); }},
      {"PATCH", "/v1/scheduler", [](Api& api, const Call& call) { api.change_scheduler(call.body(), call.answer); }},
      {"GET", "/v1/segments", [](Api& api, const Call& call) { api.list_segments(call.answer); }},
      {"POST", "/v1/segments", [](Api& api, const Call& call) { api.create_segment(call.body(), call.answer); }},
      {"DELETE", "/v1/segments/{name}",
       [](Api& api, const Call& call) { api.destroy_segment(call.request, call.answer); }},
      {"POST", "/v1/segments/{name}/grant",
       [](Api& api, const Call& call) { api.grant_segment(call.request, call.body(), call.answer); }},
      {"POST", "/v1/segments/{name}/revoke",
       [](Api& api, const Call& call) { api.revoke_segment(call.request, call.body(), call.answer); }},
      {"GET", "/v1/reports/{name}", [](Api& api, const Call& call) { api.report(call.request, call.answer); }},
      {"POST", "/v1/trace/start", [](Api& api, const Call& call) { api.start_trace(call.body(), call.answer); }},
      {"POST", "/v1/trace/take", [](Api& api, const Call& call) { api.take_trace(call.body(), call.answer); }},
  };
  return routes;
}

bool Api::administers(const HttpRequest& request) const {
  if (request.peer.uid == 0 || request.peer.uid == ::geteuid()) return true;
  const ::group* const group = config_.admin_group.empty() ? nullptr : ::getgrnam(config_.admin_group.c_str());
  return group && std::find(request.groups.begin(), request.groups.end(), group->gr_gid) != request.groups.end();
}

// Who changed what, from what to what: a line for each change, whatever came of it.
HttpServer::Answer Api::audited(const HttpRequest& request, const VgpuSpec& before, HttpServer::Answer answer) const {
  const std::string what = fmt::format("user {} (pid {}): {} {}", user_text(request.peer.uid), request.peer.pid,
                                       request.method, printed(request));
  const bool segment = request.path.size() > 1 && request.path[1] == "segments";
  const std::string named = segment && request.path.size() > 2 ? request.path[2] : before.name;
  const std::string name = named.empty() ? new_name(request) : named;
  const bool device = request.path.size() > 2 && request.path[1] == "devices";
  const std::string device_name = device ? request.path[2] : "";
  // Of a virtual GPU or shared segment, there or not; of a device, whether it is drained; of everything else that can
  // be changed, how devices are scheduled.
  const auto state = [this, name, segment, device_name] {
    if (!device_name.empty()) {
      const Gpu* const gpu = std::as_const(*gpus_).find(device_name);
      return gpu ? json_text({{"drained", gpu->device.drained}}) : std::string("nothing");
    }
    if (segment) {
      const std::optional<SegmentSpec> spec = registry_->find_segment(name);
      return spec ? json_text(to_json(*spec)) : std::string("nothing");
    }
    if (name.empty()) return json_text(scheduler_state());
    const std::optional<VgpuSpec> spec = registry_->find(name);
    return spec ? json_text(to_json(*spec)) : std::string("nothing");
  };
  const std::string vgpu = segment ? "" : name;
  return [what, vgpu, state, from = state(), answer = std::move(answer)](const HttpAnswer& given) {
    const std::string to = state();
    const std::string change = from == to ? "nothing changed" : fmt::format("from {}, to {}", from, to);
    log::info(log::About{.vgpu = vgpu, .begins = false}, "audit: {}: {}, {}", what, given.code, change);
    answer(given);
  };
}

std::vector<std::string> Api::routes() {
  std::vector<std::string> lines;
  for (const Route& route : table()) lines.push_back(fmt::format("{} {}", route.method, route.path));
  return lines;
}

void Api::handle(const HttpRequest& request, Answer answer) {
  const Route* found = nullptr;
  std::vector<const char*> methods;  // of this resource
  for (const Route& route : table()) {
    if (!matches(route.path, request.path)) continue;
    methods.push_back(route.method);
    if (request.method == route.method) found = &route;
  }
  VgpuSpec vgpu;
  if (request.path.size() > 2 && request.path[0] == "v1" && request.path[1] == "vgpus") {
    const std::optional<VgpuSpec> spec = registry_->find(request.path[2]);
    if (!spec) return not_found(request.path[2], answer);
    vgpu = *spec;
  }
  if (found && request.method != "GET") {
    if (!administers(request)) {
      log::warn("audit: user {} (pid {}) may not {} {}", user_text(request.peer.uid), request.peer.pid, request.method,
                printed(request));
      return refuse(answer, 403, fmt::format("user {} may look, and not change", request.peer.uid),
                    fmt::format("root and the group '{}' may (control.admin_group in vgpud's configuration)",
                                config_.admin_group));
    }
    answer = audited(request, vgpu, std::move(answer));
  }
  if (found && ending_ && request.method != "GET") {
    return refuse(answer, 503, "vgpud is ending", "start it again, then ask");
  }
  if (found) return found->handle(*this, {request, vgpu, answer});
  if (methods.empty()) return refuse(answer, 404, "no such resource", "openapi.yaml, installed with vgpud, lists all");
  refuse(answer, 405, request.method + " is not possible here",
         fmt::format("this resource has {}", fmt::join(methods, ", ")));
}

void Api::not_found(const std::string& name, const Answer& answer) const {
  const std::string nearest = nearest_name(name, registry_->names());
  refuse(answer, 404, fmt::format("no virtual GPU '{}'", name.substr(0, 80)),
         nearest.empty() ? "`vgpuctl list` shows all" : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace bandsaw
