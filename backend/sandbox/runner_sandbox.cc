#include "backend/sandbox/runner_sandbox.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "memory/base/log.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {
namespace {

constexpr int kFaultExit = 70;

// Async-signal-safe.
void say(const char* text, uint64_t number) {
  char line[160];
  size_t length = 0;
  for (; text[length] != '\0' && length < 120; ++length) line[length] = text[length];
  for (int shift = 60; shift >= 0; shift -= 4) line[length++] = "0123456789abcdef"[(number >> shift) & 15];
  line[length++] = '\n';
  if (write(log_descriptor(), line, length) < 0) _exit(kFaultExit);
}

void on_fault(int signal, siginfo_t* info, void*) {
  say(signal == SIGBUS ? "bandsaw-runner: guest memory went away (SIGBUS) at 0x" : "bandsaw-runner: SIGSEGV at 0x",
      reinterpret_cast<uint64_t>(info->si_addr));
  // Not safe in a signal handler, but the process is lost in any case; the alarm ends it should this hang.
  alarm(2);
  void* frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), log_descriptor());
  _exit(kFaultExit);
}

}  // namespace

Status enter_sandbox(int keep) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) return Status::system("/dev/null");
  const auto first = static_cast<unsigned>(keep);
  if ((keep > STDERR_FILENO + 1 && close_range(STDERR_FILENO + 1, first - 1, 0) != 0) ||
      close_range(first + 1, ~0u, 0) != 0) {
    return Status::system("closing descriptors");
  }
  // What a guest queues up grows here. If the host runs out of memory, this goes first and not somebody else's.
  if (const UniqueFd score(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)); score) {
    if (write(score.get(), "1000", 4) < 0) log::warn("oom_score_adj: {}", std::strerror(errno));
  }
  const rlimit none{0, 0};
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Status::system("PR_SET_PDEATHSIG");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Status::system("PR_SET_NO_NEW_PRIVS");
  if (setrlimit(RLIMIT_CORE, &none) != 0) return Status::system("RLIMIT_CORE");
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return Status::system("PR_SET_DUMPABLE");
  return {};
}

void catch_faults() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &action, nullptr);
  sigaction(SIGSEGV, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace bandsaw::runner
