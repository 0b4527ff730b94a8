#include "backend/session/segment_maker.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>

#include "backend/control/packet.h"
#include "backend/control/runner_link.h"
#include "backend/session/runner_exec.h"

namespace bandsaw {
namespace {

constexpr timeval kTimeout{20, 0};  // a GPU's driver that nobody uses takes seconds to wake

}  // namespace

SegmentMaker::~SegmentMaker() {
  for (const Child& child : children_) {
    if (child.pid == 0) continue;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
  }
}

void SegmentMaker::make(uint64_t bytes, Made made) {
  Child& child = children_.emplace_back();
  child.maker = this;
  child.made = std::move(made);
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
    child.failed = Status::system("cannot make a socket pair");
  }
  UniqueFd theirs(ends[1]);
  child.socket.reset(ends[0]);
  if (child.failed.ok()) {
    const auto pid =
        exec_runner({path_, file_, {"bandsaw-runner", "--make-segment", std::to_string(bytes)}, environment_},
                    theirs.get(), kRunnerSocket);
    if (pid.ok()) child.pid = pid.value();
    child.failed = pid.status();
  }
  const short what = child.failed.ok() ? EV_READ | EV_TIMEOUT : EV_TIMEOUT;
  child.event.reset(event_new(
      base_, child.failed.ok() ? child.socket.get() : -1, what,
      [](evutil_socket_t, short, void* argument) {
        Child* const self = static_cast<Child*>(argument);
        self->maker->receive(self);
      },
      &child));
  const timeval now{0, 0};
  event_add(child.event.get(), child.failed.ok() ? &kTimeout : &now);
}

void SegmentMaker::receive(Child* child) {
  if (!child->failed.ok()) return finish(child, child->failed);
  int32_t error = 0;
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(child->socket.get(), std::as_writable_bytes(std::span(&error, 1)), &fds);
  if (!length.ok()) {
    const bool late = length.status().code() == EAGAIN;
    return finish(child, late ? Status::error(ETIMEDOUT, "the device makes no memory") : length.status());
  }
  if (length.value() != sizeof error || (error == 0 && (fds.empty() || fds.size() > 2))) {
    return finish(child, Status::error(EIO, "the process that makes it has ended; the session's log says why"));
  }
  if (error != 0) return finish(child, Status::error(error, "{}", std::strerror(error)));
  SegmentMemory memory{std::move(fds[0]), {}};
  if (fds.size() > 1) memory.read = std::move(fds[1]);
  finish(child, std::move(memory));
}

void SegmentMaker::finish(Child* child, Result<SegmentMemory> result) {
  if (child->pid != 0) {
    ::kill(child->pid, SIGKILL);
    ::waitpid(child->pid, nullptr, 0);
  }
  const Made made = std::move(child->made);
  children_.remove_if([child](const Child& one) { return &one == child; });
  made(std::move(result));
}

}  // namespace bandsaw
