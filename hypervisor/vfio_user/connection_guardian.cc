#include "hypervisor/vfio_user/connection_guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

namespace bandsaw::vfio_user {
namespace {

constexpr int kSocket = 3, kAlive = 4, kListener = 5;
// Longer than vgpud ever waits before it starts a session again.
constexpr int kNextMostMs = 30'000;
constexpr int kWordMostMs = 1000;
// Of one byte: the process lets go of the connection. Longer packets: HeldPacket.
constexpr size_t kEndBytes = 1;

// Closes every other descriptor: one that is left open here would stay open after the parent's death. Moves them
// above their final numbers first, or one could overwrite another.
void keep_only(int socket, int alive, int listener) {
  constexpr int kAbove = kListener + 1;
  const int high_socket = fcntl(socket, F_DUPFD, kAbove), high_alive = fcntl(alive, F_DUPFD, kAbove);
  const int high_listener = listener < 0 ? -1 : fcntl(listener, F_DUPFD, kAbove);
  dup2(high_socket, kSocket);
  dup2(high_alive, kAlive);
  if (high_listener >= 0) dup2(high_listener, kListener);
  close_range(0, kSocket - 1, 0);
  close_range(high_listener < 0 ? kListener : kAbove, ~0u, 0);
}

bool read_rest(void* to, uint64_t bytes) {
  char waste[4096];
  while (bytes > 0) {
    const size_t part = to ? bytes : std::min<uint64_t>(bytes, sizeof waste);
    const ssize_t got = recv(kSocket, to ? to : waste, part, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes -= static_cast<uint64_t>(got);
    if (to) to = static_cast<char*>(to) + got;
  }
  return true;
}

// The next process begins with a whole message, and QEMU waits for no answer that nobody will give. False: the stream
// cannot be understood any more.
bool settle(ConnectionGuardian::Progress* progress) {
  if (progress->unsent.load()) return false;
  const int flags = fcntl(kSocket, F_GETFL);
  fcntl(kSocket, F_SETFL, flags & ~O_NONBLOCK);
  Header& header = progress->header;
  const uint32_t came = progress->header_bytes.load();
  uint64_t left = progress->left.load();
  bool unanswered = progress->unanswered.load() != 0;
  if (came > 0 && came < sizeof header) {
    if (!read_rest(reinterpret_cast<char*>(&header) + came, sizeof header - came)) return false;
    if (header.bytes < sizeof header) return false;
    left = header.bytes - sizeof header;
  }
  if (came > 0) unanswered = true;
  if (!read_rest(nullptr, left)) return false;
  fcntl(kSocket, F_SETFL, flags);
  if (!unanswered || (header.flags & kFlagNoReply)) return true;
  const Header reply{header.id, header.command, sizeof reply, kTypeReply | kFlagError, EIO};
  return send(kSocket, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply;
}

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

bool may_take(int client) {
  ucred who{};
  socklen_t length = sizeof who;
  return getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && (who.uid == 0 || who.uid == geteuid());
}

// True: another process has the connection.
bool hand_over(const HeldPacket& packet, size_t bytes, const int* fds, uint32_t count) {
  for (const int64_t until = now_ms() + kNextMostMs; now_ms() < until;) {
    pollfd waits[] = {{kListener, POLLIN, 0}, {kSocket, 0, 0}};
    const int ready = poll(waits, 2, static_cast<int>(std::max<int64_t>(until - now_ms(), 0)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    if (waits[1].revents) return false;  // QEMU has gone
    const int client = accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    char word = 0;
    pollfd says{client, POLLIN, 0};
    const bool said = may_take(client) && poll(&says, 1, kWordMostMs) == 1 && recv(client, &word, 1, 0) == 1;
    if (said && word == kTake && send_held(client, packet, bytes, fds, count)) return true;
    if (said && word == kEnd) return false;
    close(client);
  }
  return false;
}

// Calls only what is allowed after a fork of a process with threads.
[[noreturn]] void watch(int socket, int alive, int listener, ConnectionGuardian::Progress* progress) {
  static HeldPacket packet, next;
  static int fds[kHeldFdsMax], next_fds[kHeldFdsMax];
  uint32_t count = 0, next_count = 0;
  long bytes = 0, came = 0;
  prctl(PR_SET_NAME, "vfio-guardian");
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);  // it ends when the session has ended
  keep_only(socket, alive, listener);
  const char byte = 0;
  if (write(kAlive, &byte, 1) != 1) _exit(1);
  while ((came = receive_held(kAlive, &next, next_fds, &next_count)) > static_cast<long>(kEndBytes)) {
    for (uint32_t i = 1; i < count; ++i) close(fds[i]);
    packet = next;
    bytes = next_count < kHeldFdsMax ? came : 0;
    next_count = std::min(next_count, kHeldFdsMax - 1);
    fds[0] = kSocket;
    std::copy_n(next_fds, next_count, fds + 1);
    count = 1 + next_count;
  }
  const bool died = came <= 0;
  if (died && bytes >= static_cast<long>(sizeof(HeldHead)) && progress && settle(progress) &&
      hand_over(packet, static_cast<size_t>(bytes), fds, count)) {
    _exit(0);
  }
  close_cleanly(kSocket);
  _exit(0);
}

}  // namespace

Result<ConnectionGuardian> ConnectionGuardian::start(int socket, int listener) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::system("the connection guardian's socket");
  ConnectionGuardian guardian;
  UniqueFd alive(ends[0]);
  guardian.alive_.reset(ends[1]);
  if (listener >= 0) {
    void* const page = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return Status::system("the connection guardian's page");
    guardian.progress_ = new (page) Progress{};
  }
  const pid_t child = fork();
  if (child < 0) return Status::system("forking the connection's guardian");
  if (child == 0) watch(socket, alive.get(), listener, guardian.progress_);
  alive.reset();
  guardian.child_ = child;
  char ready = 0;  // until it is ready, the child still holds all descriptors of this process
  if (read(guardian.alive_.get(), &ready, 1) != 1)
    return Status::error(EPIPE, "the connection's guardian did not start");
  return guardian;
}

void ConnectionGuardian::hold(const HeldPacket& packet, size_t bytes, const std::vector<int>& fds) const {
  if (!progress_) return;
  // Without a head nobody can go on: two bytes are no head, and no end.
  send_held(alive_.get(), packet, std::max(bytes, kEndBytes + 1), fds.data(), static_cast<uint32_t>(fds.size()));
}

ConnectionGuardian::ConnectionGuardian(ConnectionGuardian&& other) noexcept
    : alive_(std::move(other.alive_)),
      child_(std::exchange(other.child_, 0)),
      progress_(std::exchange(other.progress_, nullptr)) {}

ConnectionGuardian& ConnectionGuardian::operator=(ConnectionGuardian&& other) noexcept {
  end();
  alive_ = std::move(other.alive_);
  child_ = std::exchange(other.child_, 0);
  progress_ = std::exchange(other.progress_, nullptr);
  return *this;
}

ConnectionGuardian::~ConnectionGuardian() { end(); }

void ConnectionGuardian::end() {
  const char byte = 0;
  if (alive_) static_cast<void>(send(alive_.get(), &byte, kEndBytes, MSG_NOSIGNAL));
  alive_.reset();
  if (child_ > 0) waitpid(std::exchange(child_, 0), nullptr, 0);  // it has a few system calls left to make
  if (progress_) munmap(std::exchange(progress_, nullptr), sizeof(Progress));
}

}  // namespace bandsaw::vfio_user
