#include "backend/session/packet_queue.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "backend/control/packet.h"

namespace bandsaw {

PacketQueue::PacketQueue(event_base* base, int socket) : socket_(socket) {
  writable_.reset(event_new(
      base, socket_, EV_WRITE, [](evutil_socket_t, short, void* self) { static_cast<PacketQueue*>(self)->flush(); },
      this));
}

Status PacketQueue::send(std::span<const std::byte> bytes, int fd) {
  if (waiting_.empty()) {
    Status status = send_packet(socket_, bytes, {}, {&fd, fd >= 0 ? size_t{1} : 0});
    if (status.code() != EAGAIN) return status;
  }
  if (waiting_.size() >= kWaitingMost) return Status::error(ENOBUFS, "{} packets wait", waiting_.size());
  Waiting waiting{{bytes.begin(), bytes.end()}, {}};
  if (fd >= 0) {
    waiting.fd.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!waiting.fd) return Status::system("a descriptor for a packet that waits");
  }
  waiting_.push_back(std::move(waiting));
  event_add(writable_.get(), nullptr);
  return {};
}

void PacketQueue::flush() {
  while (!waiting_.empty()) {
    const Waiting& next = waiting_.front();
    const int fd = next.fd.get();
    const Status status = send_packet(socket_, next.bytes, {}, {&fd, fd >= 0 ? size_t{1} : 0});
    if (status.code() == EAGAIN) {
      event_add(writable_.get(), nullptr);
      return;
    }
    if (!status.ok()) ::shutdown(socket_, SHUT_RDWR);  // whoever reads it finds out
    waiting_.pop_front();
  }
}

}  // namespace bandsaw
