#include "tools/fleet/slurm/daemon.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "backend/control/http_client.h"
#include "backend/control/paths.h"
#include "memory/base/json.h"

namespace bandsaw::slurm {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswer{60}, kAbsent{10};  // one request; how long a vgpud may take to start anew
constexpr std::chrono::milliseconds kPause{50};

bool absent(const Status& status) { return status.code() == ENOENT || status.code() == ECONNREFUSED; }

Status refusal(int code, const nlohmann::json& content) {
  const int error = code == 404 ? ENOENT : code == 409 ? EEXIST : EINVAL;
  if (!content.is_object()) return Status::error(error, "vgpud answered {}", code);
  const std::string hint = content.value("hint", "");
  return Status::error(error, "{}{}{}", content.value("error", ""), hint.empty() ? "" : "; ", hint);
}

}  // namespace

Result<nlohmann::json> ask(const std::string& run, const std::string& method, const std::string& target,
                           const nlohmann::json& body) {
  const std::string socket = control_socket(run), text = body.is_null() ? "" : json_text(body);
  const auto deadline = steady_clock::now() + kAbsent;
  auto reply = http_request(socket, method, target, text, kAnswer);
  while (!reply.ok() && absent(reply.status()) && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
    reply = http_request(socket, method, target, text, kAnswer);
  }
  if (!reply.ok()) {
    return Status::error(ECONNREFUSED, "vgpud does not answer on {} ({}); see `systemctl status vgpud`", socket,
                         reply.status().message());
  }
  auto content = parse_json(reply.value().body);
  if (reply.value().code >= 300) return refusal(reply.value().code, content);
  if (content.is_discarded()) return Status::error(EPROTO, "vgpud's answer to {} is not JSON", target);
  return content;
}

}  // namespace bandsaw::slurm
