// A VM that outlives its session.
#include <unistd.h>

#include <cerrno>

#include "backend/control/paths.h"
#include "backend/session/processes_of_user.h"
#include "backend/session/session.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

// Of a session that was killed; so long a GPU's driver may take.
constexpr std::chrono::seconds kRunnersEnd{10};

}  // namespace

// Of a session that has died, once none of its runners can touch the VM's memory any more: then the guest may have its
// pages back. Only where runners are known by their user. `listener`: for the session after this one.
std::optional<vfio_user::Held> Session::take_connection(UniqueFd* listener) const {
  const uid_t runners = config_.sandbox.runner_uid;
  if (::geteuid() != 0 || runners == 0 || runners == config_.sandbox.uid) return std::nullopt;
  const std::string path = held_socket(config_.run, config_.name);
  auto held = vfio_user::take_held(path);
  if (held.ok() && !await_end_of_user(runners, kRunnersEnd)) {
    held = Status::error(EBUSY, "runners of the session that has died still live");
  }
  const int error = held.status().code();
  if (!held.ok() && error != ENOENT && error != ECONNREFUSED) {
    log::error("the VM's connection is given up: {}", held.status().message());
  }
  if (auto made = listen_unix(path, SOCK_SEQPACKET, 0600); made.ok()) *listener = std::move(made.value());
  return held.ok() ? std::optional(std::move(held.value())) : std::nullopt;
}

}  // namespace bandsaw
