// What a runner gives up before it touches anything that comes from a guest.
#pragma once

#include "memory/base/status.h"

namespace bandsaw::runner {

// Closes every descriptor but standard error and `keep`, forgets privileges and core dumps, dies with the session.
// Needs no privileges. Call first in main, with one thread.
Status enter_sandbox(int keep);

// A fault outside of what the device handles itself ends the process with one line that names it.
void catch_faults();

// Allows only the system calls that a warm runner needs (syscalls.cc). For all threads; call once the device is there.
// `for_gpu`: what NVIDIA's driver needs too. `mps_client`: it speaks with an MPS daemon over Unix sockets, anew for
// each context; no other kind of socket can be made.
Status limit_system_calls(bool for_gpu, bool mps_client = false);

}  // namespace bandsaw::runner
