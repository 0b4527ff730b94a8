// One MPS control daemon as a process: how it is found, started, asked to end and ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

struct MpsConfig {
  std::string command;         // a name, looked up in PATH and beside nvidia-smi; or a path
  std::string run;             // vgpud's folder of sockets
  std::string gpu;             // that it serves alone, as CUDA_VISIBLE_DEVICES takes it
  bool several_users = false;  // its clients are different users: one server for all of them
};

struct MpsProcess {
  std::string folder;  // RUN/mps.d/KEY
  pid_t pid = 0;
  UniqueFd pidfd;
  bool child = false;  // not adopted
  std::string pipe() const { return folder + "/pipe"; }
};

// ENOENT says where it was looked for.
Result<std::string> find_mps_command(const std::string& command);
// Makes a folder and starts a daemon there. It listens a moment later: see reach_mps().
Result<MpsProcess> start_mps(const MpsConfig& config);
// Those for this GPU that an earlier vgpud left and that still listen; folders of dead ones are removed. One that was
// left without a note of its GPU is of a version that served one, and is the first asker's.
std::vector<MpsProcess> find_left_mps(const MpsConfig& config);
// Whether it listens.
bool reach_mps(const MpsProcess& process);
// Asks it to end when its last client has gone, as `echo quit | nvidia-cuda-mps-control` does. Does not wait.
Status ask_mps_to_quit(const MpsConfig& config, const MpsProcess& process);
// Kills the daemon if it lives, and the servers that it has started and that would go on without it.
void kill_mps(const MpsProcess& process);
// The last lines of what it logged, for people.
std::string mps_log_tail(const MpsProcess& process);

}  // namespace bandsaw
