// Has NVIDIA's driver take runners off the GPU, contexts too, by a process of its own (`bandsaw-runner
// --checkpointer`). It lives as long as a suspension does, because the driver's library takes a fifth of a second to
// begin.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Threads: the event loop's only.
class Checkpointer {
 public:
  // 0 or an errno; ENOTSUP: this driver cannot.
  using Done = std::function<void(int error)>;

  // `path`, or `file` (borrowed, outlives it) where the path is out of reach.
  Checkpointer(event_base* base, std::string path, int file);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;

  void set_environment(std::vector<std::string> environment) { environment_ = std::move(environment); }
  // Starts the process, so that it is ready when it is needed. Without, carry_out() does.
  void start();
  // Ends it; whoever waits gets EPIPE.
  void stop();
  // `done` is never called from inside this. ETIMEDOUT: the process is silent, and was ended.
  void carry_out(pid_t runner, bool off, Done done);

 private:
  struct Waiting {
    pid_t runner = 0;
    bool off = false;
    Done done;
  };
  Status spawn();
  void receive(bool late);
  void fail_all(int error);

  event_base* const base_;
  const std::string path_;
  const int file_;
  std::vector<std::string> environment_;
  pid_t pid_ = 0;  // 0: there is none
  std::vector<pid_t> ending_;
  UniqueFd socket_;
  std::vector<Waiting> waiting_;
  int failed_ = 0;  // what those that wait get in the next turn of the loop
  EventPtr readable_, failed_timer_;
};

}  // namespace bandsaw
