// Who takes runners off the GPU, contexts too, and brings them back: CheckpointerProcess, or a test's own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

namespace bandsaw {

// Threads: the event loop's only.
class Checkpointer {
 public:
  // 0 or an errno; ENOTSUP: this driver cannot.
  using Done = std::function<void(int error)>;
  virtual ~Checkpointer() = default;

  // Makes it ready before it is needed. Without, carry_out() does.
  virtual void start() = 0;
  // Ends it; whoever waits gets EPIPE.
  virtual void stop() = 0;
  // `done` is never called from inside this. ETIMEDOUT: it was silent, and was ended.
  virtual void carry_out(pid_t runner, bool off, Done done) = 0;
  // How long the driver took for what has ended last.
  virtual std::chrono::microseconds last_took() const { return {}; }
};

}  // namespace bandsaw
