// NVIDIA's MPS control daemon: vgpud runs one of its own for the MPS virtual GPUs of a GPU.
//
// It lives in RUN/mps.d/KEY, apart from any that the host may have for all: "pipe" (its sockets, by which runners find
// it), "log" (its log, and its servers'). KEY is random, and who does not know it cannot get in. Like sessions it goes
// on when vgpud ends, because programs depend on it; the next vgpud adopts it. The card's settings are left alone.
//
// One thread, vgpud's event loop.
#pragma once

#include <event2/event.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/vgpud/mps/mps_process.h"
#include "memory/base/status.h"

namespace bandsaw {

// What sessions are told.
struct MpsState {
  std::string directory;  // of its sockets; empty: it does not run
  std::string error;      // why not; empty: it is about to
  std::string lost;       // the sockets' folder of the last one that died; its clients are lost
};

class MpsDaemon {
 public:
  // `changed` is called when the state is another.
  MpsDaemon(event_base* base, MpsConfig config, std::function<void()> changed);
  ~MpsDaemon();  // it goes on
  MpsDaemon(const MpsDaemon&) = delete;

  // Starts or adopts it, and starts it again whenever it dies, with growing pauses; or ends it once its last client has
  // gone.
  void want(bool wanted);
  // A fault of the GPU has taken the clients of the running one along: it is replaced, because it takes no new ones
  // before the last of them has gone. Afterwards its folder is state().lost.
  void replace(const std::string& why);
  // Ends all that there are, with their clients; `gone` when they are gone.
  void stop(std::function<void()> gone);

  const MpsState& state() const { return state_; }
  // {"state": "off" | "starting" | "running" | "waiting", "pid", "restarts", "error", "log"}
  nlohmann::json describe() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kOff, kStarting, kRunning, kWaiting };
  struct Instance {
    MpsDaemon* daemon;
    MpsProcess process;
    EventPtr exit{};
    bool current = false;
    Clock::time_point deadline = Clock::time_point::max();  // when it is killed, having been replaced
  };

  void begin();
  void adopt_left_overs();
  void watch(MpsProcess process);
  Instance* current();
  void tick();
  void tick_replaced();
  void reached();
  void died(Instance* instance);
  void failed(const std::string& why);
  void became(Phase phase, std::string directory, std::string error);
  void wait(std::chrono::milliseconds time);

  event_base* base_;
  const MpsConfig config_;
  std::function<void()> changed_;
  MpsState state_;
  Phase phase_ = Phase::kOff;
  bool wanted_ = false, stopping_ = false, adopted_ = false;
  std::list<Instance> instances_;  // the current one, and those that end
  EventPtr timer_, replaced_timer_;
  Clock::time_point deadline_{}, since_{};
  unsigned failures_ = 0;
  uint64_t restarts_ = 0;
  std::vector<std::function<void()>> when_gone_;
};

}  // namespace bandsaw
