#include "backend/vgpud/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string_view>
#include <vector>

#include "backend/control/paths.h"
#include "memory/base/log.h"
#include "memory/base/unique_fd.h"

extern "C" char** environ;

namespace bandsaw {
namespace {

using std::chrono::steady_clock;

constexpr size_t kProbeOutputMax = 64 << 10;

struct Output {
  int status = -1;  // of waitpid; -1: it did not end in time
  std::string out, error;
};

// Reads what there is; false at the end.
bool drain(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t length = ::read(fd, buffer, sizeof buffer);
  if (length < 0) return errno == EINTR || errno == EAGAIN;
  if (text->size() < kProbeOutputMax) text->append(buffer, static_cast<size_t>(length));
  return length > 0;
}

void read_both(UniqueFd out, UniqueFd error, steady_clock::time_point deadline, Output* output) {
  pollfd fds[] = {{out.get(), POLLIN, 0}, {error.get(), POLLIN, 0}};
  std::string* texts[] = {&output->out, &output->error};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0 || (::poll(fds, 2, static_cast<int>(left)) < 0 && errno != EINTR)) return;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd >= 0 && fds[i].revents != 0 && !drain(fds[i].fd, texts[i])) fds[i].fd = -1;
    }
  }
}

// Ends the process if it does not end by itself.
int reap(pid_t pid, steady_clock::time_point deadline) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return -1;
    }
    ::usleep(2000);
  }
  return status;
}

// Ours, with this one GPU in sight; or with all, in the order of their bus ids, if its UUID is not known yet.
std::vector<std::string> probe_environment(const std::string& visible) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("CUDA_DEVICE_ORDER=") || (!visible.empty() && text.starts_with("CUDA_VISIBLE_DEVICES="))) {
      continue;
    }
    result.emplace_back(text);
  }
  result.emplace_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
  if (!visible.empty()) result.push_back("CUDA_VISIBLE_DEVICES=" + visible);
  return result;
}

// `RUNNER ARGUMENTS`, with that GPU in sight.
Result<Output> run_probe(const std::string& runner, const std::vector<std::string>& arguments,
                         const std::string& visible, std::chrono::milliseconds timeout) {
  int out[2], error[2];
  if (::pipe2(out, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (::pipe2(error, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  UniqueFd error_read(error[0]), error_write(error[1]);
  const auto pid = spawn_probe(runner, arguments, visible, out_write.get(), error_write.get());
  if (!pid.ok()) return pid.status();
  out_write.reset();
  error_write.reset();
  const auto deadline = steady_clock::now() + timeout;
  Output output;
  read_both(std::move(out_read), std::move(error_read), deadline, &output);
  output.status = reap(pid.value(), deadline);
  return output;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1).substr(0, 500);
}

Status failure(const Output& output, std::chrono::milliseconds timeout) {
  if (output.status == 0) return {};
  if (output.status == -1) {
    return Status::error(ENODEV, "the driver did not answer within {} s", timeout.count() / 1000);
  }
  const std::string why = last_line(output.error);
  if (!why.empty()) return Status::error(ENODEV, "{}", why);
  return Status::error(ENODEV, "the probe ended with status {:#x}", output.status);
}

}  // namespace

Result<pid_t> spawn_probe(const std::string& runner, const std::vector<std::string>& arguments,
                          const std::string& visible, int out, int error) {
  std::vector<std::string> words = {runner}, variables = probe_environment(visible);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  std::vector<char*> word_pointers = pointers(words), variable_pointers = pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, runner.c_str(), &actions, nullptr, word_pointers.data(), variable_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return Status::error(failed, "there is no {}: {}", runner, kRunnerPackages);
  if (failed) return Status::error(failed, "cannot start {}: {}", runner, std::strerror(failed));
  return pid;
}

Result<std::string> ask_device(const std::string& runner, std::chrono::milliseconds timeout,
                               const PhysicalDevice& device) {
  const std::string index = std::to_string(device.visible.empty() ? device.index : 0);
  auto probe = run_probe(runner_of(runner, device.kind), {"--probe", device.kind, index}, device.visible, timeout);
  if (!probe.ok()) return probe.status();
  if (Status status = failure(probe.value(), timeout); !status.ok()) return status;
  return last_line(probe.value().out);
}

Result<std::vector<PhysicalDevice>> list_gpus(const std::string& runner, std::chrono::milliseconds timeout) {
  const auto unusable = [](const std::string& why) {
    return Status::error(ENODEV,
                         "the GPUs of this host cannot be listed: {}; see that `nvidia-smi -L` lists them, or "
                         "name the devices one by one",
                         why);
  };
  auto probe = run_probe(runner_of(runner, "cuda"), {"--list-gpus"}, "", timeout);
  if (!probe.ok()) return unusable(probe.status().message());
  if (Status status = failure(probe.value(), timeout); !status.ok()) return unusable(status.message());
  std::vector<PhysicalDevice> devices;
  std::istringstream lines(probe.value().out);
  for (std::string name, uuid; lines >> name >> uuid;) {
    auto device = parse_device(name);
    const auto by_uuid = parse_device("cuda:" + uuid);
    if (!device.ok() || !by_uuid.ok()) return unusable("'" + name + " " + uuid + "' makes no sense");
    device.value().visible = by_uuid.value().visible;
    devices.push_back(std::move(device.value()));
  }
  if (!probe.value().error.empty()) log::warn("{}", last_line(probe.value().error));
  if (devices.empty()) return unusable("there are none");
  return devices;
}

}  // namespace bandsaw
