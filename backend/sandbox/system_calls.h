// Which system calls a process may make: filters (seccomp) that are made of the policies in policies/.
#pragma once

#include "memory/base/status.h"

namespace bandsaw {

// Allows only the system calls that a session needs in its sandbox. For all threads, and for what it forks.
Status limit_session_calls();

// What neither sessions nor runners ever do fails with EPERM: for runners whose driver library starts up. Holds for all
// threads, and for what they start.
Status limit_starting_calls();

// Allows only the system calls that a warm runner needs. For all threads; call once the device is there. `for_gpu`:
// what NVIDIA's driver needs too. `mps_client`: it speaks with an MPS daemon over Unix sockets, anew for each context;
// no other kind of socket can be made. `listed`: of requests to drivers only those of ioctls_listed.policy.
Status limit_system_calls(bool for_gpu, bool mps_client = false, bool listed = false);

}  // namespace bandsaw
