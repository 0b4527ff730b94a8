#include "tools/vgpuctl/commands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "backend/control/http_client.h"
#include "backend/control/paths.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/domain_shares.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

// As it is written now. A word that there is not stays: vgpud refuses it and says which there are.
std::string sharing_word(const std::string& typed) {
  const auto sharing = parse_sharing(typed);
  return sharing.ok() ? to_text(sharing.value()) : typed;
}

// Settings of all devices that were given on the command line.
json scheduler_settings(const Options& options) {
  json body = json::object();
  if (!options.policy.empty()) body["policy"] = options.policy;
  if (!options.queues.empty()) body["queues"] = options.queues;
  if (!options.planning_mode.empty()) body["planning"] = options.planning_mode;
  return body;
}

// What the API takes for --idle-suspend.
Result<json> idle_suspend(const std::string& text) {
  if (text == "default") return json();
  if (text == "never" || text == "none") return json(0);
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size()) return json(seconds);
  return Status::error(EINVAL, "--idle-suspend: '{}' is no time; write a number of seconds, never or default",
                       text.substr(0, 64));
}

// Of a size that may be left out. `none`: the word for 0.
Status take_size(const std::string& text, std::string_view key, std::string_view none, json* body) {
  if (text.empty()) return {};
  const auto bytes = parse_size(text == none ? "0" : text);
  if (!bytes.ok()) {
    std::string option(key);
    std::replace(option.begin(), option.end(), '_', '-');
    return Status::error(EINVAL, "--{}: {}", option, bytes.status().message());
  }
  (*body)[key] = bytes.value();
  return {};
}

// The shares that were given on the command line.
Result<json> shares(const Options& options) {
  json body = json::object();
  Status sizes = take_size(options.memory, "memory", "", &body);
  if (sizes.ok()) sizes = take_size(options.resident, "resident", "all", &body);
  if (sizes.ok()) sizes = take_size(options.host_memory, "host_memory", "default", &body);
  if (!sizes.ok()) return sizes;
  if (options.compute) body["compute"] = *options.compute;
  if (options.copy) body["copy"] = *options.copy;
  if (options.cap) body["cap"] = *options.cap;
  if (options.reserve) body["reserve"] = *options.reserve;
  if (options.priority) body["priority"] = *options.priority;
  if (options.latency_us) body["latency_us"] = *options.latency_us;
  if (options.kernel_deadline_ms) body["kernel_deadline_ms"] = *options.kernel_deadline_ms;
  if (!options.idle_suspend.empty()) {
    const auto seconds = idle_suspend(options.idle_suspend);
    if (!seconds.ok()) return seconds.status();
    body["idle_suspend_s"] = seconds.value();
  }
  if (!options.sharing.empty()) body["sharing"] = sharing_word(options.sharing);
  if (options.group) body["group"] = *options.group == kNoGroup ? "" : *options.group;
  if (options.guard) body["guard"] = *options.guard;
  if (options.allow_machine_code) body["allow_machine_code"] = *options.allow_machine_code;
  if (options.clear_shared) body["clear_shared"] = *options.clear_shared;
  if (options.sms) body["sms"] = *options.sms;
  for (const std::string& limit : options.limits) {
    const size_t equals = std::min(limit.find('='), limit.size());
    const std::string name = limit.substr(0, equals), value = limit.substr(std::min(equals + 1, limit.size()));
    Limits number{};
    const auto kind = find_limited(name);
    Status status = kind.status();
    if (status.ok() && value != "default") status = read_limits(limit, &number);
    if (!status.ok()) return status;
    body["limits"][name] = value == "default" ? json() : json(number[static_cast<size_t>(kind.value())]);
  }
  if (options.owner) body["owner"] = *options.owner == "none" ? "" : *options.owner;
  if (!options.direct_mode.empty()) body["direct_mode"] = options.direct_mode;
  if (!options.direct_group.empty()) body["direct_group"] = options.direct_group;
  return body;
}

// `create` and `set` took them once.
int refuse_scheduler_settings(const Options& options) {
  return print_refusal({kUsage, "policy, queues and planning mode are settings of all devices together",
                        "`vgpuctl scheduler set` takes them"},
                       options.json);
}

}  // namespace

int create(const Options& options) {
  if (!scheduler_settings(options).empty()) return refuse_scheduler_settings(options);
  auto body = shares(options);
  if (!body.ok()) return print_wrong_usage(options, body.status().message());
  body.value()["name"] = options.name;
  if (!options.device.empty()) body.value()["device"] = options.device;
  return finish(options, call(options, "POST", "/v1/vgpus", body.value()), [](const json& view) {
    fmt::print("created {} on {}: {}\n", view.value("name", ""), view.value("device", ""), shares_line(view));
    print_notes(view);
  });
}

int destroy(const Options& options) {
  const std::string target = vgpu_target(options) + (options.force ? "?force=1" : "");
  std::string domain;
  if (options.force) {
    const Reply before = call(options, "GET", vgpu_target(options));
    if (const json* view = std::get_if<json>(&before)) domain = view->value("domain", "");
  }
  return finish(options, call(options, "DELETE", target), [&domain](const json& done) {
    const std::string name = done.value("name", "");
    fmt::print("destroyed {}\n", name);
    if (domain.empty()) return;
    fmt::print("what domain {} has of it yet goes by `vgpuctl detach {} {}`; until then it may not start\n", domain,
               name, domain);
  });
}

