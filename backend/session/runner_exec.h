// Starts the runner's program, for guest processes (runner_process.h) and to read sensors (sensor_reader.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

// What is executed. All is borrowed.
struct RunnerExec {
  const std::string& path;
  int file = -1;                                // the same, opened while the path was reachable; -1: there is none
  const std::vector<std::string>& arguments;    // the first is its name
  const std::vector<std::string>& environment;  // NAME=value
};

// Starts a child that ends with this process. It has stderr, `given` as descriptor `number` (1 or more), and nothing
// else of this process's. Exit status 126: the program could not be executed. Returns its pid; the caller reaps it.
Result<pid_t> exec_runner(const RunnerExec& what, int given, int number);

}  // namespace bandsaw
