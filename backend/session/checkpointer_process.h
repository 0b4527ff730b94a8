// Has NVIDIA's driver take runners off the GPU, contexts too, by a process of its own (`bandsaw-runner
// --checkpointer`). It lives as long as a suspension does, because the driver's library takes a fifth of a second to
// begin.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/sandbox/launcher.h"
#include "backend/session/checkpointer.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class CheckpointerProcess final : public Checkpointer {
 public:
  // `launcher` is borrowed, and outlives it.
  CheckpointerProcess(event_base* base, Launcher* launcher);
  ~CheckpointerProcess() override;
  CheckpointerProcess(const CheckpointerProcess&) = delete;

  void set_environment(std::vector<std::string> environment) { environment_ = std::move(environment); }
  // Its UUID: where runners are that leave from now on, and where those come to that return.
  void set_gpu(const std::string& gpu) { gpu_ = gpu; }
  void start() override;
  void stop() override;
  void carry_out(pid_t runner, bool off, Done done) override;
  std::chrono::microseconds last_took() const override { return last_took_; }

 private:
  struct Waiting {
    pid_t runner = 0;
    pid_t number = 0;  // as the checkpointer knows it
    bool off = false;
    std::string gpu;  // that it leaves, or comes to
    Done done;
  };
  Status spawn();
  void receive(bool late);
  void fail_all(int error);

  event_base* const base_;
  Launcher* const launcher_;
  std::vector<std::string> environment_;
  std::string gpu_;
  std::map<pid_t, std::string> left_;  // of each runner that is off: the GPU that it was on
  pid_t pid_ = 0;                      // 0: there is none
  std::vector<pid_t> ending_;
  UniqueFd socket_;
  std::vector<Waiting> waiting_;
  std::chrono::microseconds last_took_{};
  int failed_ = 0;  // what those that wait get in the next turn of the loop
  EventPtr readable_, failed_timer_;
};

}  // namespace bandsaw
