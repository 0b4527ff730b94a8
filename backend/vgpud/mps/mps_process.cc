#include "backend/vgpud/mps/mps_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "backend/control/json_link.h"
#include "backend/control/paths.h"
#include "memory/base/log.h"

extern "C" char** environ;

namespace bandsaw {
namespace {

namespace fs = std::filesystem;

constexpr int kDescriptorsKept = 3;
constexpr const char* kServerName = "nvidia-cuda-mps";  // as far as the kernel keeps a process's name
constexpr size_t kTailBytes = 1500;
constexpr const char* kGpuNote = "/gpu";  // in its folder: the GPU that it serves

std::vector<std::string> folders_of_path() {
  const char* path = std::getenv("PATH");
  std::istringstream all(path && *path ? path : "/usr/local/bin:/usr/bin:/bin");
  std::vector<std::string> result;
  for (std::string folder; std::getline(all, folder, ':');) {
    if (!folder.empty()) result.push_back(folder);
  }
  return result;
}

std::string executable_in(const std::vector<std::string>& folders, const std::string& name) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path)) return path;
  }
  return {};
}

Result<std::string> random_key() {
  unsigned char bytes[12];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return Status::system("no random bytes");
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

// Its own environment: of CUDA_* only what we say.
std::vector<std::string> environment_of(const MpsConfig& config, const std::string& folder) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    if (!std::string_view(*variable).starts_with("CUDA_")) result.emplace_back(*variable);
  }
  result.push_back("CUDA_MPS_PIPE_DIRECTORY=" + folder + "/pipe");
  result.push_back("CUDA_MPS_LOG_DIRECTORY=" + folder + "/log");
  // By its UUID, because a number is counted anew by clients. Without it the server takes every GPU of the host.
  if (!config.gpu.empty()) result.push_back("CUDA_VISIBLE_DEVICES=" + config.gpu);
  return result;
}

// Starts `arguments` in a session of its own. `input` becomes its standard input, `log` what it writes to. `detached`:
// somebody else's child, that nobody here has to reap.
Result<pid_t> spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, int input,
                    int log, bool detached) {
  std::vector<char*> argument_pointers, environment_pointers;
  for (const std::string& text : arguments) argument_pointers.push_back(const_cast<char*>(text.c_str()));
  for (const std::string& text : environment) environment_pointers.push_back(const_cast<char*>(text.c_str()));
  argument_pointers.push_back(nullptr);
  environment_pointers.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("cannot fork {}", arguments[0]);
  if (pid > 0 && detached) ::waitpid(pid, nullptr, 0);
  if (pid > 0) return pid;
  if (detached && ::fork() != 0) ::_exit(0);
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::umask(0);  // its sockets are for the users of runners; the folder keeps others out
  ::dup2(input, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::close_range(kDescriptorsKept, ~0u, CLOSE_RANGE_CLOEXEC);
  ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
  ::_exit(126);
}

Status make_daemon_folder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) < 0 && errno != EEXIST) return Status::system("cannot make {}", path);
  if (::chmod(path.c_str(), mode) < 0) return Status::system("cannot change {}", path);  // whatever the umask is
  return {};
}

// Of what cannot be read to its end, what could: a process may end while its files are read, and iterators over them
// would throw.
std::string read_file(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// So that the next vgpud knows whose it is.
Status note_gpu(const MpsProcess& process, const std::string& gpu) {
  const std::string path = process.folder + kGpuNote;
  std::ofstream file(path);
  file << gpu << std::flush;
  return file ? Status() : Status::error(EIO, "cannot write {}", path);
}

// Servers are children that make themselves independent, so their group does not tell.
std::vector<pid_t> servers_of(const MpsProcess& process) {
  std::vector<pid_t> result;
  const std::string wanted = "CUDA_MPS_PIPE_DIRECTORY=" + process.pipe();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string number = entry.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!read_file(entry.path() / "comm").starts_with(kServerName)) continue;
    std::istringstream variables(read_file(entry.path() / "environ"));
    for (std::string variable; std::getline(variables, variable, '\0');) {
      if (variable == wanted) result.push_back(std::atoi(number.c_str()));
    }
  }
  return result;
}

}  // namespace

