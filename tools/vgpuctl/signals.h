// Signals and keys as events, for commands that run until they are ended.
#pragma once

#include <chrono>

#include "memory/base/unique_fd.h"

namespace bandsaw::ctl {

// From its making on, SIGINT, SIGTERM, SIGHUP and SIGWINCH come to wait() instead of ending the process.
class Signals {
 public:
  enum class Event { kTime, kEnd, kResized, kKey };
  Signals();
  // Waits until then, or for a signal; with `keys` also for something to read on stdin.
  Event wait(std::chrono::steady_clock::time_point until, bool keys);

 private:
  UniqueFd fd_;
};

}  // namespace bandsaw::ctl
