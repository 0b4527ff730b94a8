#include "tools/vgpuctl/output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "backend/control/vgpu_spec.h"

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
std::string seconds(uint64_t nanoseconds) { return fmt::format("{:.3f} s", static_cast<double>(nanoseconds) * 1e-9); }
std::string size(int64_t bytes) { return format_size(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))); }

std::string usage_state(const json& view) {
  const bool vm = get(view, "/live/vm/connected", false);
  const auto state = get<std::string>(view, "/session/state", "?");
  if (state != "running") return state;
  return vm ? (get(view, "/live/vm/driver", false) ? "vm" : "vm (no driver)") : "idle";
}

void line(const char* name, const std::string& value) { fmt::print("  {:<12} {}\n", name, value); }

void print_processes(const json& processes) {
  std::vector<std::vector<std::string>> rows = {
      {"PROCESS", "PID", "VIA", "STATE", "MEMORY", "CALLS", "LAUNCHES", "COMPUTE", "COPY"}};
  for (const json& process : processes) {
    rows.push_back({get<std::string>(process, "/comm", "?"), std::to_string(get<uint64_t>(process, "/pid", 0)),
                    get(process, "/direct", false) ? "direct" : "vm", get<std::string>(process, "/state", "?"),
                    size(get<int64_t>(process, "/usage/memory_bytes", 0)),
                    std::to_string(get<uint64_t>(process, "/usage/calls", 0)),
                    std::to_string(get<uint64_t>(process, "/usage/launches", 0)),
                    seconds(get<uint64_t>(process, "/usage/compute_ns", 0)),
                    seconds(get<uint64_t>(process, "/usage/copy_ns", 0))});
  }
  print_table(rows);
}

}  // namespace

int print_refusal(const Refusal& refusal, bool json_output) {
  if (json_output) {
    fmt::print("{}\n", json{{"error", refusal.error}, {"hint", refusal.hint}}.dump());
  } else {
    fmt::print(stderr, "vgpuctl: {}\n", refusal.error);
    if (!refusal.hint.empty()) fmt::print(stderr, "  {}\n", refusal.hint);
  }
  return refusal.exit;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

void print_list(const json& views) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "DEVICE", "MEMORY", "USED", "COMPUTE", "COPY", "DOMAIN", "STATE", "PROCESSES"}};
  for (const json& view : views) {
    rows.push_back({get<std::string>(view, "/name", "?"), get<std::string>(view, "/device", "?"),
                    size(get<int64_t>(view, "/memory", 0)), size(get<int64_t>(view, "/live/memory_used", 0)),
                    percent(get<uint64_t>(view, "/compute", 0)), percent(get<uint64_t>(view, "/copy", 0)),
                    get<std::string>(view, "/domain", "").empty() ? "-" : get<std::string>(view, "/domain", ""),
                    usage_state(view), std::to_string(get(view, "/live/processes", json::array()).size())});
  }
  print_table(rows);
}

void print_vgpu(const json& view) {
  fmt::print("{}\n", get<std::string>(view, "/name", "?"));
  line("device", get<std::string>(view, "/device", "?"));
  line("memory", fmt::format("{} of {} used", size(get<int64_t>(view, "/live/memory_used", 0)),
                             size(get<int64_t>(view, "/memory", 0))));
  line("compute", percent(get<uint64_t>(view, "/compute", 0)));
  line("copy", percent(get<uint64_t>(view, "/copy", 0)));
  const auto domain = get<std::string>(view, "/domain", "");
  line("domain", domain.empty() ? "-" : domain);
  line("state", usage_state(view));
  line("session", fmt::format("{} (pid {}, {} restarts)", get<std::string>(view, "/session/state", "?"),
                              get<int64_t>(view, "/session/pid", 0), get<uint64_t>(view, "/session/restarts", 0)));
  line("vfio.sock", get<std::string>(view, "/sockets/vfio", "?"));
  line("direct.sock", get<std::string>(view, "/sockets/direct", "?"));
  line("calls",
       fmt::format("{}, {} launches, {} errors", get<uint64_t>(view, "/live/usage/calls", 0),
                   get<uint64_t>(view, "/live/usage/launches", 0), get<uint64_t>(view, "/live/usage/errors", 0)));
  line("copied", fmt::format("{} in, {} out, {} on the device", size(get<int64_t>(view, "/live/usage/bytes_in", 0)),
                             size(get<int64_t>(view, "/live/usage/bytes_out", 0)),
                             size(get<int64_t>(view, "/live/usage/bytes_device", 0))));
  line("busy", fmt::format("{} compute, {} copy", seconds(get<uint64_t>(view, "/live/usage/compute_ns", 0)),
                           seconds(get<uint64_t>(view, "/live/usage/copy_ns", 0))));
  const json processes = get(view, "/live/processes", json::array());
  if (!processes.empty()) print_processes(processes);
}

void print_status(const json& status) {
  fmt::print("vgpud runs (pid {})\n", get<int64_t>(status, "/pid", 0));
  line("sockets", get<std::string>(status, "/run", "?"));
  line("registry", get<std::string>(status, "/state", "?"));
  const auto id = get<std::string>(status, "/device/id", "?");
  line("device", fmt::format("{}: {}", id, get<std::string>(status, "/device/name", "?")));
  if (const auto uuid = get<std::string>(status, "/device/uuid", ""); !uuid.empty()) {
    line("uuid", fmt::format("{}, driver {}", uuid, get<std::string>(status, "/device/driver", "?")));
  }
  line("memory", fmt::format("{} of {} given", size(get<int64_t>(status, "/device/memory_given", 0)),
                             size(get<int64_t>(status, "/device/memory", 0))));
  line("compute", fmt::format("{} of 100 % given", get<uint64_t>(status, "/device/compute_given", 0)));
  line("copy", fmt::format("{} of 100 % given", get<uint64_t>(status, "/device/copy_given", 0)));
  line("vgpus", std::to_string(get<uint64_t>(status, "/vgpus", 0)));
}

}  // namespace bandsaw::ctl
