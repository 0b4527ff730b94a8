#include "tools/vgpuctl/top_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/output.h"
#include "vgpu-sched/engine.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

json at(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) ? object[path] : json();
}

// How much a counter grew; null: it is not there.
json growth(const json& before, const json& after, const std::string& pointer) {
  const json now = at(after, pointer), then = at(before, pointer);
  if (!now.is_number()) return {};
  const double value = now.get<double>(), base = then.is_number() ? then.get<double>() : value;
  return value >= base ? value - base : value;
}

json per(const json& amount, double seconds) {
  if (!amount.is_number() || seconds <= 0) return {};
  return amount.get<double>() / seconds;
}

json percent_of(const json& nanoseconds, double seconds) { return per(nanoseconds, seconds * 1e7); }

json engine_rates(const json& before, const json& after, std::string_view engine, double seconds) {
  const std::string path = fmt::format("/engines/{}", engine);
  json busy = growth(before, after, path + "/busy_ns");
  // Without an arbiter, the runners' own count of compute is what there is.
  if (busy.is_null() && engine == kEngineNames[kCompute]) busy = growth(before, after, "/used/compute_ns");
  const json wait = growth(before, after, path + "/wait_ns"), grants = growth(before, after, path + "/grants");
  const bool granted = grants.is_number() && grants.get<double>() > 0;
  return {{"use_percent", percent_of(busy, seconds)},
          {"share_percent", at(after, engine == kEngineNames[kCompute] ? "/compute" : "/copy")},
          {"wait_ms", granted ? json(wait.get<double>() / grants.get<double>() * 1e-6) : json()},
          {"time_slices_per_s", per(grants, seconds)},
          {"waiting", at(after, path + "/waiting")}};
}

json state_word(const json& view) {
  if (at(view, "/suspended") == true) return kSuspended;
  return at(view, "/live/suspension/asleep") == true ? json(kAsleep) : at(view, "/session/state");
}

json vgpu_rates(const json& before, const json& after) {
  const json begun = at(before, "/at_ns"), ended = at(after, "/at_ns");
  const double seconds =
      begun.is_number() && ended.is_number() ? (ended.get<double>() - begun.get<double>()) * 1e-9 : 0;
  json result = {
      {"name", at(after, "/name")},
      {"device", at(after, "/device")},
      {"state", state_word(after)},
      {"memory", at(after, "/memory")},
      {"memory_used", at(after, "/live/memory_used")},
      {"processes", at(after, "/live/processes").is_array() ? json(after["live"]["processes"].size()) : json()},
      {"calls_per_s", per(growth(before, after, "/live/usage/calls"), seconds)},
      {"launches_per_s", per(growth(before, after, "/live/usage/launches"), seconds)},
      {"errors_per_s", per(growth(before, after, "/live/usage/errors"), seconds)}};
  for (const std::string_view engine : kEngineNames)
    result["engines"][engine] = engine_rates(before, after, engine, seconds);
  return result;
}

std::string use_cell(const json& engine) {
  const json use = at(engine, "/use_percent"), share = at(engine, "/share_percent");
  return fmt::format("{:>5} /{:>4} %", use.is_number() ? fmt::format("{:.1f}", use.get<double>()) : "-",
                     share.is_number() ? json_text(share) : "-");
}

std::string wait_cell(const json& engine) {
  const json wait = at(engine, "/wait_ms");
  return wait.is_number() ? fmt::format("{:>7.2f} ms", wait.get<double>()) : fmt::format("{:>10}", "-");
}

std::string memory_cell(const json& vgpu) {
  const json used = at(vgpu, "/memory_used"), share = at(vgpu, "/memory");
  const auto bytes = [](const json& value) {
    return value.is_number() ? format_size(static_cast<uint64_t>(std::max(0.0, value.get<double>()))) : "-";
  };
  return fmt::format("{:>10} / {:>9}", bytes(used), bytes(share));
}

