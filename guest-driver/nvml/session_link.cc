#include "guest-driver/nvml/session_link.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "guest-driver/uapi/vgpu_ioctl.h"

namespace bandsaw::nvml {
namespace {

constexpr timeval kPatience{5, 0};  // a session answers at once, or is in trouble

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int ask_module(const SessionAddress& session, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]) {
  const Descriptor device(open(session.path.c_str(), O_RDWR | O_CLOEXEC));
  if (device.get() < 0) return errno;
  vgpu_ioc_query query{};
  query.what = what;
  query.index = index;
  if (ioctl(device.get(), VGPU_IOC_QUERY, &query) < 0) return errno == ENOTTY ? EINVAL : errno;
  std::memcpy(answer, query.answer, sizeof(answer));
  return 0;
}

int connect_to(const std::string& path, int socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  return connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

int ask_socket(const SessionAddress& session, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]) {
  const Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return errno;
  if (const int error = connect_to(session.path, connection.get())) return error;
  vgpu_ctl_query query{};
  query.header.type = VGPU_CTL_QUERY;
  query.what = what;
  query.index = index;
  ssize_t count;
  do {
    count = send(connection.get(), &query, sizeof(query), MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(query))) return EPIPE;
  vgpu_ctl_reply reply{};
  do {
    count = recv(connection.get(), &reply, sizeof(reply), 0);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(reply))) return count < 0 && errno == EAGAIN ? ETIMEDOUT : EPIPE;
  if (reply.status == 0) std::memcpy(answer, reply.message, sizeof(answer));
  return static_cast<int>(reply.status);
}

}  // namespace

int ask(const SessionAddress& session, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]) {
  return session.direct ? ask_socket(session, what, index, answer) : ask_module(session, what, index, answer);
}

}  // namespace bandsaw::nvml
