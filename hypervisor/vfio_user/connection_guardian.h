// Ends a connection cleanly even when the process that serves it is killed.
//
// A Unix stream socket that is closed while bytes lie unread in it gives its peer ECONNRESET instead of an end of file,
// and QEMU (11.1 seen) aborts on that: a guest's access that is under way when its session is killed would take the
// whole VM along. So a child of this process, which does nothing else, holds the connection too. When the process lets
// go of it, or is gone, the child reads what is left and closes.
//
// Source: unix(7) leaves it open; Linux, unix_release_sock().
#pragma once

#include <sys/types.h>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

class ConnectionGuardian {
 public:
  // Forks. `socket` stays the caller's.
  static Result<ConnectionGuardian> start(int socket);
  ConnectionGuardian() = default;
  ConnectionGuardian(ConnectionGuardian&& other) noexcept;
  ConnectionGuardian& operator=(ConnectionGuardian&& other) noexcept;
  // Close the socket first: the child then closes the last descriptor of it.
  ~ConnectionGuardian();

 private:
  ConnectionGuardian(UniqueFd alive, pid_t child) : alive_(std::move(alive)), child_(child) {}
  void end();

  UniqueFd alive_;  // the child reads the other end, and sees it close
  pid_t child_ = 0;
};

}  // namespace bandsaw::vfio_user
