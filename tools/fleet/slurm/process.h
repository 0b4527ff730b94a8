// Other programs, run to their end.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::slurm {

struct Ended {
  int status = 0;      // of its exit; -1: a signal ended it
  std::string output;  // at most 1 MiB of what it wrote
};

// Runs the program, found in PATH, and reads what it writes to `stream` (STDOUT_FILENO or STDERR_FILENO); the other
// stream is the caller's. Blocks. Errors: it cannot be started.
Result<Ended> run_program(std::vector<std::string> command, int stream);

}  // namespace bandsaw::slurm