std::string text_or(const json& value, const char* otherwise) {
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::vector<std::string> row(const json& vgpu) {
  std::vector<std::string> cells = {text_or(at(vgpu, "/name"), "?"), text_or(at(vgpu, "/device"), "-")};
  for (const std::string_view engine : kEngineNames) {
    cells.push_back(use_cell(at(vgpu, fmt::format("/engines/{}", engine))));
    cells.push_back(wait_cell(at(vgpu, fmt::format("/engines/{}", engine))));
  }
  const json processes = at(vgpu, "/processes");
  cells.push_back(memory_cell(vgpu));
  cells.push_back(fmt::format("{:>7}", rate_text(at(vgpu, "/calls_per_s"))));
  cells.push_back(fmt::format("{:>7}", rate_text(at(vgpu, "/launches_per_s"))));
  const json state = at(vgpu, "/state");
  const bool counts = processes.is_number() && state != kSuspended && state != kAsleep;
  cells.push_back(counts ? json_text(processes) : text_or(state, "-"));
  return cells;
}

std::string text(const json& status, const std::string& pointer) {
  const json value = at(status, pointer);
  return value.is_string() ? value.get<std::string>() : value.is_number() ? json_text(value) : "-";
}

}  // namespace

json rates(const json& before, const json& after) {
  json result = {{"interval_s", json()}, {"vgpus", json::array()}};
  for (const json& now : after) {
    const auto same = std::find_if(before.begin(), before.end(),
                                   [&](const json& then) { return at(then, "/name") == at(now, "/name"); });
    const json then = same == before.end() ? json::object() : *same;
    result["vgpus"].push_back(vgpu_rates(then, now));
    if (at(then, "/at_ns").is_number()) {
      result["interval_s"] = (at(now, "/at_ns").get<double>() - then["at_ns"].get<double>()) * 1e-9;
    }
  }
  return result;
}

std::string rate_text(const json& rate) {
  if (!rate.is_number()) return "-";
  double value = rate.get<double>();
  const char* unit = "";
  for (const char* larger : {"k", "M"}) {
    if (value < 10000) break;
    value /= 1000;
    unit = larger;
  }
  return fmt::format("{:.{}f}{}", value, value < 10 && value > 0 ? 1 : 0, unit);
}

namespace {

// "cuda:0, cuda:1 (lost)", and the model if there is but one.
std::string devices_text(const json& status) {
  const json devices = at(status, "/devices");
  if (!devices.is_array() || devices.empty()) return "-";
  std::string result;
  for (const json& device : devices) {
    result += (result.empty() ? "" : ", ") + text(device, "/id") +
              (!text_or(at(device, "/lost"), "").empty() ? " (lost)"
               : at(device, "/drained") == true          ? " (drained)"
                                                         : "");
  }
  return devices.size() > 1 ? result : result + ": " + text(devices[0], "/name");
}

}  // namespace

std::string device_line(const json& status) {
  const std::string policy = text(status, "/scheduler/policy");
  return fmt::format(
      "{}, {} virtual GPUs, {}", devices_text(status), text(status, "/vgpus"),
      policy == "-" || policy == "none" ? "not scheduled" : policy + " " + text(status, "/scheduler/queues"));
}

std::vector<std::string> top_lines(const json& status, const json& rates) {
  std::vector<std::vector<std::string>> rows = {{"NAME", "GPU", "COMPUTE/SHARE", "      WAIT", "COPY IN", "      WAIT",
                                                 "COPY OUT", "      WAIT", "MEMORY USED / SHARE", "CALLS/S",
                                                 "LAUNCHES/S", "PROC"}};
  auto vgpus = rates["vgpus"].get<std::vector<json>>();
  std::sort(vgpus.begin(), vgpus.end(), name_less);
  for (const json& vgpu : vgpus) rows.push_back(row(vgpu));
  std::vector<std::string> lines = table_lines(rows);
  lines.insert(lines.begin(), device_line(status));
  return lines;
}

}  // namespace bandsaw::ctl
