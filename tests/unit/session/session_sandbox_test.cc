// What a session has given up holds for it and for what it starts.
#include "backend/sandbox/session_sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "backend/sandbox/capabilities.h"
#include "backend/sandbox/system_calls.h"

namespace bandsaw {
namespace {

// The errno of `call` in a child under the filter, 0 if it succeeds; 255: the child was killed. `starting`: as a runner
// that starts.
int in_session(const std::function<long()>& call, bool starting = false) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!(starting ? limit_starting_calls() : limit_session_calls()).ok()) ::_exit(200);
    errno = 0;
    ::_exit(call() < 0 ? errno : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST(SessionSandbox, WhatSessionsNeverDoIsRefused) {
  for (const bool starting : {false, true}) {
    const int never = starting ? EPERM : 255;
    EXPECT_EQ(in_session([] { return ::unshare(CLONE_NEWUSER); }, starting), never);
    EXPECT_EQ(in_session([] { return ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr); }, starting), never);
    EXPECT_EQ(in_session([] { return ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr); }, starting), never);
    EXPECT_EQ(
        in_session([] { return ::syscall(SYS_process_vm_readv, ::getppid(), nullptr, 0, nullptr, 0, 0); }, starting),
        never);
    EXPECT_EQ(in_session([] { return ::syscall(SYS_bpf, 0, nullptr, 0); }, starting), never);
    EXPECT_EQ(in_session([] { return ::syscall(SYS_mount, nullptr, "/", nullptr, 0, nullptr); }, starting), never);
  }
  EXPECT_EQ(in_session([] { return ::syscall(SYS_io_uring_setup, 1, nullptr); }), EPERM);
  EXPECT_EQ(in_session([] { return ::socket(AF_INET, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(in_session([] { return ::socket(AF_NETLINK, SOCK_RAW, 0); }), EPERM);
#if defined(__x86_64__)
  EXPECT_EQ(in_session([] { return ::syscall(0x40000000 | SYS_getpid); }), 255) << "by the other ABI's number";
#endif
}

TEST(SessionSandbox, WhatTheyDoGoesOn) {
  EXPECT_EQ(in_session([] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }), 0);
  int pair[2];
  EXPECT_EQ(in_session([&] { return ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair); }), 0);
  EXPECT_EQ(in_session([] {
              const pid_t child = ::fork();
              if (child == 0) ::_exit(0);
              int status = -1;
              ::waitpid(child, &status, 0);
              return status == 0 ? 0 : -1;
            }),
            0);
}

TEST(SessionSandbox, WhatIsNotListedFails) {
  EXPECT_EQ(in_session([] { return ::chmod("/nonexistent", 0777); }), EPERM);
  EXPECT_EQ(in_session([] { return ::setuid(0); }), EPERM);
  EXPECT_EQ(in_session([] { return ::setpriority(PRIO_PROCESS, 0, -1); }), EPERM);
  EXPECT_EQ(in_session([] { return ::symlink("/etc", "/nonexistent/link"); }), EPERM);
  EXPECT_EQ(in_session([] { return ::syscall(SYS_inotify_init1, 0); }), EPERM);
  EXPECT_EQ(in_session([] { return ::ioctl(STDIN_FILENO, TIOCSTI, "x"); }), EPERM);
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  EXPECT_EQ(in_session([&] { return ::prlimit(::getppid(), RLIMIT_CORE, &unlimited, nullptr); }), EPERM);
  EXPECT_EQ(in_session([] { return ::execl("/bin/true", "true", nullptr); }), 255) << "it starts no programs";
}

// As root, it becomes another user, without any capability.
TEST(SessionSandbox, KeepsNoCapability) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has something to give up";
  char folder[] = "/tmp/session-sandbox-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!enter_sandbox({.uid = 60999, .gid = 60999, .staging = folder}).ok()) ::_exit(200);
    for (int capability = 0; capability < 41; ++capability) {
      if (has_capability(capability)) ::_exit(1);
    }
    // Its root has nothing of the host's; where the host lets it have none, landlock is in between.
    ::_exit(::open("/etc/passwd", O_RDONLY) >= 0 ? 2 : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::rmdir(folder);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Also by a program that it has started.
TEST(SessionSandbox, IsInherited) {
  EXPECT_EQ(in_session(
                [] {
                  const pid_t child = ::fork();
                  if (child == 0) ::execl("/usr/bin/unshare", "unshare", "-U", "/bin/true", nullptr);
                  int status = 0;
                  ::waitpid(child, &status, 0);
                  return status != 0 ? 0 : -1;
                },
                true),
            0);
}

}  // namespace
}  // namespace bandsaw
