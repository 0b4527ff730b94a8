// What a runner gives up before it touches anything that comes from a guest.
#pragma once

#include "memory/base/status.h"

namespace bandsaw::runner {

// Closes every descriptor but standard error and `keep`, forgets privileges and core dumps, dies with the session.
// Needs no privileges. Call first in main, with one thread.
Status enter_sandbox(int keep);

// A fault outside of what the device handles itself ends the process with one line that names it.
void catch_faults();

}  // namespace bandsaw::runner
