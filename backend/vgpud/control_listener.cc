#include "backend/vgpud/control_listener.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/control/json_link.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr const char* kVariable = "BANDSAW_CONTROL_LISTENER";  // the descriptor's number

// -1: nothing was handed over.
int handed_over() {
  const char* const text = std::getenv(kVariable);
  int number = -1;
  if (!text) return -1;
  const auto read = std::from_chars(text, text + std::strlen(text), number);
  return read.ec == std::errc() && *read.ptr == '\0' && number > STDERR_FILENO ? number : -1;
}

bool listens_at(int socket, const std::string& path) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0 || listens == 0) return false;
  sockaddr_un address{};
  length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) < 0) return false;
  struct stat name{};
  return address.sun_family == AF_UNIX && path == address.sun_path && ::lstat(path.c_str(), &name) == 0 &&
         S_ISSOCK(name.st_mode);
}

UniqueFd take_over(const std::string& path) {
  UniqueFd socket(handed_over());
  ::unsetenv(kVariable);
  if (!socket || !listens_at(socket.get(), path)) return {};
  return socket;
}

}  // namespace

Result<UniqueFd> listen_control(const Config& config) {
  const std::string path = control_socket(config.run);
  const auto mode = static_cast<unsigned>(std::strtoul(config.control_mode.c_str(), nullptr, 8));
  UniqueFd kept = take_over(path);
  if (kept && ::chmod(path.c_str(), mode) < 0) return Status::system("cannot set the permissions of {}", path);
  Result<UniqueFd> socket = kept ? Result<UniqueFd>(std::move(kept)) : listen_unix(path, SOCK_STREAM, mode);
  if (!socket.ok()) return socket;
  const ::group* group = ::getgrnam(config.control_group.c_str());
  if (!group && ::geteuid() == 0 && !config.control_group.empty()) {
    log::warn(
        "this host has no group '{}' (control.group): only root may look; `addgroup --system {}`, then restart vgpud",
        config.control_group, config.control_group);
  }
  if (group && ::geteuid() == 0 && ::chown(path.c_str(), static_cast<uid_t>(-1), group->gr_gid) < 0) {
    return Status::system("cannot give {} to group {}", path, config.control_group);
  }
  return socket;
}

void hand_over(UniqueFd listener) {
  if (listener) ::setenv(kVariable, std::to_string(listener.release()).c_str(), 1);
}

void hide_handed_over() {
  if (const int kept = handed_over(); kept >= 0) ::fcntl(kept, F_SETFD, FD_CLOEXEC);
}

void close_the_rest() {
  ::close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  if (const int kept = handed_over(); kept >= 0) ::fcntl(kept, F_SETFD, 0);
}

}  // namespace bandsaw
