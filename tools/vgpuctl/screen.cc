#include "tools/vgpuctl/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace bandsaw::ctl {
namespace {

using std::chrono::steady_clock;

void write_all(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += static_cast<size_t>(count);
  }
}

winsize size_of_terminal() {
  winsize size{};
  ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return size;
}

}  // namespace

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

Screen::Screen(bool plain) : terminal_(!plain && ::isatty(STDOUT_FILENO)) {
  if (!terminal_) return;
  keys_ = ::isatty(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  if (keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_lflag |= NOFLSH;  // ctrl-C would throw away what gives the screen back
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // a stop would leave the terminal as it is here
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  write_all("\x1b[?1049h\x1b[?25l");  // the alternate screen, no cursor
}

Screen::~Screen() {
  if (!terminal_) return;
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  write_all("\x1b[?25h\x1b[?1049l");
}

size_t Screen::columns() const { return terminal_ ? size_of_terminal().ws_col : 0; }

void Screen::show(const std::vector<std::string>& lines) {
  std::string text;
  if (!terminal_) {
    for (const std::string& line : lines) text += line + "\n";
    return write_all(text + "\n");
  }
  const size_t rows = size_of_terminal().ws_row;
  const size_t count = rows > 0 ? std::min(rows, lines.size()) : lines.size();
  text = "\x1b[H";
  for (size_t i = 0; i < count; ++i) text += lines[i] + "\x1b[K" + (i + 1 < count ? "\r\n" : "");
  write_all(text + "\x1b[J");
}

bool Screen::wait(std::chrono::nanoseconds time) {
  const auto deadline = steady_clock::now() + time;
  for (;;) {
    switch (signals_.wait(deadline, keys_)) {
      case Signals::Event::kEnd:
        return false;
      case Signals::Event::kKey: {
        char key = 0;
        const ssize_t count = ::read(STDIN_FILENO, &key, 1);
        if (count == 1 && (key == 'q' || key == 'Q')) return false;
        if (count == 0) keys_ = false;  // the terminal has gone
        continue;
      }
      default:
        return true;
    }
  }
}

}  // namespace bandsaw::ctl
