// Another use of the runner's program, for sessions: has NVIDIA's driver take runners' contexts off the GPU and bring
// them back (backend/control/checkpoint_link.h), because no process can do that with itself.
#pragma once

#include <functional>

#include "memory/base/status.h"

namespace bandsaw::runner {

// `checkpoint` may block; it is called on threads. Returns when the session closes its socket.
int serve_checkpoints(int socket, const std::function<Status(int pid, bool off)>& checkpoint);

}  // namespace bandsaw::runner
