// vgpuctl segment: memory that programs of several virtual GPUs use at once.
#include <fmt/core.h>

#include <algorithm>

#include "backend/control/http_client.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

// "b:read, c:write" of [{"vgpu": "b", "access": "read"}, ...].
std::string pairs(const json& list, const char* value) {
  std::string text;
  for (const json& one : list) {
    const json said = one.value(value, json());
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", one.value("vgpu", "?"),
                        said.is_string() ? said.get<std::string>() : json_text(said));
  }
  return text.empty() ? "-" : text;
}

std::string state_of(const json& segment) {
  const std::string error = segment.value("error", "");
  if (!error.empty()) return error;
  if (!segment.value("named", true)) return "destroyed";
  return segment.value("state", "?");
}

std::vector<std::vector<std::string>> segment_rows(json segments) {
  std::sort(segments.begin(), segments.end(), name_less);
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "OWNER", "DEVICE", "SIZE", "MADE BY", "GRANTS", "USERS", "STATE"}};
  for (const json& one : segments) {
    rows.push_back({one.value("name", "?"), one.value("vgpu", "?"), one.value("device", "?"),
                    format_size(one.value("bytes", uint64_t{0})), one.value("made_by", "?"),
                    pairs(one.value("grants", json::array()), "access"),
                    pairs(one.value("users", json::array()), "count"), state_of(one)});
  }
  return rows;
}

std::string target_of(const Options& options, const char* action = "") {
  return "/v1/segments/" + url_escaped(options.name) + action;
}

}  // namespace

int create_segment(const Options& options) {
  const auto bytes = parse_size(options.size);
  if (!bytes.ok()) return print_wrong_usage(options, bytes.status().message());
  const json body = {{"name", options.name}, {"vgpu", options.vgpu}, {"size", bytes.value()}};
  return finish(options, call(options, "POST", "/v1/segments", body), [](const json& made) {
    fmt::print("created {}: {} of {}'s memory\n", made.value("name", ""), format_size(made.value("bytes", uint64_t{0})),
               made.value("vgpu", ""));
  });
}

int grant_segment(const Options& options) {
  const json body = {{"vgpu", options.vgpu}, {"access", options.read_write ? "write" : "read"}};
  return finish(options, call(options, "POST", target_of(options, "/grant"), body), [&options](const json& made) {
    fmt::print("{} may {} {}\n", options.vgpu, options.read_write ? "read and write" : "read", made.value("name", ""));
  });
}

int revoke_segment(const Options& options) {
  const json body = {{"vgpu", options.vgpu}};
  return finish(options, call(options, "POST", target_of(options, "/revoke"), body), [&options](const json& made) {
    fmt::print("{} has no rights to {} any more\n", options.vgpu, made.value("name", ""));
  });
}

int list_segments(const Options& options) {
  return print_list(options, call(options, "GET", "/v1/segments"), segment_rows);
}

int destroy_segment(const Options& options) {
  return finish(options, call(options, "DELETE", target_of(options, options.force ? "?force=1" : "")),
                [](const json& done) { fmt::print("destroyed {}\n", done.value("name", "")); });
}

}  // namespace bandsaw::ctl
