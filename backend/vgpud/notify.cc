#include "backend/vgpud/notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "memory/base/log.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {
namespace {

constexpr const char* kVariable = "NOTIFY_SOCKET";

// 0, or an errno.
int send_to(const std::string& name, std::string_view state) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';  // an abstract one, which has no end but its length
  const size_t length = offsetof(sockaddr_un, sun_path) + name.size();
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  const ssize_t sent = ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  return sent < 0 ? errno : 0;
}

}  // namespace

void notify_supervisor(std::string_view state) {
  const char* const found = std::getenv(kVariable);
  const std::string name = found ? found : "";
  ::unsetenv(kVariable);
  if (name.empty()) return;
  if (const int error = send_to(name, state); error != 0) {
    log::warn("the service manager cannot be told '{}' ({}): {}", state, name, std::strerror(error));
  }
}

}  // namespace bandsaw
