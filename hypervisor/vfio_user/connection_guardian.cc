#include "hypervisor/vfio_user/connection_guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace bandsaw::vfio_user {
namespace {

constexpr int kSocket = 3, kAlive = 4;

// Closes every other descriptor: one that is left open here would stay open after the parent's death. Moves the two
// above their final numbers first, or one could overwrite the other.
void keep_only(int socket, int alive) {
  const int high_socket = fcntl(socket, F_DUPFD, kAlive + 1), high_alive = fcntl(alive, F_DUPFD, kAlive + 1);
  dup2(high_socket, kSocket);
  dup2(high_alive, kAlive);
  close_range(0, kSocket - 1, 0);
  close_range(kAlive + 1, ~0u, 0);
}

// Calls only what is allowed after a fork of a process with threads.
[[noreturn]] void watch(int socket, int alive) {
  prctl(PR_SET_NAME, "vfio-guardian");
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);  // it ends when the session has ended
  keep_only(socket, alive);
  char byte = 0;
  if (write(kAlive, &byte, 1) != 1) _exit(1);
  while (read(kAlive, &byte, 1) < 0 && errno == EINTR) {
  }
  shutdown(kSocket, SHUT_RD);  // nothing more comes in while the rest is read
  char rest[4096];
  while (recv(kSocket, rest, sizeof(rest), MSG_DONTWAIT) > 0) {
  }
  _exit(0);
}

}  // namespace

Result<ConnectionGuardian> ConnectionGuardian::start(int socket) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::system("the connection guardian's socket");
  UniqueFd alive(ends[0]), held(ends[1]);
  const pid_t child = fork();
  if (child < 0) return Status::system("forking the connection's guardian");
  if (child == 0) watch(socket, alive.get());
  alive.reset();
  ConnectionGuardian guardian(std::move(held), child);
  char ready = 0;  // until it is ready, the child still holds all descriptors of this process
  if (read(guardian.alive_.get(), &ready, 1) != 1)
    return Status::error(EPIPE, "the connection's guardian did not start");
  return guardian;
}

ConnectionGuardian::ConnectionGuardian(ConnectionGuardian&& other) noexcept
    : alive_(std::move(other.alive_)), child_(std::exchange(other.child_, 0)) {}

ConnectionGuardian& ConnectionGuardian::operator=(ConnectionGuardian&& other) noexcept {
  end();
  alive_ = std::move(other.alive_);
  child_ = std::exchange(other.child_, 0);
  return *this;
}

ConnectionGuardian::~ConnectionGuardian() { end(); }

void ConnectionGuardian::end() {
  alive_.reset();
  if (child_ > 0) waitpid(std::exchange(child_, 0), nullptr, 0);  // it has a few system calls left to make
}

}  // namespace bandsaw::vfio_user
