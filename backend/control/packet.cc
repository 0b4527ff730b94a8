#include "backend/control/packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace bandsaw {

Status send_packet(int socket, std::span<const std::byte> head, std::span<const std::byte> tail,
                   std::span<const int> fds) {
  if (fds.size() > kPacketFdsMax) return Status::error(EINVAL, "{} descriptors in one message", fds.size());
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(tail.data()), tail.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kPacketFdsMax)] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::copy(fds.begin(), fds.end(), reinterpret_cast<int*>(CMSG_DATA(header)));
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return Status::system("cannot send {} bytes", head.size() + tail.size());
  return {};
}

Result<size_t> receive_packet(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>* fds) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kPacketFdsMax)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return Status::system("cannot receive");
  std::vector<UniqueFd> arrived;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const auto* values = reinterpret_cast<const int*>(CMSG_DATA(header));
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) arrived.emplace_back(values[i]);
  }
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return Status::error(EMSGSIZE, "a message was too large");
  if (fds) *fds = std::move(arrived);
  return static_cast<size_t>(received);
}

}  // namespace bandsaw
