#include "tools/vgpuctl/output.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "vgpu-sched/engine.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

// A member at a JSON pointer, or what it would be if nobody had touched it: a session may be away.
template <typename T>
T get(const json& object, const char* pointer, T fallback) {
  const json::json_pointer path(pointer);
  if (!object.contains(path) || object[path].is_null()) return fallback;
  return object[path].get<T>();
}

std::string percent(uint64_t value) { return value ? fmt::format("{} %", value) : "-"; }
// 100 % is no cap.
std::string cap_text(const json& view) {
  const auto cap = get<uint64_t>(view, "/cap", 100);
  return cap < 100 ? percent(cap) : "-";
}
std::string seconds(uint64_t nanoseconds) { return fmt::format("{:.3f} s", static_cast<double>(nanoseconds) * 1e-9); }
std::string size(int64_t bytes) { return format_size(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))); }

std::string policy_line(const json& object) {
  const auto policy = get<std::string>(object, "/scheduler/policy", "?");
  if (policy == "none") return "nothing: shares of compute and copy are not enforced";
  const bool one = get<std::string>(object, "/scheduler/queues", "") == "sdq";
  return fmt::format("{}, {}", policy, one ? "sdq (one queue for all engines)" : "mrq (a queue for each engine)");
}

// The MPS daemon of a device.
std::string mps_line(const json& device) {
  const auto state = get<std::string>(device, "/mps/daemon/state", "");
  if (state.empty()) return "the device has no contexts that MPS could join";
  std::string text = fmt::format("MPS daemon {}", state);
  if (const auto pid = get<int64_t>(device, "/mps/daemon/pid", 0)) text += fmt::format(" (pid {})", pid);
  if (const auto restarts = get<uint64_t>(device, "/mps/daemon/restarts", 0))
    text += fmt::format(", {} restarts", restarts);
  if (const auto error = get<std::string>(device, "/mps/daemon/error", ""); !error.empty()) text += ": " + error;
  return text;
}

// Which SMs programs that start now have.
std::string sms_line(const json& view) {
  const auto count = get<uint64_t>(view, "/sms_given/count", 0), first = get<uint64_t>(view, "/sms_given/first", 0);
  if (count == 0) return "all of the device";
  const bool own = get(view, "/sms_given/own", false);
  return fmt::format("{} ({} to {}), {}", count, first, first + count - 1,
                     own ? "its own" : "with all MPS ones and have none of their own");
}

std::string latency_line(const json& view) {
  const auto bound = get<uint64_t>(view, "/latency_us", 0);
  const auto least = get<uint64_t>(view, "/latency/least_us", 0);
  if (bound == 0) return fmt::format("no bound (the least that it can have is {} us)", least);
  const auto by = get<std::string>(view, "/latency/kept_by", "nothing");
  if (by == "nothing") return fmt::format("at most {} us, not kept here", bound);
  if (by == "time-slices") {
    return fmt::format("at most {} us, kept by the others' time slices; switches for it have cost about {:.3f} s",
                       bound, get<double>(view, "/latency/cost_us", 0) / 1e6);
  }
  const json processes = get(view, "/live/processes", json::array());
  const auto earlier = std::count_if(processes.begin(), processes.end(), [](const json& process) {
    return get<std::string>(process, "/mps_priority", "") == "below-normal";
  });
  const std::string text = fmt::format("at most {} us, kept by {}", bound, by);
  return earlier ? text + fmt::format("; {} of its programs began before", earlier) : text;
}

std::string given_sms(const json& status) {
  uint64_t given = 0;
  const json holders = get(status, "/mps/partitions/given", json::array());
  for (const json& holder : holders) given += get<uint64_t>(holder, "/count", 0);
  return fmt::format("{} of {} given to {}, in groups of {}", given, get<uint64_t>(status, "/mps/partitions/sms", 0),
                     holders.size(), get<uint64_t>(status, "/mps/partitions/step", 0));
}

std::string usage_state(const json& view) {
  const bool vm = get(view, "/live/vm/connected", false);
  const auto state = get<std::string>(view, "/session/state", "?");
  if (state != "running") return state;
  if (!get<std::string>(view, "/live/suspension/saved", "").empty()) return "saved";
  if (get(view, "/suspended", false)) return "suspended";
  if (get(view, "/live/suspension/asleep", false)) return "asleep";
  if (vm) return get(view, "/live/vm/driver", false) ? "vm" : "vm (no driver)";
  return get(view, "/live/processes", json::array()).empty() ? "idle" : "direct";
}

