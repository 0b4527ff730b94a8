#include "backend/sandbox/system_calls.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <vector>

namespace bandsaw {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "no filter of system calls for this architecture"
#endif
[[maybe_unused]] constexpr uint32_t kOtherAbi = 0x40000000;  // x86's calls of 32-bit pointers have this bit
constexpr int kDefault = -1;                                 // in place of a call: all that no rule fits

enum class Action { kAllow, kNever, kRefuse };
enum class Test { kNone, kRange, kOwnPid };

struct Rule {
  int call;
  Action action;
  int error;  // kRefuse
  Test test;
  unsigned argument;
  uint32_t mask, low, high;  // of the argument's lower half
};

#include "policies.inc"

using Program = std::vector<sock_filter>;

sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter give(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

class Compiler {
 public:
  explicit Compiler(uint32_t never) : never_(never) {
    program_ = {load(offsetof(seccomp_data, arch)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                give(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
#if defined(__x86_64__)
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherAbi, 0, 1));
    program_.push_back(give(SECCOMP_RET_KILL_PROCESS));
#endif
  }

  void add(std::span<const Rule> rules) {
    for (const Rule& rule : rules) add(rule);
  }

  Status install() {
    const sock_fprog filter{static_cast<unsigned short>(program_.size()), program_.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return Status::system("cannot forbid new privileges");
    // For all threads: a device may have some already.
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
      return Status::system("the filter of system calls cannot be loaded");
    }
    return {};
  }

 private:
  uint32_t result(const Rule& rule) const {
    if (rule.action == Action::kAllow) return SECCOMP_RET_ALLOW;
    return rule.action == Action::kNever ? never_ : SECCOMP_RET_ERRNO | static_cast<uint32_t>(rule.error);
  }

  // The number of the call is loaded before and after each.
  void add(const Rule& rule) {
    if (rule.call == kDefault) return program_.push_back(give(result(rule)));
    const auto number = static_cast<uint32_t>(rule.call);
    if (rule.test == Test::kNone) {
      program_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
      return program_.push_back(give(result(rule)));
    }
    const bool own = rule.test == Test::kOwnPid;
    const auto low = own ? static_cast<uint32_t>(::getpid()) : rule.low, high = own ? low : rule.high;
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 6));
    program_.push_back(load(offsetof(seccomp_data, args) + 8 * rule.argument));
    program_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule.mask));
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, low, 0, 2));
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, high, 1, 0));
    program_.push_back(give(result(rule)));
    program_.push_back(load(offsetof(seccomp_data, nr)));
  }

  const uint32_t never_;
  Program program_;
};

}  // namespace

Status limit_session_calls() {
  Compiler filter(SECCOMP_RET_KILL_PROCESS);
  filter.add(kSession);
  return filter.install();
}

Status limit_starting_calls() {
  Compiler filter(SECCOMP_RET_ERRNO | EPERM);
  filter.add(kStarting);
  return filter.install();
}

Status limit_system_calls(bool for_gpu, bool mps_client, bool listed) {
  Compiler filter(SECCOMP_RET_KILL_PROCESS);
  if (for_gpu) filter.add(kRunnerGpu);
  if (for_gpu) filter.add(listed ? std::span<const Rule>(kIoctlsListed) : kIoctlsAny);
  if (mps_client) filter.add(kRunnerMps);
  filter.add(kRunner);
  return filter.install();
}

}  // namespace bandsaw
