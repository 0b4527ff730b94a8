#include "backend/session/runner_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>

#include "backend/control/packet.h"
#include "backend/control/window_bases.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

std::string describe_exit(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == 126) return "the program could not be executed";
  if (WEXITSTATUS(status) == 125) return "its sandbox could not be made";
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

// What registers memory with the driver, or takes it back, waits there while contexts are off the GPU.
bool needs_contexts(RunnerMessageType type) {
  switch (type) {
    case RunnerMessageType::kAddRegion:
    case RunnerMessageType::kDropRegion:
    case RunnerMessageType::kRamDrop:
    case RunnerMessageType::kRevoked:
      return true;
    default:
      return false;
  }
}

// A memfd with these bytes.
Result<UniqueFd> file_of(std::span<const std::byte> bytes) {
  UniqueFd file(::memfd_create("bandsaw-message", MFD_CLOEXEC));
  if (!file) return Status::system("cannot make a file for a message");
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::pwrite(file.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (written <= 0) return Status::system("cannot write a message of {} bytes", bytes.size());
    at += static_cast<size_t>(written);
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<RunnerProcess>> RunnerProcess::start(event_base* base, const RunnerProgram& program,
                                                            Watcher watcher) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
    return Status::system("cannot make a socket pair");
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  ::fcntl(theirs.get(), F_SETFL, 0);
  const Launch launch{.gpu = program.gpu, .mps = program.mps, .environment = program.environment};
  const auto pid = program.launcher->launch(launch, theirs.get(), kRunnerSocket);
  if (!pid.ok()) return pid.status();
  std::unique_ptr<RunnerProcess> runner(
      new RunnerProcess(base, program.launcher, pid.value(), std::move(ours), std::move(watcher)));
  runner->mps_ = program.mps;
  runner->priority_ = program.priority;
  return runner;
}

RunnerProcess::RunnerProcess(event_base* base, Launcher* launcher, pid_t pid, UniqueFd socket, Watcher watcher)
    : base_(base), launcher_(launcher), pid_(pid), socket_(std::move(socket)), watcher_(std::move(watcher)) {
  const auto call = [this](void (*function)(evutil_socket_t, short, void*), int fd, short what) {
    return EventPtr(event_new(base_, fd, what, function, this));
  };
  readable_ = call([](evutil_socket_t, short, void* self) { static_cast<RunnerProcess*>(self)->receive(); },
                   socket_.get(), EV_READ | EV_PERSIST);
  writable_ = call([](evutil_socket_t, short, void* self) { static_cast<RunnerProcess*>(self)->flush(); },
                   socket_.get(), EV_WRITE);
  kill_timer_ = call(
      [](evutil_socket_t, short, void* self) {
        auto* runner = static_cast<RunnerProcess*>(self);
        log::warn("runner {} does not {}; killing it", runner->pid_, runner->stopping_ ? "end" : "start");
        runner->kill();
      },
      -1, EV_TIMEOUT);
  failed_timer_ = call([](evutil_socket_t, short, void* self) { static_cast<RunnerProcess*>(self)->answer_failed(); },
                       -1, EV_TIMEOUT);
  called_ =
      call([](evutil_socket_t, short, void* self) { static_cast<RunnerProcess*>(self)->call_waits(); }, -1, EV_TIMEOUT);
  event_add(readable_.get(), nullptr);
  const timeval timeout = to_timeval(kStartTimeout);
  event_add(kill_timer_.get(), &timeout);
}

RunnerProcess::~RunnerProcess() {
  if (pid_ <= 0) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

void RunnerProcess::kill() { launcher_->kill(pid_); }

void RunnerProcess::send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done done) {
  message.serial = next_serial_++;
  if (contexts_off_ && needs_contexts(message.type)) event_active(called_.get(), EV_TIMEOUT, 0);
  under_way_.emplace(message.serial, std::move(done));
  if (!socket_) return fail_later(message.serial, EPIPE);
  UniqueFd file;
  std::vector<int> with_file(fds.begin(), fds.end());
  if (tail.size() > kRunnerTailMax) {
    auto made = file_of(tail);
    if (!made.ok()) {
      log::warn("runner {}: {}", pid_, made.status().message());
      return fail_later(message.serial, made.status().code());
    }
    file = std::move(made.value());
    with_file.push_back(file.get());
    message.tail_in_file = 1;
    tail = {};
    fds = with_file;
  }
  if (!out_.empty()) return enqueue(message, tail, fds);
  const Status status = send_packet(socket_.get(), std::as_bytes(std::span(&message, 1)), tail, fds);
  if (status.ok()) return;
  if (status.code() == EAGAIN) return enqueue(message, tail, fds);
  log::warn("runner {}: {}", pid_, status.message());
  fail_later(message.serial, status.code());
}

void RunnerProcess::enqueue(const RunnerMessage& message, std::span<const std::byte> tail, std::span<const int> fds) {
  Waiting waiting;
  const auto head = std::as_bytes(std::span(&message, 1));
  waiting.bytes.assign(head.begin(), head.end());
  waiting.bytes.insert(waiting.bytes.end(), tail.begin(), tail.end());
  for (const int fd : fds) waiting.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  waiting.serial = message.serial;
  out_.push_back(std::move(waiting));
  event_add(writable_.get(), nullptr);
}

void RunnerProcess::flush() {
  while (socket_ && !out_.empty()) {
    std::vector<int> fds;
    for (const UniqueFd& fd : out_.front().fds) fds.push_back(fd.get());
    const Status status = send_packet(socket_.get(), out_.front().bytes, {}, fds);
    if (status.code() == EAGAIN) {
      event_add(writable_.get(), nullptr);
      return;
    }
    if (!status.ok()) fail_later(out_.front().serial, status.code());
    out_.pop_front();
  }
}

void RunnerProcess::receive() {
  alignas(RunnerMessage)
      std::byte buffer[sizeof(RunnerMessage) +
                       std::max({sizeof(ExchangeTail), sizeof(ChannelGroupList), sizeof(vgpu_device_info)})];
  for (int budget = 64; budget > 0 && socket_; --budget) {
    std::vector<UniqueFd> fds;
    auto length = receive_packet(socket_.get(), buffer, &fds);
    if (!length.ok() && length.status().code() == EAGAIN) return;
    auto packet = std::span<const std::byte>(buffer).first(length.ok() ? length.value() : 0);
    if (handle_exchange(packet, fds) || handle_channel_groups(packet, fds)) continue;
    take_device_info(&packet);
    if (packet.size() != sizeof(RunnerMessage)) {
      // The end of the socket: the runner is gone or has lost its way. Reaping tells.
      readable_.reset();
      writable_.reset();
      socket_.reset();
      set_channel_groups(std::nullopt);
      kill();
      return;
    }
    RunnerMessage message;
    std::memcpy(&message, buffer, sizeof message);
    handle(message);
  }
}

// False: something else, or not what it should be.
bool RunnerProcess::handle_exchange(std::span<const std::byte> packet, std::vector<UniqueFd>& fds) {
  RunnerMessage message;
  ExchangeTail tail;
  if (packet.size() != sizeof message + sizeof tail || fds.size() > 1 || !ready()) return false;
  std::memcpy(&message, packet.data(), sizeof message);
  std::memcpy(&tail, packet.data() + sizeof message, sizeof tail);
  if (is_about_code(message.type)) {
    if (watcher_.code) watcher_.code(message, tail, fds.empty() ? UniqueFd() : std::move(fds[0]));
    return true;
  }
  const bool known = message.type == RunnerMessageType::kPublish || message.type == RunnerMessageType::kFetch ||
                     message.type == RunnerMessageType::kWithdraw || message.type == RunnerMessageType::kCheckpoint ||
                     is_about_segments(message.type);
  if (!known || !watcher_.exchange) return false;
  watcher_.exchange(this, message, tail, fds.empty() ? UniqueFd() : std::move(fds[0]));
  return true;
}

// False: as above.
bool RunnerProcess::handle_channel_groups(std::span<const std::byte> packet, std::vector<UniqueFd>& fds) {
  RunnerMessage message;
  RunnerChannelGroups said;
  if (packet.size() != sizeof message + sizeof said.list) return false;
  std::memcpy(&message, packet.data(), sizeof message);
  std::memcpy(&said.list, packet.data() + sizeof message, sizeof said.list);
  if (message.type != RunnerMessageType::kChannelGroups || said.list.count > kChannelGroupsMax ||
      fds.size() != (said.list.count > 0 ? 1 : 0)) {
    return false;
  }
  if (!fds.empty()) said.descriptor = std::move(fds[0]);
  if (!stopping_) set_channel_groups(std::move(said));
  return true;
}

// Of kReady: leaves its head.
void RunnerProcess::take_device_info(std::span<const std::byte>* packet) {
  vgpu_device_info info;
  if (ready() || packet->size() != sizeof(RunnerMessage) + sizeof info) return;
  std::memcpy(&info, packet->data() + sizeof(RunnerMessage), sizeof info);
  *packet = packet->first(sizeof(RunnerMessage));
  device_info_ = info;
}

void RunnerProcess::set_channel_groups(std::optional<RunnerChannelGroups> channel_groups) {
  channel_groups_ = std::move(channel_groups);
  if (on_channel_groups_) on_channel_groups_();
}

void RunnerProcess::forget_channel_groups() {
  if (channel_groups_) set_channel_groups(std::nullopt);
}

void RunnerProcess::handle(const RunnerMessage& message) {
  if (message.type == RunnerMessageType::kDone) {
    answer(message.id, static_cast<int>(std::min<uint64_t>(message.value, 4095)));
    return;
  }
  if (message.type == RunnerMessageType::kCallWaits && ready()) return call_waits();
  if (message.type == RunnerMessageType::kAsksRoom && ready())
    return watcher_.asks_room ? watcher_.asks_room() : void();
  const bool known = bit_of_base(message.value) != 0;
  if (message.type != RunnerMessageType::kReady || ready() || !known) {
    log::error("runner {} sent a message of type {} that makes no sense", pid_, static_cast<uint32_t>(message.type));
    kill();
    return;
  }
  window_base_ = message.value;
  if (!stopping_) event_del(kill_timer_.get());
  watcher_.ready(this);
}

void RunnerProcess::call_waits() {
  if (watcher_.call_waits) watcher_.call_waits();
}

void RunnerProcess::answer(uint32_t serial, int error) {
  const auto found = under_way_.find(serial);
  if (found == under_way_.end()) return;
  const Done done = std::move(found->second);
  under_way_.erase(found);
  if (done) done(error);
}

void RunnerProcess::fail_later(uint32_t serial, int error) {
  failed_.emplace_back(serial, error);
  const timeval now{0, 0};
  event_add(failed_timer_.get(), &now);
}

void RunnerProcess::answer_failed() {
  for (const auto& [serial, error] : std::exchange(failed_, {})) answer(serial, error);
}

void RunnerProcess::stop(Stop how) {
  // Before it goes, so that what it had on the GPU is free when it has gone.
  forget_channel_groups();
  if (how == Stop::kKill || contexts_off_) {
    kill();
  } else if (!stopping_) {
    send({.type = RunnerMessageType::kEnd}, {}, {}, nullptr);
    const timeval timeout = to_timeval(kEndTimeout);
    event_add(kill_timer_.get(), &timeout);
  }
  stopping_ = true;
}

void RunnerProcess::fail(uint32_t error) {
  if (stopping_) return;
  forget_channel_groups();
  stopping_ = true;
  send({.type = RunnerMessageType::kFail, .value = error}, {}, {}, [this](int) { stop(Stop::kKill); });
  const timeval timeout = to_timeval(kFailTimeout);
  event_add(kill_timer_.get(), &timeout);
}

bool RunnerProcess::ending() const {
  siginfo_t ended{};
  return stopping_ || !socket_ || pid_ <= 0 ||
         (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0);
}

void RunnerProcess::set_contexts_off(bool off) {
  contexts_off_ = off;
  if (off) forget_channel_groups();
}

bool RunnerProcess::reap(std::string* why) {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  *why = describe_exit(status);
  if (!stopping_ && ready() && status != 0) {
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    log::warn("runner {} has ended by itself: {}{}", pid_, *why,
              killed ? "; the kernel's log says whether the host's memory was all in use" : "");
  }
  pid_ = 0;
  return true;
}

void RunnerProcess::gone() {
  socket_.reset();
  for (auto& [serial, done] : std::exchange(under_way_, {})) {
    if (done) done(EPIPE);
  }
  if (const auto on_gone = std::exchange(on_gone_, nullptr)) on_gone();
}

}  // namespace bandsaw