std::string state_line(const json& view) {
  if (const auto saved = get<std::string>(view, "/live/suspension/saved", ""); !saved.empty()) {
    return fmt::format("saved, with {} in a file (number {}); `vgpuctl restore` brings it back",
                       size(get<int64_t>(view, "/live/suspension/bytes", 0)), saved);
  }
  if (get(view, "/suspended", false)) {
    return fmt::format("suspended, with {} in the host's memory; `vgpuctl resume` brings it back",
                       size(get<int64_t>(view, "/suspended_bytes", 0)));
  }
  const std::string state = usage_state(view), error = get<std::string>(view, "/live/suspension/error", "");
  if (state != "asleep") return state;
  const std::string text =
      fmt::format("asleep since {:%F %T}, with {} in the host's memory; the next call brings it back",
                  fmt::localtime(static_cast<std::time_t>(get<int64_t>(view, "/live/suspension/since", 0))),
                  size(get<int64_t>(view, "/live/suspension/bytes", 0)));
  return error.empty() ? text : text + ", which failed: " + error;
}

std::string idle_line(const json& view) {
  const auto path = "/idle_suspend_s"_json_pointer;
  if (!view.contains(path) || view[path].is_null()) return "leaves its device as [idle] in vgpud.toml says";
  const auto seconds = view[path].get<uint64_t>();
  return seconds == 0 ? "keeps its place on the device" : fmt::format("leaves its device after {} s", seconds);
}

void line(const char* name, const std::string& value) { fmt::print("  {:<12} {}\n", name, value); }

void print_engines(const json& engines) {
  if (engines.empty()) return;
  std::vector<std::vector<std::string>> rows = {
      {"ENGINE", "CHARGED", "WAITED", "TIME SLICES", "OVER-RUNS", "WAITING", "RUNNING"}};
  for (const std::string_view name : kEngineNames) {
    const json engine = engines.value(name, json::object());
    rows.push_back({std::string(name), seconds(engine.value("busy_ns", uint64_t{0})),
                    seconds(engine.value("wait_ns", uint64_t{0})), std::to_string(engine.value("grants", uint64_t{0})),
                    std::to_string(engine.value("overruns", uint64_t{0})),
                    std::to_string(engine.value("waiting", uint64_t{0})),
                    std::to_string(engine.value("in_flight", uint64_t{0}))});
  }
  print_table(rows);
}

// What its programs hold of what is limited.
std::string limits_line(const json& limits) {
  std::string text;
  for (const auto& [name, limit] : limits.items()) {
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", name, get<uint64_t>(limit, "/held", 0),
                        get<uint64_t>(limit, "/most", 0));
  }
  return text;
}

// What its session and runners take of the host.
std::string host_line(const json& host) {
  if (host.empty()) return "no bounds (`vgpuctl status` says why)";
  std::string text =
      fmt::format("{} of {}, {} of {} threads, {} of processors", size(get<int64_t>(host, "/memory", 0)),
                  size(get<int64_t>(host, "/memory_most", 0)), get<uint64_t>(host, "/tasks", 0),
                  get<uint64_t>(host, "/tasks_most", 0), seconds(get<uint64_t>(host, "/cpu_us", 0) * 1000));
  if (const auto killed = get<uint64_t>(host, "/killed", 0))
    text += fmt::format(", {} ended for want of memory", killed);
  return text;
}

void print_processes(const json& processes) {
  std::vector<std::vector<std::string>> rows = {
      {"PROCESS", "PID", "VIA", "STATE", "MEMORY", "CALLS", "LAUNCHES", "COMPUTE", "COPY"}};
  const bool nice = std::ranges::any_of(processes, [](const json& process) { return process.contains("nice"); });
  if (nice) rows.front().emplace_back("NICE");
  for (const json& process : processes) {
    rows.push_back({get<std::string>(process, "/comm", "?"), std::to_string(get<uint64_t>(process, "/pid", 0)),
                    get(process, "/direct", false) ? "direct" : "vm", get<std::string>(process, "/state", "?"),
                    size(get<int64_t>(process, "/usage/memory_bytes", 0)),
                    std::to_string(get<uint64_t>(process, "/usage/calls", 0)),
                    std::to_string(get<uint64_t>(process, "/usage/launches", 0)),
                    seconds(get<uint64_t>(process, "/usage/compute_ns", 0)),
                    seconds(get<uint64_t>(process, "/usage/copy_ns", 0))});
    if (nice) rows.back().push_back(std::to_string(get<int64_t>(process, "/nice", 0)));
  }
  print_table(rows);
}

