// Bytes on their way between runners' pipes and a file, on a thread of their own: disks and programs may be slow.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/control/saved/file.h"
#include "backend/session/request.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class SaveJob {
 public:
  enum class Kind { kWrite, kCheck, kRead };
  // `file` outlives it. kCheck reads all of it and needs no pipes.
  SaveJob(Kind kind, int file) : kind_(kind), file_(file) {}
  ~SaveJob();  // gives up
  SaveJob(const SaveJob&) = delete;

  // Before start(): of kWrite, what the file says of itself.
  void set_head(const saved::Head& head) { contents_.head = head; }
  // And how much the runners may give together: they may have been taken over, and the file's disk is the host's.
  void set_memory(uint64_t bytes) { room_ = bytes + bytes / 8 + (1 << 20); }  // with what the pieces say of themselves
  // The runner's end of a pipe between it and what the file has, or is to have, of this program. `anew`: another runner
  // reads, which is to become what the one was that wrote.
  Result<UniqueFd> add_pipe(const ReturnKey& program, bool anew = false);
  // `ended` is called on the loop's thread, once.
  Status start(event_base* base, std::function<void()> ended);
  void stop() { stop_ = true; }

  // After the end.
  const Status& status() const { return status_; }
  const saved::Head& head() const { return contents_.head; }
  uint64_t bytes() const { return contents_.bytes; }
  // Of kWrite and kCheck: whose runners another one could follow, and of the others, if there are any, why not.
  const std::set<ReturnKey>& replaceable() const { return contents_.programs; }
  const std::string& lacks() const { return contents_.lacks; }

 private:
  struct Pipe {
    ReturnKey program{};
    UniqueFd end;
    bool anew = false;
  };
  Status run();
  Status write();
  Status read();

  const Kind kind_;
  const int file_;
  std::atomic<bool> stop_{false};
  std::vector<Pipe> pipes_;
  saved::Contents contents_;
  uint64_t room_ = 0, states_room_ = saved::kStateMost;
  Status status_;
  UniqueFd ended_;
  std::function<void()> on_ended_;
  EventPtr event_;
  std::thread thread_;
};

}  // namespace bandsaw
