#include "backend/sandbox/session_sandbox.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

Status drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capset, &header, data) < 0) return Status::system("cannot give up capabilities");
  return {};
}

void empty_bounding_set() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    ::prctl(PR_CAPBSET_DROP, capability);
  }
}

Status become(const SandboxConfig& config) {
  if (::setgroups(0, nullptr) < 0 || ::setresgid(config.gid, config.gid, config.gid) < 0 ||
      ::setresuid(config.uid, config.uid, config.uid) < 0) {
    return Status::system("cannot become user {} group {}", config.uid, config.gid);
  }
  return {};
}

}  // namespace

Status enter_sandbox(const SandboxConfig& config) {
  if (::geteuid() == 0 && config.uid != 0) {
    const bool own_network = ::unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0;
    if (!own_network) log::info("no namespaces of its own for this session: {}", std::strerror(errno));
    empty_bounding_set();
    if (Status status = become(config); !status.ok()) return status;
    if (Status status = drop_capabilities(); !status.ok()) return status;
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return Status::system("cannot forbid new privileges");
  ::prctl(PR_SET_DUMPABLE, 0);  // no runner may look into it
  return refuse_system_calls();
}

}  // namespace bandsaw
