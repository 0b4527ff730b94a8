#include "backend/session/checkpointer_process.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/control/checkpoint_link.h"
#include "backend/control/packet.h"
#include "backend/control/runner_link.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr timeval kSilentMost{30, 0};
constexpr timeval kAtOnce{0, 0};
constexpr pid_t kNobody = -1;  // the driver says that there is no such process

GpuUuidText as_text(const std::string& uuid) {
  GpuUuidText text{};
  std::copy_n(uuid.begin(), std::min(uuid.size(), text.size() - 1), text.begin());
  return text;
}

}  // namespace

CheckpointerProcess::CheckpointerProcess(event_base* base, Launcher* launcher) : base_(base), launcher_(launcher) {
  failed_timer_.reset(event_new(
      base_, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* self) {
        auto* const checkpointer = static_cast<CheckpointerProcess*>(self);
        checkpointer->fail_all(std::exchange(checkpointer->failed_, 0));
      },
      this));
}

CheckpointerProcess::~CheckpointerProcess() {
  waiting_.clear();
  stop();
  for (const pid_t pid : ending_) ::waitpid(pid, nullptr, 0);
}

Status CheckpointerProcess::spawn() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return Status::system("a socket pair");
  const UniqueFd theirs(ends[1]);
  socket_.reset(ends[0]);
  evutil_make_socket_nonblocking(socket_.get());
  const Launch launch{.task = RunnerTask::kCheckpointer, .environment = environment_};
  const auto pid = launcher_->launch(launch, theirs.get(), kRunnerSocket);
  if (!pid.ok()) return pid.status();
  pid_ = pid.value();
  readable_.reset(event_new(
      base_, socket_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short what, void* self) {
        static_cast<CheckpointerProcess*>(self)->receive((what & EV_TIMEOUT) != 0);
      },
      this));
  event_add(readable_.get(), nullptr);
  return {};
}

void CheckpointerProcess::start() {
  std::erase_if(ending_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
  if (pid_ != 0) return;
  if (const Status status = spawn(); !status.ok()) log::error("no checkpointer: {}", status.message());
}

void CheckpointerProcess::stop() {
  readable_.reset();
  socket_.reset();
  if (pid_ != 0) {
    launcher_->kill(pid_);
    ending_.push_back(std::exchange(pid_, 0));
  }
  if (waiting_.empty()) return;
  failed_ = EPIPE;
  event_add(failed_timer_.get(), &kAtOnce);
}

void CheckpointerProcess::carry_out(pid_t runner, bool off, Done done) {
  start();
  const auto number = launcher_->number_for_checkpointer(runner);
  CheckpointOrder order{.pid = number.ok() ? number.value() : kNobody, .off = off ? 1u : 0u};
  if (const auto left = left_.find(runner); !off && left != left_.end()) {
    order.left = as_text(left->second);
    order.wanted = as_text(gpu_);
  }
  waiting_.push_back({runner, order.pid, off, gpu_, std::move(done)});
  const Status sent = pid_ != 0 ? send_packet(socket_.get(), std::as_bytes(std::span(&order, 1)), {}, {})
                                : Status::error(EPIPE, "there is none");
  if (!sent.ok()) return stop();
  event_add(readable_.get(), &kSilentMost);
}

void CheckpointerProcess::receive(bool late) {
  CheckpointAnswer answer;
  std::vector<UniqueFd> fds;
  if (late && waiting_.empty()) return;
  const auto length = late ? Result<size_t>(Status::error(ETIMEDOUT, "it is silent"))
                           : receive_packet(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)), &fds);
  if (!length.ok() && length.status().code() == EAGAIN) return;
  if (!length.ok() || length.value() != sizeof answer) {
    log::error("the checkpointer: {}", length.ok() ? "it has ended" : length.status().message());
    return stop();
  }
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
    return one.number == answer.pid && one.off == (answer.off != 0);
  });
  if (found == waiting_.end()) return;
  const Waiting ended = std::move(*found);
  waiting_.erase(found);
  if (answer.error == 0 && ended.off) left_[ended.runner] = ended.gpu;
  if (answer.error == 0 && !ended.off) left_.erase(ended.runner);
  last_took_ = std::chrono::microseconds(answer.took_us);
  if (ended.done) ended.done(answer.error);
}

void CheckpointerProcess::fail_all(int error) {
  for (const Waiting& one : std::exchange(waiting_, {})) {
    if (one.done) one.done(error);
  }
}

}  // namespace bandsaw
