// The program vgpud: command line, configuration, device, then the daemon.
#pragma once

#include "backend/vgpud/config.h"

namespace bandsaw {

// Returns the exit status: 0; 1: it could not begin, or ended by an error; 2: the command line or the configuration is
// wrong. `read_lab`: as for load_config.
int run_vgpud(int argc, char** argv, const ReadLab& read_lab = nullptr);

}  // namespace bandsaw
