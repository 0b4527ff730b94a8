// Hears of a GPU's errors from the driver while vgpud runs: through `RUNNER --watch-gpu UUID`, because vgpud opens no
// driver.
//
// Threads: the event loop's only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "backend/control/event_ptr.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class XidWatch {
 public:
  // Called for errors that may be the GPU's; those that a program makes by itself are nothing to others.
  using Trouble = std::function<void(const std::string& why)>;
  // `gpu`: its UUID, or that of a MIG instance. If the process cannot be started, or ends, it is started again after a
  // pause, longer each time it has heard nothing.
  XidWatch(event_base* base, const std::string& runner, const std::string& gpu, Trouble trouble);
  ~XidWatch();  // ends the process
  XidWatch(const XidWatch&) = delete;

 private:
  static constexpr std::chrono::seconds kFirstPause{5}, kLongestPause{300};
  void start();
  void start_later();
  void receive();
  void take_line(const std::string& line);
  void end();

  event_base* const base_;
  const std::string runner_;
  const std::string gpu_;
  Trouble trouble_;
  pid_t pid_ = 0;
  UniqueFd output_;
  EventPtr readable_, again_;
  std::chrono::seconds pause_ = kFirstPause;
  std::string text_;  // of a line that is not complete
};

// Whether the driver reports this number for what a program does, as NVIDIA's catalogue of Xid errors says.
bool is_program_error(unsigned xid);

}  // namespace bandsaw
