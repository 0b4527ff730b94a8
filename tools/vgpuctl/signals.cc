#include "tools/vgpuctl/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace bandsaw::ctl {

using std::chrono::steady_clock;

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, one);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Signals::Event Signals::wait(steady_clock::time_point until, bool keys) {
  pollfd fds[] = {{fd_.get(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
  for (;;) {
    const auto left = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(until - steady_clock::now()));
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    const int count = ::ppoll(fds, 2, &timeout, nullptr);
    if (count == 0) return Event::kTime;
    if (count < 0) continue;  // EINTR: a stop and its end
    signalfd_siginfo info{};
    if (fds[0].revents && ::read(fd_.get(), &info, sizeof info) == sizeof info) {
      return info.ssi_signo == SIGWINCH ? Event::kResized : Event::kEnd;
    }
    if (fds[1].revents) return Event::kKey;
  }
}

}  // namespace bandsaw::ctl
