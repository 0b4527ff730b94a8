#include "backend/sandbox/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "backend/control/packet.h"
#include "backend/sandbox/launcher_link.h"
#include "backend/sandbox/launcher_process.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr timeval kAnswerMost{20, 0};  // many mounts on a busy machine

Status write_file(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Status::system("cannot write {}", path);
  }
  return {};
}

// In its namespace users and groups have the numbers that they have here; there are these two alone.
Status write_maps(pid_t pid, const LauncherConfig& config) {
  std::string map = fmt::format("{0} {0} 1\n", config.session_uid);
  if (config.runner_uid != config.session_uid) map += fmt::format("{0} {0} 1\n", config.runner_uid);
  Status status = write_file(fmt::format("/proc/{}/gid_map", pid), map);
  return status.ok() ? write_file(fmt::format("/proc/{}/uid_map", pid), map) : status;
}

struct Answer {
  LauncherReply head{};
  std::vector<std::string> texts;
};

Result<Answer> receive_answer(int socket, pid_t pid, const LauncherConfig* config) {
  std::array<std::byte, kLauncherReplyMax> buffer;
  std::vector<UniqueFd> fds;
  for (;;) {
    const auto length = receive_packet(socket, buffer, &fds);
    if (!length.ok()) return length.status();
    if (length.value() == 1 && config) {
      const Status status = write_maps(pid, *config);
      if (!status.ok()) log::info("{}", status.message());
      const char done = status.ok() ? 1 : 0;
      if (Status sent = send_packet(socket, std::as_bytes(std::span(&done, 1)), {}, {}); !sent.ok()) return sent;
      continue;
    }
    Answer answer;
    if (length.value() < sizeof answer.head) return Status::error(EPIPE, "the launcher has ended");
    std::memcpy(&answer.head, buffer.data(), sizeof answer.head);
    answer.texts = texts_of(
        {reinterpret_cast<const char*>(buffer.data()) + sizeof answer.head, length.value() - sizeof answer.head});
    return answer;
  }
}

}  // namespace

Result<SandboxMode> parse_sandbox_mode(const std::string& text) {
  if (text == "auto") return SandboxMode::kAuto;
  if (text == "required") return SandboxMode::kRequired;
  if (text == "off") return SandboxMode::kOff;
  return Status::error(EINVAL, "'{}'; there are \"auto\", \"required\" and \"off\"", text);
}

Result<std::unique_ptr<Launcher>> Launcher::start(const LauncherConfig& config) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return Status::system("a socket pair");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const int bytes = 2 * static_cast<int>(kLauncherRequestMax);
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerMost, sizeof kAnswerMost);
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("cannot fork a launcher");
  if (pid == 0) run_launcher(config, theirs.release());
  theirs.reset();
  std::unique_ptr<Launcher> launcher(new Launcher(std::move(ours), pid));
  const auto ready = receive_answer(launcher->socket_.get(), pid, &config);
  if (!ready.ok()) return ready.status();
  const auto& texts = ready.value().texts;
  if (ready.value().head.error != 0 || texts.size() != 2) {
    return Status::error(ready.value().head.error, "no sandbox for runners: {}", texts.empty() ? "?" : texts[0]);
  }
  launcher->measures_ = {texts[0], texts[1]};
  return launcher;
}

// It reads that nobody is there any more, and ends; what it has launched goes with this process.
Launcher::~Launcher() {
  socket_.reset();
  ::waitpid(pid_, nullptr, 0);
}

Result<pid_t> Launcher::launch(const Launch& what, int given, int number) {
  const LauncherRequest head{LauncherRequest::kLaunch, 0, static_cast<uint32_t>(what.task),
                             static_cast<uint32_t>(number)};
  std::vector<std::string_view> texts{what.argument, what.gpu, what.mps};
  texts.insert(texts.end(), what.environment.begin(), what.environment.end());
  const std::string packet = to_packet(std::as_bytes(std::span(&head, 1)), texts);
  if (packet.size() > kLauncherRequestMax) return Status::error(E2BIG, "the environment of a runner is too long");
  if (Status status = send_packet(socket_.get(), std::as_bytes(std::span(packet)), {}, std::array{given});
      !status.ok()) {
    return Status::error(status.code(), "cannot reach the launcher: {}", status.message());
  }
  auto pid = receive_pid();
  if (pid.ok()) return pid;
  return Status::error(pid.status().code(), "cannot launch a runner: {}", pid.status().message());
}

Result<pid_t> Launcher::receive_pid() {
  const auto answer = receive_answer(socket_.get(), pid_, nullptr);
  if (!answer.ok()) {
    ::shutdown(socket_.get(), SHUT_RDWR);  // what it says later would be taken for the answer to something else
    return answer.status();
  }
  const LauncherReply& reply = answer.value().head;
  if (reply.error != 0) return Status::error(reply.error, "{}", std::strerror(reply.error));
  return reply.pid;
}

Result<pid_t> Launcher::number_for_checkpointer(pid_t pid) {
  const LauncherRequest head{LauncherRequest::kNumber, pid, 0, 0};
  const Status status = send_packet(socket_.get(), std::as_bytes(std::span(&head, 1)), {}, {});
  if (!status.ok()) return status;
  return receive_pid();
}

void Launcher::kill(pid_t pid) {
  if (pid <= 0) return;
  const LauncherRequest head{LauncherRequest::kKill, pid, 0, 0};
  const Status status = send_packet(socket_.get(), std::as_bytes(std::span(&head, 1)), {}, {});
  if (!status.ok()) log::error("cannot have process {} killed: {}", pid, status.message());
}

}  // namespace bandsaw
