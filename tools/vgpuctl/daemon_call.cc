#include "tools/vgpuctl/daemon_call.h"

#include <fmt/core.h>

#include <chrono>

#include "backend/control/http_client.h"
#include "backend/control/paths.h"
#include "memory/base/json.h"

namespace bandsaw::ctl {
namespace {

constexpr std::chrono::seconds kTimeout{60};

Refusal no_connection(const Status& status, const std::string& socket) {
  if (status.code() == ENOENT || status.code() == ECONNREFUSED) {
    return {
        kNoDaemon, fmt::format("vgpud is not running: nobody listens on {}", socket),
        "start it with `systemctl start vgpud` or, as root, `vgpud`; another folder is named by --run or BANDSAW_RUN"};
  }
  if (status.code() == EACCES || status.code() == EPERM) {
    return {kRefused, fmt::format("you may not use {}", socket), "become root, or join the group of that socket"};
  }
  return {kRefused, status.message(), "see vgpud's log"};
}

}  // namespace

Reply call(const Options& options, const std::string& method, const std::string& target, const nlohmann::json& body) {
  const std::string socket = control_socket(options.run);
  const auto reply = http_request(socket, method, target, method == "GET" ? "" : json_text(body), kTimeout);
  if (!reply.ok()) return no_connection(reply.status(), socket);
  const int code = reply.value().code;
  auto content = parse_json(reply.value().body);
  if (code >= 200 && code < 300) {
    if (content.is_discarded()) return nlohmann::json(reply.value().body);
    return content;
  }
  if (!content.is_object()) return Refusal{kRefused, fmt::format("vgpud answered {}", code), "see vgpud's log"};
  return Refusal{code == 404 ? kNotFound : kRefused, content.value("error", fmt::format("vgpud answered {}", code)),
                 content.value("hint", "")};
}

int print_wrong_usage(const Options& options, const std::string& error) {
  return print_refusal({kUsage, error, fmt::format("see `{} --help`", options.called)}, options.json);
}

int print_list(const Options& options, const Reply& reply,
               std::vector<std::vector<std::string>> (*rows)(nlohmann::json list)) {
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
  auto lines = rows(std::get<nlohmann::json>(reply));
  if (!options.columns.empty()) {
    auto chosen = chosen_columns(lines, options.columns);
    if (!chosen.ok()) return print_wrong_usage(options, chosen.status().message());
    lines = std::move(chosen.value());
  }
  if (options.no_header) lines.erase(lines.begin());
  return finish(options, reply, [&lines](const nlohmann::json&) { print_table(lines); });
}

std::string vgpu_target(const Options& options, const std::string& action) {
  const std::string target = "/v1/vgpus/" + url_escaped(options.name);
  return action.empty() ? target : target + "/" + action;
}

}  // namespace bandsaw::ctl