std::string resident_line(const json& view, int64_t resident) {
  const auto used = get<int64_t>(view, "/live/memory_used", 0), swapped = get<int64_t>(view, "/live/memory_swapped", 0);
  const auto borrowed = get<int64_t>(view, "/live/memory_borrowed", 0),
             lent = get<int64_t>(view, "/live/memory_lent", 0);
  const std::string beyond = borrowed != 0 ? fmt::format(" ({} borrowed)", size(borrowed))
                             : lent != 0   ? fmt::format(" ({} lent)", size(lent))
                                           : std::string();
  return fmt::format("{} of {}{}; {} in the host's memory ({} moved in, {} out)", size(used - swapped), size(resident),
                     beyond, size(swapped), size(get<int64_t>(view, "/live/usage/swapped_in", 0)),
                     size(get<int64_t>(view, "/live/usage/swapped_out", 0)));
}

}  // namespace

int print_refusal(const Refusal& refusal, bool json_output) {
  if (json_output) {
    fmt::print("{}\n", json_text(json{{"error", refusal.error}, {"hint", refusal.hint}}));
  } else {
    fmt::print(stderr, "vgpuctl: {}\n", refusal.error);
    if (!refusal.hint.empty()) fmt::print(stderr, "  {}\n", refusal.hint);
  }
  return refusal.exit;
}

int refuse_without_libvirt(bool json_output) {
  return print_refusal(
      {kRefused, "this vgpuctl was built without libvirt", "build with libvirt-dev and libxml2-dev installed"},
      json_output);
}

std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& text = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return lines;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  for (const std::string& text : table_lines(rows)) fmt::print("{}\n", text);
}

std::string group_text(const json& view) {
  if (get<std::string>(view, "/sharing", "time-sliced") != "mps") return "";
  const auto group = get<std::string>(view, "/group", "");
  return group.empty() ? " (alone)" : fmt::format(" (group {})", group);
}

std::string shares_line(const json& view) {
  std::string text = fmt::format("{} of memory, compute {} %, copy {} %", size(get<int64_t>(view, "/memory", 0)),
                                 get<uint64_t>(view, "/compute", 0), get<uint64_t>(view, "/copy", 0));
  if (const auto reserve = get<uint64_t>(view, "/reserve", 0)) text += fmt::format(", reserve {} %", reserve);
  if (const auto cap = get<uint64_t>(view, "/cap", 100); cap < 100) text += fmt::format(", cap {} %", cap);
  if (const auto priority = get<int64_t>(view, "/priority", 0)) text += fmt::format(", priority {}", priority);
  if (const auto latency = get<uint64_t>(view, "/latency_us", 0)) text += fmt::format(", latency {} us", latency);
  if (const auto deadline = get<uint64_t>(view, "/kernel_deadline_ms", 0))
    text += fmt::format(", kernels end within {} ms", deadline);
  if (const auto sharing = get<std::string>(view, "/sharing", "time-sliced"); sharing != "time-sliced")
    text += ", " + sharing + group_text(view);
  if (get(view, "/guard", false)) text += ", guarded";
  if (const auto owner = get<std::string>(view, "/owner", ""); !owner.empty()) text += ", for " + owner;
  if (const auto sms = get<uint64_t>(view, "/sms", 0)) text += fmt::format(", {} SMs of its own", sms);
  return text;
}

void print_scheduler(const json& scheduler) {
  line("policy", policy_line({{"scheduler", scheduler}}));
  line("planning", get<std::string>(scheduler, "/planning", "?"));
  for (const auto& [name, key, unit] :
       {std::tuple{"quantum", "/quantum_us", "us"}, std::tuple{"slice limit", "/slice_timeout_ms", "ms"},
        std::tuple{"depth", "/depth", "in flight"}, std::tuple{"period", "/period_ms", "ms"},
        std::tuple{"wait", "/wait_us", "us"}}) {
    if (scheduler.contains(json::json_pointer(key)))
      line(name, fmt::format("{} {}", get<int64_t>(scheduler, key, 0), unit));
  }
}

void print_notes(const json& view) {
  for (const json& note : get(view, "/notes", json::array())) fmt::print("{}\n", note.get<std::string>());
}

bool name_less(const json& a, const json& b) {
  return ::strverscmp(get<std::string>(a, "/name", "").c_str(), get<std::string>(b, "/name", "").c_str()) < 0;
}

