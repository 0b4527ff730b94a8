// One client's byte stream: puts messages and their descriptors together, hands them to Commands one after the other,
// sends the replies. Malformed bytes end this connection at most.
#pragma once

#include <event2/event.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "hypervisor/vfio_user/commands.h"
#include "hypervisor/vfio_user/connection_guardian.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

class Connection {
 public:
  // `on_end` is called once, from the loop, when the client has gone or cannot be understood; it may destroy the
  // connection. `base` and `commands` must outlive it.
  // `listener`: where another process asks for the connection once this one has died; below 0: none may.
  Connection(event_base* base, UniqueFd socket, Commands& commands, std::function<void()> on_end, int listener = -1);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  struct EventDeleter {
    void operator()(event* e) const { event_free(e); }
  };
  using Event = std::unique_ptr<event, EventDeleter>;

  void on_readable();
  void on_writable();
  bool receive();  // one recvmsg; false when there is nothing (yet) or the stream has ended
  void take_fds(const struct msghdr& header);
  void header_complete();
  void message_complete();
  void reply(const Header& request, Answer answer);
  void flush();
  void end();
  void report_end();
  void note_progress();
  void hold();
  void close_after_flush();

  Commands& commands_;
  std::function<void()> on_end_;
  ConnectionGuardian guardian_;  // destroyed after the socket
  UniqueFd socket_;
  Event read_, write_;
  std::shared_ptr<bool> alive_;  // false once destroyed: for answers that come late

  Message message_;      // being put together
  size_t received_ = 0;  // of header or payload
  bool in_header_ = true;
  uint64_t skip_ = 0;  // bytes of a refused message still to be thrown away
  bool busy_ = false;  // a command's answer is still to come
  bool ended_ = false;
  bool closing_ = false;

  std::deque<std::vector<uint8_t>> out_;
  size_t out_bytes_ = 0;
  size_t out_sent_ = 0;  // of the first one
};

}  // namespace bandsaw::vfio_user