namespace {

// As vgpud takes them: "soft" is "soft:0".
bool is_device(const json& device, const char* name, const char* uuid, const std::string& wanted) {
  const std::string called = device.value(name, ""), zero = "soft:0";
  const auto whole = [&zero](const std::string& text) { return text == "soft" ? zero : text; };
  return whole(called) == whole(wanted) || (!wanted.empty() && device.value(uuid, "") == wanted);
}

// Those of the device that was asked for, which may be gone while its virtual GPUs are kept.
Reply vgpus_on_device(const Options& options) {
  Reply reply = call(options, "GET", "/v1/vgpus");
  json* const vgpus = std::get_if<json>(&reply);
  if (!vgpus || options.device.empty()) return reply;
  json found = json::array();
  for (const json& vgpu : *vgpus) {
    if (is_device(vgpu, "device", "device_uuid", options.device)) found.push_back(vgpu);
  }
  if (!found.empty()) return found;
  const Reply status = call(options, "GET", "/v1/status");
  if (std::holds_alternative<Refusal>(status)) return status;
  for (const json& device : std::get<json>(status).value("devices", json::array())) {
    if (is_device(device, "id", "uuid", options.device)) return found;
  }
  return Refusal{kNotFound, fmt::format("no device '{}'", options.device), "`vgpuctl status` lists the devices"};
}

}  // namespace

int list(const Options& options) { return print_list(options, vgpus_on_device(options), list_rows); }

int show(const Options& options) { return finish(options, call(options, "GET", vgpu_target(options)), print_vgpu); }

int set(const Options& options) {
  if (!scheduler_settings(options).empty()) return refuse_scheduler_settings(options);
  auto body = shares(options);
  if (!body.ok()) return print_wrong_usage(options, body.status().message());
  if (body.value().empty()) {
    return print_refusal({kUsage, "nothing to set", "give --memory, --compute, --copy or another (see --help)"},
                         options.json);
  }
  const Reply reply = call(options, "PATCH", vgpu_target(options), body.value());
  const int exit = finish(options, reply, [](const json& view) {
    fmt::print("{}: {}\n", view.value("name", ""), shares_line(view));
    print_notes(view);
  });
  if (exit == kOk) follow_in_domain(options, body.value(), std::get<json>(reply));
  return exit;
}

int show_scheduler(const Options& options) {
  return finish(options, call(options, "GET", "/v1/scheduler"), print_scheduler);
}

int set_scheduler(const Options& options) {
  const json body = scheduler_settings(options);
  if (body.empty()) {
    return print_refusal({kUsage, "nothing to set", "give --policy, --queues or --planning (see --help)"},
                         options.json);
  }
  return finish(options, call(options, "PATCH", "/v1/scheduler", body), print_scheduler);
}

namespace {

int suspend_or_resume(const Options& options, const char* action, const char* done) {
  return finish(options, call(options, "POST", vgpu_target(options) + "/" + action), [done](const json& view) {
    fmt::print("{} is {}\n", view.value("name", ""), done);
    print_notes(view);
  });
}

}  // namespace

int suspend(const Options& options) { return suspend_or_resume(options, "suspend", "suspended"); }
int resume(const Options& options) { return suspend_or_resume(options, "resume", "running again"); }

int move(const Options& options) {
  const json body = options.device.empty() ? json::object() : json{{"device", options.device}};
  return finish(options, call(options, "POST", vgpu_target(options) + "/move", body), [](const json& view) {
    fmt::print("{} is on {}\n", view.value("name", ""), view.value("device", ""));
    print_notes(view);
  });
}

int status(const Options& options) { return finish(options, call(options, "GET", "/v1/status"), print_status); }

namespace {

// Of those that programs or VMs use.
std::string names_in_use(const json& vgpus) {
  std::string names;
  for (const json& vgpu : vgpus) {
    const json live = vgpu.value("live", json());
    if (!live.is_object()) continue;
    if (live.value("processes", json::array()).empty() && !live.value("/vm/connected"_json_pointer, false)) continue;
    names += (names.empty() ? "" : ", ") + vgpu.value("name", "");
  }
  return names;
}

// vgpud ends soon after its answer; until then another one cannot begin.
bool has_ended(const Options& options) {
  constexpr std::chrono::milliseconds kBetween{20};
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    if (::access(control_socket(options.run).c_str(), F_OK) != 0) return true;
    std::this_thread::sleep_for(kBetween);
  }
  return false;
}

}  // namespace

int shutdown(const Options& options) {
  if (!options.force) {
    const Reply reply = call(options, "GET", "/v1/vgpus");
    if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
    if (const std::string names = names_in_use(std::get<json>(reply)); !names.empty()) {
      return print_refusal({kRefused, "in use: " + names,
                            "end their programs and VMs first, or add --force to end them now; `systemctl stop vgpud` "
                            "ends vgpud alone"},
                           options.json);
    }
  }
  const Reply reply = call(options, "POST", "/v1/shutdown");
  const bool done = std::holds_alternative<json>(reply) && has_ended(options);
  return finish(options, reply, [done](const json&) {
    fmt::print("{}\n", done ? "vgpud and all sessions have ended" : "all sessions have ended, and vgpud is ending");
  });
}

}  // namespace bandsaw::ctl
