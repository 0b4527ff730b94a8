// A terminal that is drawn over and over, or a plain stream of lines where there is no terminal.
#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

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

// Takes the alternate screen of a terminal; gives it back as it was when it goes.
class Screen {
 public:
  explicit Screen(bool plain);
  ~Screen();
  Screen(const Screen&) = delete;

  // In place: no clearing, each line overwrites the old one and clears its own rest, all in one write.
  void show(const std::vector<std::string>& lines);
  // Waits until the next sample is due. False: the user ends it.
  bool wait(std::chrono::nanoseconds time);
  size_t columns() const;  // 0: no terminal
  bool terminal() const { return terminal_; }

 private:
  Signals signals_;
  bool terminal_, keys_ = false;
  termios before_{};
};

}  // namespace bandsaw::ctl
