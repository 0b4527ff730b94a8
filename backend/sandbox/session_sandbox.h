// What a session gives up once its sockets are made: it goes on to read what guests send.
#pragma once

#include <sys/types.h>

#include "memory/base/status.h"

namespace bandsaw {

struct SandboxConfig {
  uid_t uid = 0;  // user and group to become when started as root; 0: stay
  gid_t gid = 0;
};

// As root: own network and IPC namespaces, another user, no capability, none ever to be gained. As another user: no new
// privileges. What a container forbids is left out with a log line; not becoming `uid` is an error, and so is a filter
// of system calls that cannot be loaded.
Status enter_sandbox(const SandboxConfig& config);

// From now on this process and its children cannot do what sessions and runners never do (session_syscalls.cc). Needs
// no privileges. Called by enter_sandbox.
Status refuse_system_calls();

}  // namespace bandsaw
