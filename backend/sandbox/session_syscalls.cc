// What a session and all that it starts never do: whatever looks into or changes other processes, namespaces, file
// systems or the kernel, and sockets other than Unix ones. A list of what is refused, because NVIDIA's driver starts up
// under it; runners put a list of what is allowed on top (syscalls.cc). What is refused fails with EPERM, so that a
// library that only tries goes on without it.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "backend/sandbox/session_sandbox.h"

namespace bandsaw {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kSessionArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kSessionArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "no filter of system calls for this architecture"
#endif
constexpr uint32_t kOtherAbi = 0x40000000;  // x86's calls of 32-bit pointers have this bit, and the same meanings

constexpr int kRefused[] = {
    // other processes
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_kcmp,
    // namespaces and file systems
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_fanotify_init,
    SYS_mknodat,
    // the kernel
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_vhangup,
#if defined(__x86_64__)
    SYS_mknod,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_kexec_file_load,
#endif
};

sock_filter load_word(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter give(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

}  // namespace

Status refuse_system_calls() {
  std::vector<sock_filter> program = {
      load_word(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSessionArchitecture, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS),
      load_word(offsetof(seccomp_data, nr)),
#if defined(__x86_64__)
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherAbi, 0, 1),
      give(SECCOMP_RET_KILL_PROCESS),
#endif
  };
  for (const int number : kRefused) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(give(SECCOMP_RET_ERRNO | EPERM));
  }
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3));
  program.push_back(load_word(offsetof(seccomp_data, args[0])));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
  program.push_back(give(SECCOMP_RET_ERRNO | EPERM));
  program.push_back(give(SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return Status::system("cannot forbid new privileges");
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
    return Status::system("cannot load the filter of a session's system calls");
  }
  return {};
}

}  // namespace bandsaw