std::vector<std::vector<std::string>> list_rows(json views) {
  std::sort(views.begin(), views.end(), name_less);
  std::vector<std::vector<std::string>> rows = {{"NAME", "DEVICE", "MEMORY", "USED", "RESIDENT", "COMPUTE", "COPY",
                                                 "CAP", "RESERVE", "PRIORITY", "SHARING", "GROUP", "DOMAIN", "STATE",
                                                 "PROCESSES"}};
  for (const json& view : views) {
    rows.push_back({get<std::string>(view, "/name", "?"), get<std::string>(view, "/device", "?"),
                    size(get<int64_t>(view, "/memory", 0)), size(get<int64_t>(view, "/live/memory_used", 0)),
                    size(get<int64_t>(view, "/live/memory_used", 0) - get<int64_t>(view, "/live/memory_swapped", 0)),
                    percent(get<uint64_t>(view, "/compute", 0)), percent(get<uint64_t>(view, "/copy", 0)),
                    cap_text(view), percent(get<uint64_t>(view, "/reserve", 0)),
                    std::to_string(get<int64_t>(view, "/priority", 0)),
                    get<std::string>(view, "/sharing", "time-sliced"),
                    get<std::string>(view, "/group", "").empty() ? "-" : get<std::string>(view, "/group", ""),
                    get<std::string>(view, "/domain", "").empty() ? "-" : get<std::string>(view, "/domain", ""),
                    usage_state(view), std::to_string(get(view, "/live/processes", json::array()).size())});
  }
  return rows;
}

Result<std::vector<std::vector<std::string>>> chosen_columns(const std::vector<std::vector<std::string>>& rows,
                                                             const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> chosen(rows.size());
  const std::vector<std::string>& headings = rows.front();
  for (const std::string& name : names) {
    const auto found = std::find_if(headings.begin(), headings.end(), [&name](const std::string& heading) {
      return ::strcasecmp(heading.c_str(), name.c_str()) == 0;
    });
    if (found == headings.end()) {
      return Status::error(EINVAL, "no column '{}'; there are {}", name.substr(0, 64), fmt::join(headings, ", "));
    }
    const auto column = static_cast<size_t>(found - headings.begin());
    for (size_t i = 0; i < rows.size(); ++i) chosen[i].push_back(rows[i][column]);
  }
  return chosen;
}

void print_vgpu(const json& view) {
  fmt::print("{}\n", get<std::string>(view, "/name", "?"));
  line("device", get<std::string>(view, "/device", "?"));
  line("memory", fmt::format("{} of {} used", size(get<int64_t>(view, "/live/memory_used", 0)),
                             size(get<int64_t>(view, "/memory", 0))));
  if (const auto resident = get<int64_t>(view, "/resident", 0)) line("resident", resident_line(view, resident));
  line("compute", percent(get<uint64_t>(view, "/compute", 0)));
  line("copy", percent(get<uint64_t>(view, "/copy", 0)));
  line("reserve", percent(get<uint64_t>(view, "/reserve", 0)));
  line("cap", cap_text(view));
  line("priority", std::to_string(get<int64_t>(view, "/priority", 0)));
  line("latency", latency_line(view));
  if (get(view, "/keeps_engine", false)) line("engine", "kept in short pauses: it would lose its share by them");
  if (const auto deadline = get<uint64_t>(view, "/kernel_deadline_ms", 0))
    line("kernels", fmt::format("a program is ended when one has run for {} ms", deadline));
  line("sharing", get<std::string>(view, "/sharing", "time-sliced") + group_text(view));
  if (get(view, "/guard", false))
    line("guard", get(view, "/allow_machine_code", false) ? "on, but code without PTX runs unguarded"
                                                          : "on; code without PTX is refused");
  if (get(view, "/clear_shared", false)) line("shared memory", "cleared when kernels end");
  line("SMs", sms_line(view));
  const auto owner = get<std::string>(view, "/owner", "");
  line("owner", owner.empty() ? "- (whoever may open its sockets)" : owner);
  const auto domain = get<std::string>(view, "/domain", "");
  line("domain", domain.empty() ? "-" : domain);
  line("state", state_line(view));
  line("idle", idle_line(view));
  line("session", fmt::format("{} (pid {}, {} restarts)", get<std::string>(view, "/session/state", "?"),
                              get<int64_t>(view, "/session/pid", 0), get<uint64_t>(view, "/session/restarts", 0)));
  line("host", host_line(get(view, "/session/host", json::object())));
  line("vfio.sock", get<std::string>(view, "/sockets/vfio", "?"));
  line("direct.sock", get<std::string>(view, "/sockets/direct", "?"));
  line("calls",
       fmt::format("{}, {} launches, {} errors", get<uint64_t>(view, "/live/usage/calls", 0),
                   get<uint64_t>(view, "/live/usage/launches", 0), get<uint64_t>(view, "/live/usage/errors", 0)));
  line("copied", fmt::format("{} in, {} out, {} on the device", size(get<int64_t>(view, "/live/usage/bytes_in", 0)),
                             size(get<int64_t>(view, "/live/usage/bytes_out", 0)),
                             size(get<int64_t>(view, "/live/usage/bytes_device", 0))));
  line("busy", fmt::format("{} compute, {} copy", seconds(get<uint64_t>(view, "/used/compute_ns", 0)),
                           seconds(get<uint64_t>(view, "/used/copy_ns", 0))));
  if (const json limits = get(view, "/live/limits", json::object()); !limits.empty()) line("held", limits_line(limits));
  if (const auto waits = get<uint64_t>(view, "/live/stalls/waits", 0); waits != 0) {
    line("held back", fmt::format("{} times, {}: its beginnings, contexts and faults stop others (stall_ms)", waits,
                                  seconds(get<uint64_t>(view, "/live/stalls/wait_ns", 0))));
  }
  print_engines(get(view, "/engines", json::object()));
  const json processes = get(view, "/live/processes", json::array());
  if (!processes.empty()) print_processes(processes);
}

