#include "backend/vgpud/xid_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>

#include "backend/vgpud/probe.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr size_t kLineMax = 256;
constexpr std::string_view kXidWord = "xid ";

}  // namespace

// 13, 31, 32, 68, 69: exceptions of a program's kernels, addresses, commands; 43, 45: its channels were stopped; 94: an
// error of memory that was contained to it; 137: a fault of its NVLink access.
bool is_program_error(unsigned xid) {
  static constexpr unsigned kOfPrograms[] = {13, 31, 32, 43, 45, 68, 69, 94, 137};
  return std::find(std::begin(kOfPrograms), std::end(kOfPrograms), xid) != std::end(kOfPrograms);
}

XidWatch::XidWatch(event_base* base, const std::string& runner, const std::string& gpu, Trouble trouble)
    : base_(base), runner_(runner), gpu_(gpu), trouble_(std::move(trouble)) {
  again_.reset(event_new(
      base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<XidWatch*>(self)->start(); }, this));
  start();
}

void XidWatch::start() {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) < 0) return start_later();
  output_.reset(pipe[0]);
  const UniqueFd theirs(pipe[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  const auto pid = spawn_probe(runner_of(runner_, "cuda"), {"--watch-gpu", gpu_}, "", theirs.get(), STDERR_FILENO);
  if (!pid.ok()) {
    log::warn("errors of {} are not watched: {}", gpu_, pid.status().message());
    return start_later();
  }
  pid_ = pid.value();
  readable_.reset(event_new(
      base_, output_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<XidWatch*>(self)->receive(); }, this));
  event_add(readable_.get(), nullptr);
}

// Who watches ends for reasons of its own: no NVML on this host, or somebody killed it.
void XidWatch::start_later() {
  const timeval pause = to_timeval(pause_);
  event_add(again_.get(), &pause);
  pause_ = std::min(kLongestPause, pause_ * 2);
}

XidWatch::~XidWatch() { end(); }

void XidWatch::end() {
  if (pid_ == 0) return;
  readable_.reset();
  output_.reset();
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void XidWatch::receive() {
  char buffer[512];
  const ssize_t length = ::read(output_.get(), buffer, sizeof buffer);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) {
    log::info("errors of {} are not watched for {} s", gpu_, pause_.count());
    end();
    return start_later();
  }
  pause_ = kFirstPause;
  text_.append(buffer, static_cast<size_t>(length));
  for (size_t feed = 0; (feed = text_.find('\n')) != std::string::npos;) {
    const std::string line = text_.substr(0, feed);
    text_.erase(0, feed + 1);
    take_line(line);
  }
  if (text_.size() > kLineMax) text_.clear();
}

void XidWatch::take_line(const std::string& line) {
  if (line == "lost") return trouble_("the driver says that it is lost");
  unsigned xid = 0;
  if (!line.starts_with(kXidWord)) return;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + kXidWord.size(), end, xid);
  if (error != std::errc() || stop != end) return;
  if (is_program_error(xid)) return log::info("{}: Xid {}, of a program", gpu_, xid);
  trouble_(fmt::format("the driver reports Xid {}", xid));
}

}  // namespace bandsaw
