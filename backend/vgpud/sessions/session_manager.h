// The sessions of all virtual GPUs: a SessionSupervisor for each, and for each GPU the MPS daemon that their runners
// share.
//
// Threads: the event loop's only.
#pragma once

#include <event2/event.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "backend/control/event_ptr.h"
#include "backend/control/json_link.h"
#include "backend/control/vgpu_spec.h"
#include "backend/sandbox/cgroup.h"
#include "backend/vgpud/config.h"
#include "memory/base/status.h"

namespace bandsaw {

class Gpus;
class MpsDaemon;
struct Gpu;
class SessionSupervisor;

// Whether that is the state of what a session says of its suspension.
bool is_in(const nlohmann::json& suspension, const char* state);
// Paused, or off its device already: it slept.
bool stands_still(const nlohmann::json& suspension);

class SessionManager {
 public:
  using Ready = std::function<void(const Status&)>;
  using Answer = std::function<void(Result<nlohmann::json>)>;
  // `gpus` outlives this.
  SessionManager(event_base* base, const Config& config, const Gpus& gpus);
  ~SessionManager();  // the session processes go on
  SessionManager(const SessionManager&) = delete;

  // One whose device is configured. `ready` is called when the session answers, or with the reason why it does not.
  void add(const VgpuSpec& spec, Ready ready);
  // Ends the session and removes its folders; `done` when it is gone.
  void remove(const std::string& name, std::function<void()> done);
  // The same of one whose session never answered: its log stays, as failed_log().
  void give_up(const std::string& name);
  void remove_all(std::function<void()> done);  // MPS daemons too; the folders on disk stay

  // New shares: told to the session, and kept for its next start.
  void update(const VgpuSpec& spec);
  // The same with another device, once nothing of it runs on the old one. `moved`: EBUSY, the session refuses, and what
  // was is to be said again.
  void move(const VgpuSpec& spec, Ready moved);

  // Called again and again while runners on a device are of no use, with what the session of `vgpu` says of them.
  using Failing = std::function<void(const std::string& device, const std::string& vgpu, const std::string& why)>;
  void watch_runners(Failing failing) { failing_ = std::move(failing); }
  // A device was lost, or can be used again. Its sessions are told: while it is lost they end what runs and take
  // nobody.
  void device_changed(const std::string& device);

  // Which MPS daemons are wanted, now that all virtual GPUs are known. add() and update() see to it that there is one
  // where it is needed.
  void review();
  void review(const std::string& device);
  // How kernels of the MPS virtual GPUs are planned; sessions hand it to runners that start from now on.
  void set_planning_mode(PlanningMode mode);
  // {"daemon": what MpsDaemon::describe() says, or null for a device without contexts}
  nlohmann::json describe_mps(const std::string& device) const;
  // Why programs on the device's MPS virtual GPUs are refused now; empty: they are not.
  std::string mps_error(const std::string& device) const;

  // Which shared segments there are for the session of a virtual GPU: what it is told with everything else. Before
  // add().
  using SegmentsOf = std::function<nlohmann::json(const VgpuSpec& spec)>;
  void set_segments_of(SegmentsOf segments_of) { segments_of_ = std::move(segments_of); }
  // Tells the sessions of a device what holds now.
  void tell_all(const std::string& device);

  // What its session does with its programs for now, whatever its spec says; forgotten with vgpud. kPause: they stop,
  // which is how a suspension begins. kLeave: they have nothing on the device, and `bytes` in the host's memory, which
  // count until this is called again.
  enum class Hold { kNone, kPause, kLeave };
  void set_hold(const std::string& name, Hold hold, uint64_t bytes = 0);
  // Before it stops them: whether contexts stay on the GPU when memory leaves it.
  void set_contexts_stay(const std::string& name, bool stay);
  // Answers with what the session says of its suspension, once that is_in() `state`, or has an error. As request();
  // ETIMEDOUT too if it does not come to that within a minute.
  void await_suspension(const std::string& name, const char* state, Answer answer);

  // Whether the host's memory has room for what one that is idle has on its device; those that sleep are in `all`.
  using RoomToSleep = std::function<Status(const VgpuSpec& spec, uint64_t bytes)>;
  void set_room_to_sleep(RoomToSleep room) { room_to_sleep_ = std::move(room); }
  // Bytes of a virtual GPU's that lie in the host's memory while it sleeps, or while processes are checkpointed.
  uint64_t asleep_bytes(const std::string& name) const;
  // What a suspended one had on its device is in a file, as its session says.
  bool saved(const std::string& name) const;
  // Bytes that a file brings into the host's memory, or has brought, for one that is suspended.
  uint64_t restored_bytes(const std::string& name) const;

  // ENOENT, ENOTCONN (not running now), ETIMEDOUT.
  void request(const std::string& name, const nlohmann::json& object, Answer answer);
  // Whether programs may have used it since quiet() was called, because its session had none.
  bool used(const std::string& name) const;
  void quiet(const std::string& name);
  // {"path": ..., "controllers": ..., "error": ...}: of the cgroups, or why there are none.
  nlohmann::json describe_cgroups() const;
  // {"mode", "sessions": what one that runs says of its sandbox, or null}
  nlohmann::json describe_sandbox() const;
  // {"state": ..., "pid": ..., "restarts": ..., "host": {...}}
  nlohmann::json describe(const std::string& name) const;

 private:
  nlohmann::json sharing_config(const VgpuSpec& spec) const;
  void await_suspension(const std::string& name, const char* state, Answer answer,
                        std::chrono::steady_clock::time_point until);
  MpsDaemon* mps_of(const std::string& device) const;  // null: it has no contexts that MPS could join
  void make_daemons();
  void open_cgroups();
  void look_soon();
  void check_health();
  void take_health(const std::string& vgpu, const nlohmann::json& health);
  void take_sleep(SessionSupervisor* supervisor, const nlohmann::json& health);
  void take_checkpoints(SessionSupervisor* supervisor, const nlohmann::json& health);

  event_base* base_;
  const Config& config_;
  const Gpus& gpus_;
  std::unique_ptr<CgroupTree> cgroups_;  // null: there are none
  std::string no_cgroups_;               // why
  PlanningMode planning_mode_;
  Failing failing_;
  SegmentsOf segments_of_;
  RoomToSleep room_to_sleep_;
  std::set<std::string> no_room_said_;  // in the log, once
  EventPtr health_timer_;
  unsigned health_ticks_ = 0;
  std::map<std::string, std::unique_ptr<MpsDaemon>> mps_;  // by the device's name
  // Virtual GPUs that may have programs at a device's running daemon.
  std::map<std::string, std::set<std::string>> served_;
  std::map<std::string, std::shared_ptr<SessionSupervisor>> supervisors_;
};

}  // namespace bandsaw
