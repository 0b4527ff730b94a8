#include "backend/vgpud/device.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "memory/base/json.h"
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

Result<Output> run_probe(const std::string& runner, const std::string& index, std::chrono::milliseconds timeout) {
  int out[2], error[2];
  if (::pipe2(out, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (::pipe2(error, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  UniqueFd error_read(error[0]), error_write(error[1]);
  const char* const arguments[] = {runner.c_str(), "--probe", "cuda", index.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error_write.get(), STDERR_FILENO);
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, runner.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return Status::error(failed, "cannot start {}: {}", runner, std::strerror(failed));
  out_write.reset();
  error_write.reset();
  const auto deadline = steady_clock::now() + timeout;
  Output output;
  read_both(std::move(out_read), std::move(error_read), deadline, &output);
  output.status = reap(pid, deadline);
  return output;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1).substr(0, 500);
}

Status unusable(const PhysicalDevice& device, const std::string& why) {
  return Status::error(ENODEV,
                       "the GPU '{}' cannot be used: {}; see that `nvidia-smi` lists it and that the loader finds the "
                       "driver's libcuda.so.1 (LD_LIBRARY_PATH, ldconfig), or set device.name = \"soft\"",
                       device.name, why);
}

Status read_answer(const std::string& text, uint64_t* memory, PhysicalDevice* device) {
  const auto answer = parse_json(text);
  const auto take = [&answer](const char* key) {
    return answer.contains(key) && answer[key].is_string() ? answer[key].get<std::string>() : std::string();
  };
  if (!answer.is_object() || !answer.contains("memory") || !answer["memory"].is_number_unsigned()) {
    return unusable(*device, "the probe's answer makes no sense: '" + last_line(text) + "'");
  }
  *memory = answer["memory"].get<uint64_t>();
  device->model = take("name");
  device->uuid = take("uuid");
  device->driver = take("driver");
  const auto number = [&answer](const char* key) {
    const bool fits =
        answer.contains(key) && answer[key].is_number_unsigned() && answer[key].get<uint64_t>() < 1u << 16;
    return fits ? answer[key].get<uint32_t>() : 0;
  };
  device->sms = number("sms");
  device->sm_step = device->sms ? number("sm_step") : 0;
  return {};
}

// Runners have given up root's rights when they open these.
void warn_of_closed_nodes(uid_t uid) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("nvidia") || !entry.is_character_file(ignored)) continue;
    const bool number = name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (!number && name != "nvidiactl" && name != "nvidia-uvm") continue;
    struct stat node{};
    if (::stat(entry.path().c_str(), &node) == 0 && (node.st_mode & 0006) != 0006) {
      log::warn(
          "/dev/{} has mode {:04o}: runners, as user {}, cannot open it; make it 0666 (the driver's option "
          "NVreg_DeviceFileMode) or set session.first_uid = 0",
          name, node.st_mode & 07777, uid);
    }
  }
}

Status find_gpu(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device) {
  auto probe = run_probe(runner, std::to_string(device->index), timeout);
  if (!probe.ok()) return unusable(*device, probe.status().message());
  const Output& output = probe.value();
  if (output.status == -1) {
    return unusable(*device, fmt::format("the driver did not answer within {} s", timeout.count() / 1000));
  }
  if (output.status != 0) {
    const std::string why = last_line(output.error);
    return unusable(*device, why.empty() ? fmt::format("the probe ended with status {:#x}", output.status) : why);
  }
  uint64_t memory = 0;
  if (Status status = read_answer(output.out, &memory, device); !status.ok()) return status;
  if (device->memory > memory) {
    return Status::error(EINVAL, "device.memory is {}, but {} has {}", format_size(device->memory), device->model,
                         format_size(memory));
  }
  if (device->memory == 0) device->memory = memory;
  return {};
}

bool is_own_driver(const std::filesystem::path& library) {
  std::ifstream file(library, std::ios::binary);
  if (!file) return false;
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return content.find("BANDSAW_VGPU") != std::string::npos;  // the variable that it reads
}

}  // namespace

Status find_device(const std::string& runner, uid_t uid, std::chrono::milliseconds timeout, PhysicalDevice* device) {
  if (device->kind == "cuda") {
    device->name = fmt::format("cuda:{}", device->index);
    if (Status status = find_gpu(runner, timeout, device); !status.ok()) return status;
    if (uid != 0) warn_of_closed_nodes(uid);
    return {};
  }
  device->name = "soft";
  device->model = "Bandsaw software device";
  // Half of the machine's memory: the software device's memory is the host's.
  const auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  if (device->memory == 0) device->memory = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
  return {};
}

std::string without_own_driver(const std::string& path) {
  std::string result;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (!folder.empty() && !is_own_driver(folder + "/libcuda.so.1")) result += (result.empty() ? "" : ":") + folder;
    begin = end + 1;
  }
  return result;
}

}  // namespace bandsaw
