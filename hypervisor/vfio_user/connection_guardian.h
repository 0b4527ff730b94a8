// Looks after a connection when the process that serves it is killed.
//
// A Unix stream socket that is closed while bytes lie unread in it gives its peer ECONNRESET instead of an end of file,
// and QEMU (11.1 seen) aborts on that: a guest's access that is under way when its session is killed would take the
// whole VM along. So a child of this process, which does nothing else, holds the connection too. When the process lets
// go of it, the child reads what is left and closes. When the process is gone without a word, the child first waits for
// the next one, which goes on with the connection (held_connection.h): QEMU notices nothing but a pause.
//
// Source: unix(7) leaves it open; Linux, unix_release_sock().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "hypervisor/vfio_user/held_connection.h"
#include "hypervisor/vfio_user/protocol.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

class ConnectionGuardian {
 public:
  // Where the served process is in the byte stream, for the child: shared memory.
  struct Progress {
    Header header;                       // of the message that is being read or answered
    std::atomic<uint32_t> header_bytes;  // of it that have come
    std::atomic<uint64_t> left;          // of what follows it that have not
    std::atomic<uint32_t> unanswered;    // it is being carried out
    std::atomic<uint32_t> unsent;        // replies wait to be sent: nobody can go on
  };

  // Forks. `socket` and `listener` stay the caller's; a listener below 0: the child waits for nobody.
  static Result<ConnectionGuardian> start(int socket, int listener);
  ConnectionGuardian() = default;
  ConnectionGuardian(ConnectionGuardian&& other) noexcept;
  ConnectionGuardian& operator=(ConnectionGuardian&& other) noexcept;
  // Close the socket first: the child then closes the last descriptor of it.
  ~ConnectionGuardian();

  // Null: there is no child, or it waits for nobody.
  Progress* progress() const { return progress_; }
  // With what another process could go on from now on. 0 bytes: none can.
  void hold(const HeldPacket& packet, size_t bytes, const std::vector<int>& fds) const;

 private:
  void end();

  UniqueFd alive_;  // the child reads the other end, and sees it close
  pid_t child_ = 0;
  Progress* progress_ = nullptr;  // mapped
};

}  // namespace bandsaw::vfio_user
