// The sessions of all virtual GPUs: a SessionSupervisor for each, and the MPS daemon that their runners share.
//
// Threads: the event loop's only.
#pragma once

#include <event2/event.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/control/event_ptr.h"
#include "backend/control/json_link.h"
#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/config.h"
#include "memory/base/status.h"

namespace bandsaw {

class Arbiter;
class MpsDaemon;
class SessionSupervisor;

class SessionManager {
 public:
  using Ready = std::function<void(const Status&)>;
  using Answer = std::function<void(Result<nlohmann::json>)>;
  // `arbiter` outlives this.
  SessionManager(event_base* base, const Config& config, Arbiter* arbiter);
  ~SessionManager();  // the session processes go on
  SessionManager(const SessionManager&) = delete;

  // `ready` is called when the session answers, or with the reason why it does not.
  void add(const VgpuSpec& spec, Ready ready);
  // Ends the session and removes its folders; `done` when it is gone.
  void remove(const std::string& name, std::function<void()> done);
  void remove_all(std::function<void()> done);  // the MPS daemon too; the folders on disk stay

  // New shares: told to the session, and kept for its next start.
  void update(const VgpuSpec& spec);

  // Whether an MPS daemon is wanted, now that all virtual GPUs are known. add() and update() see to it that there is
  // one when it is needed.
  void review();
  // How kernels of the MPS virtual GPUs are planned; sessions hand it to runners that start from now on.
  void set_planning_mode(PlanningMode mode);
  // {"mode", "mps": what MpsDaemon::describe() says, or null for a device without contexts}
  nlohmann::json describe_mps() const;
  // Why programs on MPS virtual GPUs are refused now; empty: they are not.
  std::string mps_error() const;

  // ENOENT, ENOTCONN (not running now), ETIMEDOUT.
  void request(const std::string& name, const nlohmann::json& object, Answer answer);
  // {"state": ..., "pid": ..., "restarts": ...}
  nlohmann::json describe(const std::string& name) const;

 private:
  nlohmann::json sharing_config(const VgpuSpec& spec) const;
  void tell_all();
  void probe_faults();

  event_base* base_;
  const Config& config_;
  Arbiter* const arbiter_;
  PlanningMode planning_mode_;
  EventPtr fault_timer_;
  std::unique_ptr<MpsDaemon> mps_;  // null: the device has no contexts that MPS could join
  std::map<std::string, std::shared_ptr<SessionSupervisor>> supervisors_;
};

}  // namespace bandsaw
