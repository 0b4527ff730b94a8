#include "backend/session/segment_maker.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <utility>

#include "backend/control/packet.h"
#include "backend/control/runner_link.h"

namespace bandsaw {
namespace {

constexpr timeval kTimeout{20, 0};  // a GPU's driver that nobody uses takes seconds to wake
constexpr timeval kNow{0, 0}, kReapAgain{0, 100'000};

}  // namespace

SegmentMaker::SegmentMaker(event_base* base, Launcher* launcher) : base_(base), launcher_(launcher) {
  timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<SegmentMaker*>(self)->tick(); },
      this));
}

SegmentMaker::~SegmentMaker() {
  if (pid_ != 0) ending_.push_back(pid_);
  for (const pid_t pid : ending_) {
    launcher_->kill(pid);
    ::waitpid(pid, nullptr, 0);
  }
}

void SegmentMaker::make(uint64_t segment, uint64_t bytes, Made made) {
  wanted_.push_back({segment, bytes, std::move(made)});
  event_add(timer_.get(), &kNow);
}

// One that is being made is made, and then nobody is told.
void SegmentMaker::forget(uint64_t segment) {
  for (auto one = wanted_.begin(); one != wanted_.end();) {
    const bool is_under_way = pid_ != 0 && one == wanted_.begin();
    if (one->segment == segment && is_under_way) one->made = nullptr;
    one = one->segment == segment && !is_under_way ? wanted_.erase(one) : one + 1;
  }
}

void SegmentMaker::tick() {
  reap();
  if (pid_ == 0 && !wanted_.empty()) {
    if (const Status status = start(); !status.ok()) finish(status);
  }
  if (!ending_.empty()) event_add(timer_.get(), &kReapAgain);
}

Status SegmentMaker::start() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
    return Status::system("cannot make a socket pair");
  }
  const UniqueFd theirs(ends[1]);
  socket_.reset(ends[0]);
  const std::string bytes = std::to_string(wanted_.front().bytes);
  const Launch launch{.task = RunnerTask::kMakeSegment, .argument = bytes, .environment = environment_};
  const auto pid = launcher_->launch(launch, theirs.get(), kRunnerSocket);
  if (!pid.ok()) return pid.status();
  pid_ = pid.value();
  readable_.reset(event_new(
      base_, socket_.get(), EV_READ | EV_TIMEOUT,
      [](evutil_socket_t, short, void* self) { static_cast<SegmentMaker*>(self)->receive(); }, this));
  event_add(readable_.get(), &kTimeout);
  return {};
}

void SegmentMaker::receive() {
  int32_t error = 0;
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(socket_.get(), std::as_writable_bytes(std::span(&error, 1)), &fds);
  if (!length.ok()) {
    launcher_->kill(pid_);
    const bool late = length.status().code() == EAGAIN;
    return finish(late ? Status::error(ETIMEDOUT, "the device makes no memory") : length.status());
  }
  if (length.value() != sizeof error || (error == 0 && (fds.empty() || fds.size() > 2))) {
    return finish(Status::error(EIO, "the process that makes it has ended; the session's log says why"));
  }
  if (error != 0) return finish(Status::error(error, "{}", std::strerror(error)));
  SegmentMemory memory{std::move(fds[0]), {}};
  if (fds.size() > 1) memory.read = std::move(fds[1]);
  finish(std::move(memory));
}

// Its process is not waited for: a GPU's driver may take long to end one.
void SegmentMaker::finish(Result<SegmentMemory> result) {
  const Made made = std::move(wanted_.front().made);
  wanted_.pop_front();
  if (pid_ != 0) ending_.push_back(std::exchange(pid_, 0));
  readable_.reset();
  socket_.reset();
  event_add(timer_.get(), &kNow);
  if (made) made(std::move(result));
}

void SegmentMaker::reap() {
  std::erase_if(ending_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

}  // namespace bandsaw
