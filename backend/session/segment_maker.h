// Memory of shared segments: made by a process of its own (`bandsaw-runner --make-segment BYTES`), because a session
// opens no device. The memory lives as long as a descriptor or a mapping of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

struct SegmentMemory {
  UniqueFd write, read;  // `read` is empty where a device's descriptors cannot be restricted
  int for_reading() const { return read ? read.get() : write.get(); }
};

// Threads: the event loop's only.
class SegmentMaker {
 public:
  using Made = std::function<void(Result<SegmentMemory>)>;

  // `path`, or `file` (borrowed, outlives it) where the path is out of reach.
  SegmentMaker(event_base* base, std::string path, int file) : base_(base), path_(std::move(path)), file_(file) {}
  ~SegmentMaker();  // ends what still works; nobody is told
  SegmentMaker(const SegmentMaker&) = delete;

  // How its processes are started from now on: NAME=value.
  void set_environment(std::vector<std::string> environment) { environment_ = std::move(environment); }
  // `made` is called once, never from inside this call. ENOMEM: the device has no room.
  void make(uint64_t bytes, Made made);

 private:
  struct Child {
    SegmentMaker* maker = nullptr;
    pid_t pid = 0;  // 0: it was not started
    UniqueFd socket;
    EventPtr event;
    Made made;
    Status failed;  // why it was not started
  };
  void receive(Child* child);
  void finish(Child* child, Result<SegmentMemory> result);

  event_base* const base_;
  const std::string path_;
  const int file_;
  std::vector<std::string> environment_;
  std::list<Child> children_;
};

}  // namespace bandsaw
