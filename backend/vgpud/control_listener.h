// The socket on which vgpud is asked. A vgpud that begins anew keeps it: whoever asks meanwhile waits for an answer.
#pragma once

#include "backend/vgpud/config.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// At control_socket(config.run), with the mode and the group that are configured: the socket that was handed over, if
// it is of that name, else a new one.
Result<UniqueFd> listen_control(const Config& config);

// For the program that this process becomes by exec. It stays open until then.
void hand_over(UniqueFd listener);

// First of all after the exec: programs that are started from then on do not have it.
void hide_handed_over();

// Closes all descriptors at the exec that follows, but the standard ones and what was handed over.
void close_the_rest();

}  // namespace bandsaw
