// Takes all that a virtual GPU holds off its device, while its programs wait in their calls, and brings it back.
//
// vgpud says what it wants, again and again if it likes; this gets there, or goes back to where it was and says why. A
// pause comes first: it finds out how much is to move, before anything does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/session/checkpointer.h"
#include "backend/session/runner.h"
#include "memory/base/status.h"

namespace bandsaw {

// Threads: the event loop's only.
class Suspension {
 public:
  enum class Want { kRun, kPause, kSuspend };
  // All outlive this.
  struct Session {
    std::function<std::vector<Runner*>()> runners;  // that serve processes
    std::function<void(bool)> hold;                 // true: no process gets a runner, and none waits warm
    std::function<Status()> check;                  // an error says what cannot be suspended
    std::function<uint64_t()> on_device;            // bytes that lie there
    Checkpointer* checkpointer = nullptr;           // null: on this device processes have nothing but their memory
  };

  Suspension(event_base* base, Session session);
  ~Suspension();
  Suspension(const Suspension&) = delete;

  // What is said a second time changes nothing.
  void want(Want want);
  // Of the set message: "run", "pause" or "suspend". EINVAL.
  Status want(const std::string& text);

  bool suspended() const { return state_ == State::kSuspended; }
  // Its programs wait, and no step is under way.
  bool stands_still() const { return state_ == State::kPaused || state_ == State::kSuspended; }
  // {"state": "running", ..., "error": why what was wanted last did not come, "bytes": that lay on the device}
  nlohmann::json describe() const;

 private:
  enum class State { kRunning, kPausing, kPaused, kLeaving, kSuspended, kReturning, kGoingOn };
  struct Step;
  using Then = void (Suspension::*)();

  void advance();
  using Ask = std::function<void(Runner*, Runner::Done)>;
  void start(State state, const Ask& ask, Then then);
  void tell(State state, const RunnerMessage& message, Then then);
  Runner* living(int pid) const;
  void contexts_leave();
  void contexts_return();
  void contexts_left();
  void contexts_returned();
  void paused();
  void left();
  void returned();
  void went_on();
  void fall_back(State state);
  void end_silent();

  const Session session_;
  State state_ = State::kRunning;
  Want told_ = Want::kRun, wanted_ = Want::kRun;
  bool falling_back_ = false;
  std::string error_;
  uint64_t bytes_ = 0;
  bool keeps_contexts_ = false;  // the driver cannot take them off the GPU, which was said
  std::set<int> off_;            // processes whose contexts have left
  std::shared_ptr<Step> step_;   // null: none is under way
  EventPtr timer_;
};

}  // namespace bandsaw
