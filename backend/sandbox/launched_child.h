// Between the launcher's fork and the runner's program: what makes the difference between the two.
#pragma once

#include <string>
#include <vector>

#include "backend/sandbox/launcher.h"

namespace bandsaw {

inline constexpr int kNoSandboxExit = 125, kNoProgramExit = 126;
// Where the launcher keeps what only some children see; covered for them all.
inline constexpr const char* kAsideFolder = "/.host";

struct ChildPlan {
  const LauncherConfig& config;
  bool root = false;         // it is in a root of its own, and may mount there
  bool own_numbers = false;  // it is in a PID namespace that is not the launcher's
  int program = -1;          // opened while its path was reachable
  RunnerTask task = RunnerTask::kServe;
  std::vector<std::string> arguments{};  // the first is the program's name
  std::string gpu{}, mps{};              // as in Launch
  std::vector<std::string> environment{};
};

// What a try of the same without the program says: 0, or an errno; 255 if it was ended.
[[noreturn]] void try_child(const ChildPlan& plan);
// `given`: becomes descriptor `number`.
[[noreturn]] void become_runner(const ChildPlan& plan, int given, int number);

}  // namespace bandsaw
