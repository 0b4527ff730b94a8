// What a session gives up once its sockets are made: it goes on to read what guests send.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "backend/sandbox/launcher.h"
#include "memory/base/status.h"

namespace bandsaw {

struct SandboxConfig {
  SandboxMode mode = SandboxMode::kAuto;
  uid_t uid = 0;  // user and group to become when started as root; 0: stay
  gid_t gid = 0;
  uid_t runner_uid = 0;                // of its runners
  bool peers = true;                   // these may open all GPUs' device files
  std::vector<std::string> folders{};  // of sockets that it connects to
  std::string staging{};               // a folder that is there and none of them
  int own_folder = -1;                 // an open folder that it writes in, wherever that lies; -1: none
};

// As root: own mount, network and IPC namespaces, a root with `folders` alone, another user, no capability, none ever
// to be gained. As another user: no new privileges, and landlock in place of the root. What a container forbids is left
// out and told, or an error with kRequired; so is not becoming `uid`, and a filter of system calls that cannot be
// loaded.
Result<Measures> enter_sandbox(const SandboxConfig& config);

}  // namespace bandsaw
