// Packets that leave a non-blocking socket in order, those kept back for which it has no room now.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "backend/control/event_ptr.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Threads: the event loop's only.
class PacketQueue {
 public:
  static constexpr size_t kWaitingMost = 16384;

  // `socket` is not owned and outlives this.
  PacketQueue(event_base* base, int socket);
  PacketQueue(const PacketQueue&) = delete;

  // `fd` is duplicated if the packet has to wait; -1: none. An error: the connection is of no use any more.
  Status send(std::span<const std::byte> bytes, int fd = -1);

 private:
  struct Waiting {
    std::vector<std::byte> bytes;
    UniqueFd fd;
  };
  void flush();

  const int socket_;
  EventPtr writable_;
  std::deque<Waiting> waiting_;
};

}  // namespace bandsaw
