// Takes all that a virtual GPU holds off its device, while its programs wait in their calls, and brings it back.
//
// vgpud says what it wants, again and again if it likes; this gets there, or goes back to where it was and says why. A
// pause comes first: it finds out how much is to move, before anything does. One that vgpud wants to run may sleep: it
// leaves its device as if suspended, and comes back by itself at the first call.
#pragma once

#include <chrono>
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
    std::function<void()> changed;                  // it sleeps, cannot come back, or is awake again; may be null
    std::function<bool()> awaits{};                 // programs whose runners are still to come back
    std::chrono::milliseconds first_pause{1000};    // between attempts of who sleeps to come back; doubles
    Checkpointer* checkpointer = nullptr;           // null: on this device processes have nothing but their memory
  };

  Suspension(event_base* base, Session session);
  ~Suspension();
  Suspension(const Suspension&) = delete;

  // What is said a second time changes nothing.
  void want(Want want);
  // Of the set message: "run", "pause" or "suspend". EINVAL.
  Status want(const std::string& text);

  // While vgpud wants it to run: to sleep, if no call comes meanwhile and at most so many bytes are to move. An error:
  // not now.
  Status sleep(uint64_t most);
  // A program calls, or one asks for a runner: whoever sleeps comes back.
  void call_waits();
  bool sleeps() const { return sleeps_; }  // or is on the way there or back
  // When memory leaves the device, contexts stay there: somebody asks what programs have.
  void set_contexts_stay(bool stay) { contexts_stay_ = stay; }
  // Why it cannot come back, whoever wants that; empty: it can.
  void set_stay(const std::string& why) { stay_ = why; }
  // As vgpud wants it.
  bool suspended_by_order() const { return state_ == State::kSuspended && told_ == Want::kSuspend; }
  bool asleep() const { return sleeps_ && state_ == State::kSuspended; }
  // That it has taken to sleep, or may take.
  uint64_t sleep_bytes() const { return asleep() ? bytes_ : most_; }
  bool running() const { return state_ == State::kRunning && !step_ && told_ == Want::kRun; }

  bool suspended() const { return state_ == State::kSuspended; }
  // Nothing of its programs is on the GPU, contexts neither: they may come back on another one.
  bool contexts_off() const;
  // Its programs wait, and no step is under way.
  bool stands_still() const { return state_ == State::kPaused || state_ == State::kSuspended; }
  // Why what was wanted last did not come; empty: it did, or may still.
  const std::string& error() const { return error_; }
  // {"state": "running", ..., "error": why what was wanted last did not come, "bytes": that lay on the device,
  // "asleep": it has left by itself, "since": seconds of the epoch at which it left, or 0, "leave_us", "return_us":
  // what each step took when it last left and returned}
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
  bool moves_contexts() const { return session_.checkpointer && !keeps_contexts_ && (sleeps_ || !contexts_stay_); }
  void contexts_leave();
  void contexts_return();
  void contexts_left();
  void contexts_returned();
  void paused();
  void left();
  void returned();
  void went_on();
  void fall_back(State state);
  void hold();
  bool paused_to_sleep();
  void try_later();
  void try_again();
  void end_silent();
  std::chrono::microseconds step_took() const;

  const Session session_;
  State state_ = State::kRunning;
  Want told_ = Want::kRun, wanted_ = Want::kRun;
  bool falling_back_ = false;
  bool sleeps_ = false;
  bool contexts_stay_ = false;
  bool if_idle_ = false;     // the pause that is under way ends as soon as a call comes
  bool call_waits_ = false;  // since it left
  uint64_t most_ = 0;        // bytes that it may take to sleep
  int64_t since_ = 0;        // seconds since the epoch
  std::chrono::steady_clock::time_point woken_{};
  // How long it last took until all was at rest, then memory had left, then contexts had (and how much of that the
  // slowest took in the driver).
  struct Leave {
    std::chrono::microseconds at_rest{}, memory{}, contexts{}, driver{};
  };
  Leave leave_;
  // Of the last return: how long until contexts were back (and how much of that the slowest took in the driver), then
  // memory, then all went on.
  struct Return {
    std::chrono::microseconds driver{}, contexts{}, memory{}, going_on{};
  };
  Return return_;
  std::chrono::steady_clock::time_point step_begun_{};
  std::chrono::milliseconds pause_{};  // before the next attempt to come back
  std::string error_, stay_;
  uint64_t bytes_ = 0;
  bool keeps_contexts_ = false;  // the driver cannot take them off the GPU, which was said
  std::set<int> off_;            // processes whose contexts have left
  bool some_returned_ = false;   // of others they may be back, although it is suspended
  std::shared_ptr<Step> step_;   // null: none is under way
  EventPtr timer_, again_;
};

}  // namespace bandsaw
