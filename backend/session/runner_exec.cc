#include "backend/session/runner_exec.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace bandsaw {
namespace {

// What the child needs, made before the fork: afterwards it may allocate nothing.
struct ChildPlan {
  const char* path;
  int file;
  int given, number;
  pid_t parent;
  char* const* arguments;
  char* const* environment;
};

[[noreturn]] void become_runner(const ChildPlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (::dup2(plan.given, plan.number) < 0) ::_exit(127);
  if (plan.given == plan.number) ::fcntl(plan.number, F_SETFD, 0);
  ::close_range(static_cast<unsigned>(std::max(plan.number, STDERR_FILENO)) + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  // A GPU's driver gives memory the addresses at which it finds room in this process. With the old layout they lie far
  // from where programs have their own memory, so that the guest can tell one from the other.
  ::personality(ADDR_COMPAT_LAYOUT);
  const rlimit none_left{0, 0};
  ::setrlimit(RLIMIT_CORE, &none_left);  // a core would hold the guest's data
  ::execve(plan.path, plan.arguments, plan.environment);
  if (plan.file >= 0) ::execveat(plan.file, "", plan.arguments, plan.environment, AT_EMPTY_PATH);
  ::_exit(126);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<pid_t> exec_runner(const RunnerExec& what, int given, int number) {
  const auto arguments = pointers(what.arguments), environment = pointers(what.environment);
  const ChildPlan plan{what.path.c_str(), what.file, given, number, ::getpid(), arguments.data(), environment.data()};
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("cannot fork a runner");
  if (pid == 0) become_runner(plan);
  return pid;
}

}  // namespace bandsaw
