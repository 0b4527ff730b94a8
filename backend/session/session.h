// One virtual GPU, from its creation to its end: its usage page, its runners, its frontends, and the socket on
// which vgpud asks after it.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/control/json_link.h"
#include "backend/control/owner.h"
#include "backend/control/vgpu_identity.h"
#include "backend/sandbox/session_sandbox.h"
#include "backend/session/checkpointer_process.h"
#include "backend/session/code_store.h"
#include "backend/session/direct_frontend.h"
#include "backend/session/gate_frontend.h"
#include "backend/session/peer_links.h"
#include "backend/session/process_checkpoints.h"
#include "backend/session/runner_launch_config.h"
#include "backend/session/runner_pool.h"
#include "backend/session/saver.h"
#include "backend/session/segment_service.h"
#include "backend/session/sleep_watch.h"
#include "backend/session/status_query.h"
#include "backend/session/suspension.h"
#include "backend/session/usage_page_owner.h"
#include "backend/session/vm_frontend.h"
#include "hypervisor/vfio_user/server.h"
#ifdef BANDSAW_WITH_XEN
#include "hypervisor/xen/backend.h"
#endif

namespace bandsaw {

struct SessionConfig {
  std::string name;
  uint32_t index = 0;                     // of the virtual GPU on this host; no two have one
  std::string run;                        // BANDSAW_RUN
  std::string state;                      // this virtual GPU's own folder for its runners' caches; empty: none
  std::string runner;                     // path of bandsaw-runner
  std::string slices;                     // how runners cut kernels, as they read it; empty: not at all
  uint64_t memory = 0;                    // bytes
  uint64_t resident = UINT64_MAX;         // of them, on the device at most
  Limits limits = kDefaultLimits;         // until vgpud says otherwise
  SharingConfig sharing_config;           // until vgpud says otherwise; but the device's kind stays
  unsigned warm = 1;                      // runners ready ahead
  Owner owner, vm_owner;                  // who may use direct.sock, and who vfio.sock, until vgpud says otherwise
  SocketAccess direct_access, vm_access;  // of sockets that belong to anybody
  SandboxConfig sandbox;
};

class Session {
 public:
  // Makes sockets and folders, then gives up what it no longer needs.
  static Result<std::unique_ptr<Session>> open(const SessionConfig& config);
  ~Session();
  void run();  // until told to stop, or SIGTERM

 private:
  Session(SessionConfig config, BasePtr base, UsagePageOwner usage_page);
  Status prepare();
  Status set_owners(const nlohmann::json& request);
  // Whether whoever is at the other end of the socket is one of `owner`'s.
  Status admit(const Owner& owner, int socket) const;
  // While it is what it was started as: who starts runners, and in what.
  Status start_launcher();
  // On disk, for the launcher's runners.
  void open_state(LauncherConfig* launcher);
  void open_code_store();
  // Then it gives up what it no longer needs.
  Status close_down();
  std::vector<std::string> runner_environment() const;
  std::optional<vfio_user::Held> take_connection(UniqueFd* listener) const;
  void link_peers(UniqueFd listener);
  void open_segments();
  // What needs no MPS daemon: who makes memory of segments, and who has the driver take contexts off the GPU.
  void choose_device_of_helpers();
  // An error: programs are on the device that it has, and do not stand still.
  Status check_device(const SharingConfig& wanted) const;
  // Takes one away from all who use it, because its name goes by force.
  Status end_segment(const nlohmann::json& request);
  // Xen's backend, where this machine is Xen's host and the build knows of it: opened as root, started in the sandbox.
  void open_xen();
  Status start_xen();
  // What `set` says of the domain that shall have it.
  Status expect_domain(const nlohmann::json& request);
  // The domain that has connected, and whether one has.
  nlohmann::json xen_state() const;
  bool has_xen_domain() const;
  nlohmann::json answer(const nlohmann::json& request);
  // `seen`: which processes its own processes see.
  ProcessesConfig processes_config(std::function<std::vector<ProcessSlot>()> seen);
  std::string faulted() const;
  Status set(const nlohmann::json& request);
  void apply_sharing_config();
  nlohmann::json status() const;
  void make_suspension();
  void suspension_changed();
  // Programs lock and checkpoint each other.
  void make_process_checkpoints();
  Status give_room(const nlohmann::json& request);
  // One that is idle leaves its device, and comes back at the first call.
  void make_sleep_watch();
  Status sleep(const nlohmann::json& request);
  void make_saver(UniqueFd listener);
  // Why new runners could not have what its programs have, in words; empty: they could.
  std::string lacks() const;
  // Programs that wait for another runner; and one for each of them.
  std::vector<std::shared_ptr<Process>> away() const;
  void revive(const Saver::Programs& programs, const Saver::Revived& done) const;
  bool has_program(const ReturnKey& key) const;
  // Who brings the token brings a file for it.
  Status expect_file(const nlohmann::json& request, Saver::What what);
  nlohmann::json health() const;
  nlohmann::json suspension_state() const;
  uint64_t bytes_on_device() const;
  Activity activity() const;
  // An error: something of it is shared with others, who would lose it.
  Status check_suspendable() const;
  // The same of one process's runner.
  Status check_checkpoint(const Runner& runner) const;
  // What programs have on the device beside what each has by itself.
  Status check_segments() const;
  // By name: how much is held, and how much may be.
  nlohmann::json limits_state() const;
  nlohmann::json stalls_state() const;
  nlohmann::json sandbox_state() const;
  void stop_soon();

  const SessionConfig config_;
  const std::string host_;  // read before the sandbox closes
  const VgpuIdentity identity_;
  BasePtr base_;
  UsagePageOwner usage_page_;
  SharingConfig sharing_config_;
  Owner owner_, vm_owner_;
  const uid_t own_uid_;  // that vgpud runs as
  std::string faulted_;  // the MPS daemon of a client that has ended with a fault of the GPU
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  EventPtr terminate_, interrupt_;
  EventPtr launcher_ended_;
  std::unique_ptr<Launcher> launcher_;
  Measures measures_;  // of this process
  std::vector<std::string> runner_environment_;
  UniqueFd state_folder_;                  // that compiled code is kept in
  std::unique_ptr<CodeStore> code_store_;  // null: its runners keep it themselves, or nobody does
  std::unique_ptr<SegmentMaker> segment_maker_;
  std::unique_ptr<SegmentHost> segment_host_;
  std::unique_ptr<SegmentService> segments_;
  std::unique_ptr<GateFrontend> gates_;
  std::unique_ptr<PeerLinks> peers_;
  std::unique_ptr<CheckpointerProcess> checkpointer_;        // null: the device has no contexts
  std::unique_ptr<Suspension> suspension_;                   // before the pool, whose runners may still answer it
  std::unique_ptr<ProcessCheckpoints> process_checkpoints_;  // the same
  std::unique_ptr<SleepWatch> sleep_watch_;
  std::unique_ptr<RunnerPool> pool_;
  std::unique_ptr<Saver> saver_;  // after the pool: its job ends before the runners do
  std::unique_ptr<StatusQuery> status_query_;
  std::unique_ptr<DirectFrontend> direct_;
  std::unique_ptr<VmFrontend> vm_;
  std::unique_ptr<vfio_user::Server> server_;
#ifdef BANDSAW_WITH_XEN
  std::unique_ptr<xen::Backend> xen_;  // null: no Xen here
#endif
  std::unique_ptr<JsonServer> control_;
};

}  // namespace bandsaw
