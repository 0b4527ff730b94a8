// The filter of system calls: what a runner needs once its device is there, and nothing that reaches another process
// or the network. Anything else fails with EPERM, so that a library that only tries goes on without it.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "backend/sandbox/runner_sandbox.h"

namespace bandsaw::runner {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "no filter of system calls for this architecture"
#endif

constexpr int kAllowed[] = {
    // the link, command rings and their wake-ups
    SYS_read,
    SYS_write,
    SYS_writev,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_ppoll,
    SYS_futex,
    SYS_futex_waitv,
    SYS_close,
    SYS_fstat,
    SYS_dup,
    SYS_fcntl,
    SYS_eventfd2,
    // memory
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_memfd_create,
    SYS_fallocate,
    SYS_ftruncate,
    // threads, faults and time
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_gettid,
    SYS_getpid,
    SYS_tgkill,
    SYS_prctl,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_restart_syscall,
    SYS_membarrier,
    SYS_getcpu,
    // files: the cache of compiled code, and what libraries read about the machine
    SYS_openat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_lseek,
    SYS_pread64,
    SYS_pwrite64,
    SYS_renameat2,
    SYS_renameat,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_getdents64,
    SYS_fsync,
    SYS_fdatasync,
    SYS_flock,
    SYS_statfs,
    SYS_fstatfs,
    SYS_utimensat,
    SYS_fchmod,
    SYS_umask,
    SYS_getcwd,
    SYS_getrandom,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_prlimit64,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getppid,
#if defined(__x86_64__)
    SYS_poll,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_rename,
    SYS_unlink,
    SYS_mkdir,
    SYS_arch_prctl,
    SYS_getrlimit,
    SYS_gettimeofday,
#endif
};

// What NVIDIA's driver library does beside that: its kernel modules speak ioctl, and it asks about memory and threads.
constexpr int kAllowedForGpu[] = {
    SYS_mincore,
    SYS_msync,
    SYS_mlock,
    SYS_munlock,
    SYS_mbind,
    SYS_get_mempolicy,
    SYS_set_mempolicy,
    SYS_getrandom,
    SYS_pipe2,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fstatfs,
    SYS_getcwd,
    SYS_times,
#if defined(__x86_64__)
    SYS_pipe,
    SYS_dup2,
    SYS_epoll_wait,
    SYS_time,
#endif
};

// A client of MPS asks the daemon for its server, and connects to that, for each context that it makes. Sockets are
// made by the filter's own rule.
constexpr int kAllowedForMps[] = {
    SYS_connect, SYS_getsockopt, SYS_setsockopt, SYS_recvfrom, SYS_getsockname, SYS_getpeername, SYS_shutdown,
};

constexpr uint32_t kThreadFlags = CLONE_VM | CLONE_THREAD;

sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter answer(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

// Requests to a driver, but none of Xen's gntdev: a runner has its descriptor to map what the session asked it for, and
// could ask for what other domains grant. Its requests have the letter G; NVIDIA's have F or none.
void allow_requests_to_drivers(std::vector<sock_filter>* program) {
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5));
  program->push_back(load(offsetof(seccomp_data, args[1])));
  program->push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00));
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'G' << 8, 0, 1));
  program->push_back(answer(SECCOMP_RET_ERRNO | EPERM));
  program->push_back(answer(SECCOMP_RET_ALLOW));
}

// Sockets of this family and no other.
void allow_sockets(uint32_t family, std::vector<sock_filter>* program) {
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4));
  program->push_back(load(offsetof(seccomp_data, args[0])));
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1));
  program->push_back(answer(SECCOMP_RET_ALLOW));
  program->push_back(answer(SECCOMP_RET_ERRNO | EPERM));
}

}  // namespace

Status limit_system_calls(bool for_gpu, bool mps_client) {
  std::vector<int> allowed(std::begin(kAllowed), std::end(kAllowed));
  if (for_gpu) allowed.insert(allowed.end(), std::begin(kAllowedForGpu), std::end(kAllowedForGpu));
  if (mps_client) allowed.insert(allowed.end(), std::begin(kAllowedForMps), std::end(kAllowedForMps));
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      answer(SECCOMP_RET_KILL_PROCESS),
      load(offsetof(seccomp_data, nr)),
  };
  for (const int number : allowed) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(answer(SECCOMP_RET_ALLOW));
  }
  if (for_gpu) allow_requests_to_drivers(&program);
  if (mps_client) allow_sockets(AF_UNIX, &program);
  // Threads, but no processes. clone3 hides its flags behind a pointer: glibc falls back to clone.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
  program.push_back(answer(SECCOMP_RET_ERRNO | ENOSYS));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
  program.push_back(load(offsetof(seccomp_data, args[0])));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kThreadFlags));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kThreadFlags, 0, 1));
  program.push_back(answer(SECCOMP_RET_ALLOW));
  program.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // TSYNC: the device may have threads already.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
    return Status::system("the filter of system calls");
  }
  return {};
}

}  // namespace bandsaw::runner
