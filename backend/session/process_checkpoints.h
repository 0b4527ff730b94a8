// Checkpoints of single processes, as programs ask for them by cuCheckpointProcess*: a locked process's calls wait; a
// checkpointed one has nothing on the device, and what it had there counts against nobody's memory share until it is
// restored. A whole virtual GPU is suspended by suspension.h, and not while a process is locked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/session/checkpointer.h"
#include "backend/session/runner.h"
#include "backend/session/usage_page_owner.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw {

// Threads: the event loop's only. Runners live until drop().
class ProcessCheckpoints {
 public:
  // All outlive this.
  struct Session {
    std::function<std::vector<Runner*>()> runners;  // that serve processes
    // EBUSY: nothing may begin now. ENOTSUP: something of it cannot leave the device, in words.
    std::function<Status(const Runner&)> check;
    std::function<void()> changed;  // what bytes() says
    UsagePageOwner* usage_page = nullptr;
    Checkpointer* checkpointer = nullptr;  // null: on this device processes have nothing but their memory
    std::chrono::milliseconds room_timeout{10000};
  };

  ProcessCheckpoints(event_base* base, Session session);

  // kCheckpoint, which is answered with an errno: ESRCH (no process of this number has a runner here), EPERM (it is
  // another user's), ENOTSUP (the asker itself, or what check() says), EPROTO (not in the state that this needs), EBUSY
  // (a lock: its work did not end in time, or nothing may begin now), ENOMEM (no room for it in the host's memory, or
  // on the device).
  void request(Runner* asker, const RunnerMessage& message);
  // vgpud: so many bytes may lie in the host's memory.
  void give_room(uint64_t room);
  // The runner is reaped.
  void drop(Runner* runner);

  // That lie in the host's memory, or shall.
  uint64_t bytes() const;
  // Until give_room().
  bool wants_room() const;
  // "locked" or "checkpointed"; empty: the runner's process runs.
  std::string state_of(int runner) const;
  // Why the virtual GPU cannot be suspended; empty: all processes run.
  std::string locked() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kLocking, kLocked, kWaitingForRoom, kLeaving, kCheckpointed, kReturning, kUnlocking };
  struct Entry {
    Runner* runner = nullptr;
    State state = State::kLocking;
    uint64_t bytes = 0;       // that leave the device, or have left it
    bool off = false;         // its contexts too
    Runner* asker = nullptr;  // who waits; null: nobody
    RunnerMessage asked;
    Clock::time_point deadline = Clock::time_point::max();
  };
  using Step = std::function<void(Entry*, int error)>;

  Runner* find(const Runner& asker, uint32_t pid, int* error) const;
  uint64_t id_of(const Runner* runner) const;
  void lock(Runner* asker, const RunnerMessage& message, Runner* runner);
  void change(uint64_t id, State from, Runner* asker, const RunnerMessage& message);
  void find_room(uint64_t id);
  void leave(uint64_t id);
  void contexts_leave(uint64_t id);
  void come_back(uint64_t id);
  void memory_returns(uint64_t id);
  void unlock(uint64_t id);
  Runner::Done then(uint64_t id, Step step);
  void tell(uint64_t id, const RunnerMessage& message, Step step);
  void settle(Entry* entry, State state, int error);
  void forget(uint64_t id, int error);
  void schedule();
  void tick();

  const Session session_;
  std::map<uint64_t, Entry> entries_;  // by a number that is used once
  uint64_t next_ = 1;
  EventPtr timer_;
};

}  // namespace bandsaw
