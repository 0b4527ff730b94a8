// Another use of the runner's program, for sessions: has NVIDIA's driver take runners' contexts off the GPU and bring
// them back (backend/control/checkpoint_link.h), because no process can do that with itself.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device/device.h"
#include "memory/base/status.h"

namespace bandsaw::runner {

struct CheckpointDriver {
  // May block; it is called on threads.
  std::function<Status(int pid, bool off, std::span<const GpuPair> moved)> checkpoint;
  std::function<Result<std::vector<std::string>>()> host_gpus;  // their UUIDs; asked when somebody moves
};

// Of all GPUs of the host, for one who has left `left` and comes to `wanted`: these two change places. EINVAL: the host
// lacks one of them.
Result<std::vector<GpuPair>> pairs_for_move(const std::string& left, const std::string& wanted,
                                            const std::vector<std::string>& host_gpus);

// Returns when the session closes its socket.
int serve_checkpoints(int socket, const CheckpointDriver& driver);

}  // namespace bandsaw::runner
