// How this library asks a session: a request on /dev/vgpuN (in a VM) or on the session's socket (direct mode). Each
// question opens its own: nothing outlives a fork, a restart of the session, or the caller.
#pragma once

#include <cstdint>

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/virtual_gpus.h"

namespace bandsaw::nvml {

using SessionAddress = VirtualGpuPath;

// 0 or an errno: the session's, or why it was not reached (EPIPE: it went away). Thread-safe.
int ask(const SessionAddress& session, uint32_t what, uint32_t index, uint8_t (&answer)[VGPU_ANSWER_BYTES]);

}  // namespace bandsaw::nvml
