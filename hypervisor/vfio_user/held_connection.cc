#include "hypervisor/vfio_user/held_connection.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

namespace bandsaw::vfio_user {
namespace {

// The one who holds a connection is a process that does nothing else.
constexpr timeval kAnswerMost{2, 0};

bool makes_sense(const HeldPacket& packet, size_t bytes, size_t fds) {
  const HeldHead& head = packet.head;
  if (bytes < sizeof head || head.version != HeldHead().version || head.maps > kHeldMapsMax) return false;
  if (bytes != held_bytes(head.maps) || head.vectors >> virtio::PciFunction::kVectors != 0) return false;
  size_t wanted = 1 + static_cast<size_t>(std::popcount(head.vectors)) + (head.has_line != 0);
  for (uint32_t i = 0; i < head.maps; ++i) wanted += packet.maps[i].has_fd != 0;
  return fds == wanted;
}

}  // namespace

bool send_held(int socket, const HeldPacket& packet, size_t bytes, const int* fds, uint32_t count) {
  alignas(cmsghdr) char control[CMSG_SPACE(kHeldFdsMax * sizeof(int))];
  iovec part{const_cast<HeldPacket*>(&packet), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(item), fds, count * sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes);
}

long receive_held(int socket, HeldPacket* packet, int* fds, uint32_t* count) {
  alignas(cmsghdr) char control[CMSG_SPACE(kHeldFdsMax * sizeof(int))];
  iovec part{packet, sizeof *packet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  *count = 0;
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return got;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t came = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds, CMSG_DATA(item), came * sizeof(int));
    *count = static_cast<uint32_t>(came);
  }
  return got;
}

void close_cleanly(int client) {
  shutdown(client, SHUT_RD);  // nothing more comes in while the rest is read
  char rest[4096];
  while (recv(client, rest, sizeof(rest), MSG_DONTWAIT) > 0) {
  }
  close(client);
}

Result<Held> take_held(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Status::error(ENAMETOOLONG, "socket path '{}'", path);
  path.copy(address.sun_path, path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return Status::system("socket");
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerMost, sizeof kAnswerMost);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return Status::system("connecting to {}", path);
  if (send(socket.get(), &kTake, 1, MSG_NOSIGNAL) != 1) return Status::system("asking for a connection");
  HeldPacket packet;
  int fds[kHeldFdsMax];
  uint32_t count = 0;
  const long bytes = receive_held(socket.get(), &packet, fds, &count);
  const int error = errno;
  Held held;
  for (uint32_t i = 0; i < count; ++i) {
    if (i == 0) {
      held.client.reset(fds[i]);
    } else {
      held.fds.emplace_back(fds[i]);
    }
  }
  if (bytes <= 0) return Status::error(bytes < 0 ? error : EPIPE, "nobody holds a hypervisor's connection");
  if (!makes_sense(packet, static_cast<size_t>(bytes), count))
    return Status::error(EPROTO, "what is said of a hypervisor's connection makes no sense");
  held.head = packet.head;
  held.maps.assign(packet.maps, packet.maps + packet.head.maps);
  return held;
}

}  // namespace bandsaw::vfio_user