namespace {

void print_device(const json& device) {
  line("device", fmt::format("{}: {}", get<std::string>(device, "/id", "?"), get<std::string>(device, "/name", "?")));
  if (const auto lost = get<std::string>(device, "/lost", ""); !lost.empty()) line("  lost", lost);
  if (get<bool>(device, "/drained", false)) line("  drained", "it takes no new virtual GPUs");
  if (const auto uuid = get<std::string>(device, "/uuid", ""); !uuid.empty()) {
    line("  uuid", fmt::format("{}, driver {}", uuid, get<std::string>(device, "/driver", "?")));
  }
  line("  memory", fmt::format("{} of {} given", size(get<int64_t>(device, "/memory_given", 0)),
                               size(get<int64_t>(device, "/memory", 0))));
  line("  compute", fmt::format("{} of 100 % given", get<uint64_t>(device, "/compute_given", 0)));
  line("  copy", fmt::format("{} of 100 % given", get<uint64_t>(device, "/copy_given", 0)));
  if (const auto reserve = get<uint64_t>(device, "/reserve_given", 0)) {
    line("  reserve", fmt::format("{} of 100 % given", reserve));
  }
  if (const auto by = get<std::string>(device, "/compute/by", ""); !by.empty()) {
    const auto why = get<std::string>(device, "/compute/why", "");
    line("  shares by", by == "progress" ? "progress: programs share the GPU, and who is ahead of its share waits"
                        : why.empty()    ? "the hardware's time slices"
                                         : fmt::format("gates: {}", why));
  }
  line("  mps", mps_line(device));
  if (get<uint64_t>(device, "/mps/partitions/step", 0)) line("  SMs", given_sms(device));
  line("  vgpus", std::to_string(get<uint64_t>(device, "/vgpus", 0)));
}

void print_sandbox(const json& status) {
  const json sessions = get(status, "/sandbox/sessions", json());
  line("sandbox", get<std::string>(status, "/sandbox/mode", "?") + (sessions.is_object() ? "" : "; no session runs"));
  for (const auto& [whose, has, lacks] :
       {std::tuple{"  sessions", "/session", "/session_lacks"}, std::tuple{"  runners", "/runners", "/runners_lack"}}) {
    if (!sessions.is_object()) break;
    const auto without = get<std::string>(sessions, lacks, "");
    line(whose, get<std::string>(sessions, has, "") + (without.empty() ? "" : "; without " + without));
  }
}

}  // namespace

void print_status(const json& status) {
  fmt::print("vgpud runs (pid {})\n", get<int64_t>(status, "/pid", 0));
  line("sockets", get<std::string>(status, "/run", "?"));
  line("registry", get<std::string>(status, "/state", "?"));
  line("scheduler", policy_line(status));
  line("planning", get<std::string>(status, "/scheduler/planning", "?"));
  const auto cgroups = get<std::string>(status, "/cgroups/path", "");
  line("cgroups", cgroups.empty()
                      ? "none: " + get<std::string>(status, "/cgroups/error", "?")
                      : fmt::format("{} ({})", cgroups, get<std::string>(status, "/cgroups/controllers", "")));
  print_sandbox(status);
  line("vgpus", std::to_string(get<uint64_t>(status, "/vgpus", 0)));
  for (const json& device : get(status, "/devices", json::array())) print_device(device);
}

}  // namespace bandsaw::ctl
