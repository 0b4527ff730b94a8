// A runner that has been taken over before it read anything: it tries each way out of its sandbox, says on its standard
// error what came of it ("attempt NAME: 0" is a success, any other number an errno), and then waits.
//
// BANDSAW_HOSTILE has what its attacker would know of the host: NAME=value, with a blank between.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>

#include "backend/control/runner_link.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace {

using namespace bandsaw;

constexpr pid_t kNobody = 100'000;

std::string known(const std::string& name) {
  std::istringstream words(std::getenv("BANDSAW_HOSTILE"));
  for (std::string word; words >> word;) {
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  }
  return "";
}

// In a child: an attempt may be the end of it (then 1000 and the signal).
void attempt(const char* name, const std::function<long()>& what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what() < 0 ? errno : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::fprintf(stderr, "attempt %s: %d\n", name, WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status));
}

long read_file(const std::string& path) { return ::open(path.c_str(), O_RDONLY); }
long write_file(const std::string& path) { return ::open(path.c_str(), O_WRONLY | O_CREAT, 0600); }

long reach(const std::string& path, int type, bool abstract = false) {
  const int socket = ::socket(AF_UNIX, type, 0);
  if (socket < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + (abstract ? 1 : 0), path.data(), path.size());
  const size_t length = offsetof(sockaddr_un, sun_path) + path.size() + 1;
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
}

long see_processes() {
  std::error_code error;
  const std::string own = std::to_string(::getppid());  // this is a child of the runner's
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos || name == own || name == std::to_string(::getpid()))
      continue;
    return 0;
  }
  errno = ENOENT;
  return -1;
}

// Whether there is a process with another number, may it be signalled or not.
long see_numbers(pid_t runner) {
  for (pid_t pid = 1; pid < kNobody; ++pid) {
    if (pid != runner && pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM)) return 0;
  }
  errno = ESRCH;
  return -1;
}

void try_everything() {
  const std::string run = known("run"), state = known("state");
  const pid_t runner = ::getpid(), session = ::getppid();  // 0 where it is out of sight
  const auto session_uid = static_cast<uid_t>(std::atoi(known("session_uid").c_str()));
  attempt("own-folder", [&] { return write_file(state + "/vgpus/web0/mine"); });
  attempt("passwd", [] { return read_file("/etc/passwd"); });
  attempt("shell", [] { return ::access("/bin/sh", X_OK); });
  attempt("write-program",
          [] { return write_file(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "new"); });
  attempt("write-root", [] { return ::mkdir("/new", 0700); });
  attempt("registry", [&] { return read_file(state + "/vgpus.json"); });
  attempt("other-folder", [&] { return read_file(state + "/vgpus/web1"); });
  attempt("other-direct", [&] { return reach(run + "/web1/direct.sock", SOCK_SEQPACKET); });
  attempt("own-direct", [&] { return reach(run + "/web0/direct.sock", SOCK_SEQPACKET); });
  attempt("peers", [&] { return reach(run + "/peers.d/1.sock", SOCK_SEQPACKET); });
  attempt("control", [&] { return reach(run + "/control.sock", SOCK_STREAM); });
  attempt("abstract", [&] { return reach(known("abstract"), SOCK_STREAM, true); });
  attempt("network", [] { return ::socket(AF_INET, SOCK_STREAM, 0); });
  attempt("see-processes", see_processes);
  attempt("see-numbers", [&] { return see_numbers(runner); });
  attempt("signal-session", [&] { return ::kill(session != 0 ? session : kNobody, 0); });
  attempt("signal-others", [] { return ::kill(-1, 0); });
  attempt("trace-session", [&] { return ::ptrace(PTRACE_ATTACH, session, nullptr, nullptr); });
  attempt("session-memory", [&] { return read_file("/proc/" + std::to_string(session) + "/mem"); });
  attempt("become-session", [&] { return ::setresuid(session_uid, session_uid, session_uid); });
  attempt("mount", [] { return ::mount("none", "/dev", "tmpfs", 0, nullptr); });
  attempt("unmount", [] { return ::umount2("/proc", MNT_DETACH); });
  attempt("user-namespace", [] { return ::unshare(CLONE_NEWUSER); });
  attempt("clone-user-namespace", [] { return ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr); });
  attempt("join-namespace", [] { return ::setns(::open("/proc/1/ns/mnt", O_RDONLY), CLONE_NEWNS); });
  attempt("device", [] { return ::mknod("/tmp/device", S_IFBLK | 0600, makedev(254, 0)); });
  attempt("chroot", [] { return ::chroot("/proc"); });
  std::fprintf(stderr, "attempts end\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--probe") == 0) return 0;
  try_everything();
  const RunnerMessage ready{.type = RunnerMessageType::kReady, .value = VGPU_WINDOW_BASE_0};
  ::send(kRunnerSocket, &ready, sizeof ready, 0);
  char buffer[64];
  while (::recv(kRunnerSocket, buffer, sizeof buffer, 0) > 0) continue;
}