Result<std::string> find_mps_command(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    if (::access(command.c_str(), X_OK) == 0) return command;
    return Status::error(ENOENT, "'{}' cannot be executed: {} ('mps.command' in the configuration)", command,
                         std::strerror(errno));
  }
  auto folders = folders_of_path();
  if (const std::string smi = executable_in(folders, "nvidia-smi"); !smi.empty()) {
    std::error_code ignored;
    folders.push_back(fs::canonical(smi, ignored).parent_path());
  }
  if (std::string found = executable_in(folders, command); !found.empty()) return found;
  return Status::error(ENOENT,
                       "there is no '{}' in PATH or beside nvidia-smi; install the driver's MPS programs or set "
                       "'mps.command' in vgpud's configuration",
                       command);
}

Result<MpsProcess> start_mps(const MpsConfig& config) {
  const auto command = find_mps_command(config.command);
  if (!command.ok()) return command.status();
  const auto key = random_key();
  if (!key.ok()) return key.status();
  MpsProcess process;
  process.folder = mps_folder(config.run) + "/" + key.value();
  Status status = make_daemon_folder(mps_folder(config.run), kMpsFolderMode);
  if (status.ok()) status = make_daemon_folder(process.folder, 0711);
  if (status.ok()) status = make_daemon_folder(process.pipe(), 0711);
  if (status.ok()) status = make_daemon_folder(process.folder + "/log", 0700);
  if (status.ok()) status = note_gpu(process, config.gpu);
  if (!status.ok()) return status;
  const std::string log_path = process.folder + "/log/output.log";
  const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!log || !null) return Status::system("cannot make {}", log_path);
  std::vector<std::string> arguments = {command.value(), "-f"};
  // Otherwise a client of another user would wait until the clients of the first have gone.
  if (config.several_users) arguments.emplace_back("-multiuser-server");
  const auto pid = spawn(arguments, environment_of(config, process.folder), null.get(), log.get(), false);
  if (!pid.ok()) return pid.status();
  process.pid = pid.value();
  process.child = true;
  process.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!process.pidfd) return Status::system("cannot watch {}", command.value());
  return process;
}

std::vector<MpsProcess> find_left_mps(const MpsConfig& config) {
  std::vector<MpsProcess> result;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(mps_folder(config.run), ignored)) {
    MpsProcess process;
    process.folder = entry.path();
    const std::string gpu = read_file(process.folder + kGpuNote);
    if (!gpu.empty() && gpu != config.gpu) continue;
    const auto socket = reach_unix(process.pipe() + "/control");
    ucred peer{};
    socklen_t length = sizeof peer;
    if (socket.ok() && ::getsockopt(socket.value().get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) {
      process.pid = peer.pid;
      process.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    }
    if (process.pidfd) {
      result.push_back(std::move(process));
      continue;
    }
    kill_mps(process);
    fs::remove_all(process.folder, ignored);
  }
  return result;
}

bool reach_mps(const MpsProcess& process) { return reach_unix(process.pipe() + "/control").ok(); }

Status ask_mps_to_quit(const MpsConfig& config, const MpsProcess& process) {
  const auto command = find_mps_command(config.command);
  if (!command.ok()) return command.status();
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  const UniqueFd read_end(pipe[0]), write_end(pipe[1]);
  constexpr std::string_view kQuit = "quit\n";
  if (::write(write_end.get(), kQuit.data(), kQuit.size()) < 0) return Status::system("cannot write to a pipe");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto pid = spawn({command.value()}, environment_of(config, process.folder), read_end.get(), null.get(), true);
  return pid.status();
}

void kill_mps(const MpsProcess& process) {
  if (process.pid > 0 && process.pidfd) ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
  if (process.child) ::kill(-process.pid, SIGKILL);  // a group that outlives its leader keeps its number
  for (const pid_t server : servers_of(process)) ::kill(server, SIGKILL);
}

std::string mps_log_tail(const MpsProcess& process) {
  std::string text;
  for (const char* name : {"output.log", "control.log", "server.log"}) {
    const std::string part = read_file(process.folder + "/log/" + name);
    if (part.empty()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", name,
                        part.substr(part.size() - std::min(part.size(), kTailBytes)));
  }
  return text;
}

}  // namespace bandsaw
