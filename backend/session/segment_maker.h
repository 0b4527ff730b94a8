// Memory of shared segments: made by a process of its own (`bandsaw-runner --make-segment BYTES`), because a session
// opens no device. The memory lives as long as a descriptor or a mapping of it.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/sandbox/launcher.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

struct SegmentMemory {
  UniqueFd write, read;  // `read` is empty where a device's descriptors cannot be restricted
  int for_reading() const { return read ? read.get() : write.get(); }
};

// One at a time, in the order in which they are asked for. Threads: the event loop's only.
class SegmentMaker {
 public:
  using Made = std::function<void(Result<SegmentMemory>)>;

  // `launcher` is borrowed, and outlives it.
  SegmentMaker(event_base* base, Launcher* launcher);
  ~SegmentMaker();  // ends what still works; nobody is told
  SegmentMaker(const SegmentMaker&) = delete;

  // How its processes are started from now on: NAME=value.
  void set_environment(std::vector<std::string> environment) { environment_ = std::move(environment); }
  // `made` is called once, never from inside this call, unless it is forgotten before. ENOMEM: the device has no room.
  void make(uint64_t segment, uint64_t bytes, Made made);
  // Nobody wants it any more.
  void forget(uint64_t segment);

 private:
  struct Wanted {
    uint64_t segment = 0, bytes = 0;
    Made made;
  };
  void tick();
  Status start();
  void receive();
  void finish(Result<SegmentMemory> result);
  void reap();

  event_base* const base_;
  Launcher* const launcher_;
  std::vector<std::string> environment_;
  std::deque<Wanted> wanted_;  // the first is being made while there is a process
  pid_t pid_ = 0;              // of that process; 0: there is none
  std::vector<pid_t> ending_;  // have nothing more to do, and end at their own pace
  UniqueFd socket_;
  EventPtr readable_, timer_;
};

}  // namespace bandsaw
