#include "backend/session/session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/control/paths.h"
#include "backend/session/process.h"
#include "backend/session/state_folder.h"
#include "guest-driver/uapi/wire.h"
#include "memory/base/log.h"

extern "C" char** environ;

namespace bandsaw {
namespace {

constexpr uint32_t kVmProcessesMax = kUsageSlots;
// What a process's context takes of a GPU's memory; and programs that may wait with a runner and without having asked
// for one, whose runner has made it ahead.
constexpr uint64_t kContextBytes = 520ull << 20, kWithoutContext = 2;

Result<UniqueFd> listen_for(const std::string& path, int type, const Owner& owner, const SocketAccess& access) {
  auto socket = listen_unix(path, type, 0);
  if (!socket.ok()) return socket;
  Status status = give_socket(path, owner, access);
  return status.ok() ? std::move(socket) : Result<UniqueFd>(std::move(status));
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What a runner gets of the environment: our variables, those of the sanitizers and of NVIDIA's driver, and where that
// driver is found (vgpud has seen to it that this is not our own libcuda.so.1).
bool for_runners(std::string_view variable) {
  for (const std::string_view own :
       {"BANDSAW_STATE=", "BANDSAW_CACHE=", "BANDSAW_CODE_KEPT=", "BANDSAW_DEVICE=", "BANDSAW_SOFT_SMS=",
        "BANDSAW_SLICES=", "BANDSAW_IDENTITY=", "CUDA_CACHE_PATH=", "CUDA_MPS_"}) {
    if (variable.starts_with(own)) return false;
  }
  for (const std::string_view wanted :
       {"BANDSAW_", "ASAN_", "UBSAN_", "TSAN_", "LSAN_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH="}) {
    if (variable.starts_with(wanted)) return true;
  }
  return false;
}

// Runners of the software device write what kernels do (soft/timing): only where vgpud's environment asks for it.
bool records_kernels() { return std::getenv("BANDSAW_TIMING") != nullptr; }

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const SessionConfig& config) {
  ::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  BasePtr base(event_base_new());
  if (!base) return Status::error(ENOMEM, "cannot make an event loop");
  auto usage_page = UsagePageOwner::open(config.memory, config.resident);
  if (!usage_page.ok()) return usage_page.status();
  std::unique_ptr<Session> session(new Session(config, std::move(base), std::move(usage_page.value())));
  session->usage_page_.set_limits(config.limits);
  if (Status status = session->prepare(); !status.ok()) return status;
  return session;
}

Session::Session(SessionConfig config, BasePtr base, UsagePageOwner usage_page)
    : config_(std::move(config)),
      host_(host_id()),
      identity_(make_vgpu_identity(host_, config_.name, config_.index)),
      base_(std::move(base)),
      usage_page_(std::move(usage_page)),
      sharing_config_(config_.sharing_config),
      owner_(config_.owner),
      vm_owner_(config_.vm_owner),
      own_uid_(::geteuid()) {}

Session::~Session() = default;

ProcessesConfig Session::processes_config(std::function<std::vector<ProcessSlot>()> seen) {
  ProcessesConfig result;
  result.vgpu = config_.name;
  result.schema = wire::kSchema;
  result.processes_max = kVmProcessesMax;
  if (is_cuda(sharing_config_)) {
    result.runners_max = [this] {
      const uint64_t contexts = usage_page_.memory_share() / kContextBytes + kWithoutContext;
      return static_cast<uint32_t>(std::min<uint64_t>(contexts, kUsageSlots));
    };
  }
  result.limit = [this] { return usage_page_.limits()[static_cast<size_t>(Limited::kProcesses)]; };
  result.slots = gates_.get();
  result.vm = [this]() -> GuestOwner {
    const pid_t qemu = server_->client_pid();
    if (qemu <= 0) return {};
    return {GuestOwner::Kind::kVm, static_cast<uint32_t>(qemu)};
  };
  result.client_ended = [this](const std::string& mps, uint32_t sticky) {
    if (is_shared_fault(sticky)) faulted_ = mps;
  };
  if (!is_cuda(sharing_config_) || sharing_config_.replaceable) {
    result.replaceable = [this](const ReturnKey& key) { return saver_->replaceable(key) && !has_xen_domain(); };
    result.has = [this](const ReturnKey& key) { return has_program(key); };
    result.ended = [this](const ReturnKey& key) { saver_->program_ended(key); };
  }
  result.query = [this, seen = std::move(seen)](const vgpu_ctl_query& query) {
    return status_query_->answer(query, seen());
  };
  return result;
}

Status Session::prepare() {
  const std::string folder = vgpu_directory(config_.run, config_.name);
  if (Status status = make_folder(folder, 0755); !status.ok()) return status;
  if (Status status = make_folder(mps_folder(config_.run), kMpsFolderMode); !status.ok()) return status;
  if (Status status = start_launcher(); !status.ok()) return status;
  auto control = listen_unix(session_socket(config_.run, config_.name), SOCK_STREAM, 0600);
  if (!control.ok()) return control.status();
  auto direct =
      listen_for(direct_socket(config_.run, config_.name), SOCK_SEQPACKET, config_.owner, config_.direct_access);
  if (!direct.ok()) return direct.status();
  UniqueFd outlives;
  auto held = take_connection(&outlives);
  auto vfio = listen_for(vfio_socket(config_.run, config_.name), SOCK_STREAM, config_.vm_owner, config_.vm_access);
  if (!vfio.ok()) return vfio.status();
  auto live = listen_for(vfio_live_socket(config_.run, config_.name), SOCK_STREAM, config_.vm_owner, config_.vm_access);
  if (!live.ok()) return live.status();
  auto gates = listen_unix(gate_socket(config_.run, config_.name), SOCK_SEQPACKET, 0600);
  if (!gates.ok()) return gates.status();
  // Whoever knows a token that vgpud has given.
  auto files = listen_unix(files_socket(config_.run, config_.name), SOCK_SEQPACKET, 0666);
  if (!files.ok()) return files.status();
  auto peers = listen_for_peers(config_.run, config_.index);
  if (!peers.ok()) return peers.status();
  control_ = std::make_unique<JsonServer>(base_.get(), std::move(control.value()),
                                          [this](const nlohmann::json& request) { return answer(request); });
  open_xen();
  if (Status status = close_down(); !status.ok()) return status;
  open_code_store();

  std::unique_ptr<SensorReader> sensors;
  if (is_cuda(sharing_config_)) {
    sensors = std::make_unique<SensorReader>(base_.get(), launcher_.get(), runner_environment_);
  }
  open_segments();
  gates_ = std::make_unique<GateFrontend>(base_.get(), std::move(gates.value()), &usage_page_);
  pool_ = std::make_unique<RunnerPool>(base_.get(),
                                       RunnerProgram{.launcher = launcher_.get(), .environment = runner_environment_},
                                       config_.warm, config_.index);
  pool_->set_segments(segments_.get());
  pool_->set_code_store(code_store_.get());
  usage_page_.pace_stalls(is_cuda(sharing_config_));
  pool_->set_pace([this] { return usage_page_.begin_program(); }, [this] { return usage_page_.stall_debt(); });
  pool_->on_failing([this] { control_->notify("failing"); });
  make_suspension();
  make_process_checkpoints();
  make_sleep_watch();
  make_saver(std::move(files.value()));
  choose_device_of_helpers();
  link_peers(std::move(peers.value()));
  pool_->set_launch_config(runner_launch_config(sharing_config_));
  status_query_ = std::make_unique<StatusQuery>(
      base_.get(), &usage_page_, host_, identity_, [this] { return pool_->device_info(); }, std::move(sensors));
  usage_page_.on_use([this] {
    status_query_->wake();
    control_->notify("used");
  });
  direct_ = std::make_unique<DirectFrontend>(base_.get(), std::move(direct.value()),
                                             processes_config([this] { return direct_->slots(); }), pool_.get(),
                                             &usage_page_);
  vm_ = std::make_unique<VmFrontend>(base_.get(), processes_config([this] { return vm_->processes().slots(); }),
                                     pool_.get(), &usage_page_);
  direct_->admit([this](int socket) { return admit(owner_, socket); });
  server_ = std::make_unique<vfio_user::Server>(base_.get(), vm_->device());
  server_->admit([this](int socket) {
    if (has_xen_domain()) return Status::error(EBUSY, "a Xen domain has the virtual GPU");
    return admit(vm_owner_, socket);
  });
  if (Status status = server_->adopt(std::move(vfio.value())); !status.ok()) return status;
  if (Status status = server_->adopt(std::move(live.value()), vfio_user::Server::Interrupts::kLine); !status.ok())
    return status;
  if (outlives) server_->outlive(std::move(outlives));
  if (held) {
    const Status status = server_->go_on(std::move(*held));
    if (!status.ok()) log::error("the VM's connection: {}", status.message());
    if (status.ok()) log::info("goes on with the VM of a session that has died");
  }
  if (Status status = start_xen(); !status.ok()) return status;

  const auto stop = [](evutil_socket_t, short, void* base) { event_base_loopbreak(static_cast<event_base*>(base)); };
  terminate_.reset(event_new(base_.get(), SIGTERM, EV_SIGNAL | EV_PERSIST, stop, base_.get()));
  interrupt_.reset(event_new(base_.get(), SIGINT, EV_SIGNAL | EV_PERSIST, stop, base_.get()));
  event_add(terminate_.get(), nullptr);
  event_add(interrupt_.get(), nullptr);
  return {};
}

void Session::link_peers(UniqueFd listener) {
  PeerLinksConfig links{.run = config_.run, .index = config_.index};
  if (config_.sandbox.uid != 0) links.first_uid = int64_t{config_.sandbox.uid} - config_.index;
  ExchangeService& service = pool_->exchange();
  peers_ = std::make_unique<PeerLinks>(base_.get(), std::move(listener), std::move(links), &service.exchange(),
                                       [this, &service](const ExchangeKey& key) {
                                         if (!segments_->revoked(key)) service.revoked(key);
                                       });
  peers_->offer(segments_.get());
  service.connect(peers_.get());
  segments_->connect(peers_.get());
}

void Session::make_suspension() {
  if (is_cuda(sharing_config_)) {
    checkpointer_ = std::make_unique<CheckpointerProcess>(base_.get(), launcher_.get());
  }
  suspension_ = std::make_unique<Suspension>(base_.get(), Suspension::Session{
                                                              .runners = [this] { return pool_->serving(); },
                                                              .hold = [this](bool held) { pool_->hold(held); },
                                                              .check = [this] { return check_suspendable(); },
                                                              .on_device = [this] { return bytes_on_device(); },
                                                              .changed = [this] { suspension_changed(); },
                                                              .awaits = [this] { return !away().empty(); },
                                                              .checkpointer = checkpointer_.get(),
                                                          });
}

void Session::make_process_checkpoints() {
  process_checkpoints_ = std::make_unique<ProcessCheckpoints>(
      base_.get(), ProcessCheckpoints::Session{
                       .runners = [this] { return pool_->serving(); },
                       .check = [this](const Runner& runner) { return check_checkpoint(runner); },
                       .changed = [this] { control_->notify("checkpoint"); },
                       .usage_page = &usage_page_,
                       .checkpointer = checkpointer_.get(),
                   });
  pool_->on_checkpoint(
      [this](Runner* asker, const RunnerMessage& message) { process_checkpoints_->request(asker, message); },
      [this](Runner* runner) { process_checkpoints_->drop(runner); });
}

void Session::suspension_changed() {
  if (!suspension_->suspended()) {
    sleep_watch_->begin();
    saver_->went_on();
  }
  control_->notify("sleep");
}

void Session::make_saver(UniqueFd listener) {
  Saver::Session session{
      .runners = [this] { return pool_->serving(); },
      .suspended = [this] { return suspension_->suspended_by_order(); },
      .stay =
          [this](const std::string& why) {
            suspension_->set_stay(why);
            control_->notify("sleep");
          },
      .memory = [this] { return usage_page_.largest_share(); },
      .changed = [this] { control_->notify("sleep"); },
      .lacks = [this] { return lacks(); },
      .away =
          [this] {
            Saver::Programs programs;
            for (const auto& process : away()) programs.insert(process->key());
            return programs;
          },
      .revive = [this](const Saver::Programs& programs, const Saver::Revived& done) { revive(programs, done); },
      .revived =
          [this](bool well) {
            for (const auto& process : away()) process->revived(well);
          },
      .vgpu = identity_.uuid,
  };
  saver_ = std::make_unique<Saver>(base_.get(), std::move(listener), std::move(session));
}

bool Session::has_xen_domain() const {
  const auto xen = xen_state();
  return xen.is_object() && xen["connected"] == true;
}

std::string Session::lacks() const {
  if (has_xen_domain()) return "pages of a Xen domain";
  const std::string words = vm_->processes().lacks();
  return words.empty() ? direct_->lacks() : words;
}

std::vector<std::shared_ptr<Process>> Session::away() const {
  if (!vm_ || !direct_) return {};
  auto all = vm_->processes().away();
  for (auto& process : direct_->away()) all.push_back(std::move(process));
  return all;
}

bool Session::has_program(const ReturnKey& key) const { return vm_->processes().has(key) || direct_->has(key); }

void Session::revive(const Saver::Programs& programs, const Saver::Revived& done) const {
  struct Outcome {
    Status status;
    std::map<ReturnKey, Runner*> runners;
  };
  const auto outcome = std::make_shared<Outcome>();
  // Goes when the last one has answered.
  const std::shared_ptr<void> latch(nullptr, [outcome, done](void*) { done(outcome->status, outcome->runners); });
  for (const auto& process : away()) {
    if (!programs.contains(process->key())) continue;
    process->revive([outcome, latch, program = process->key()](const Result<Runner*>& runner) {
      if (runner.ok()) {
        outcome->runners.emplace(program, runner.value());
      } else if (outcome->status.ok()) {
        outcome->status = runner.status();
      }
    });
  }
}

uint64_t Session::bytes_on_device() const { return usage_page_.total().on_device(); }

Activity Session::activity() const {
  Activity now = usage_page_.activity();
  now.under_way |= pool_->awaited();
  return now;
}

void Session::make_sleep_watch() {
  sleep_watch_ =
      std::make_unique<SleepWatch>(base_.get(), SleepWatch::Session{.activity = [this] { return activity(); },
                                                                    .awake = [this] { return suspension_->running(); },
                                                                    .idle = [this] { control_->notify("sleep"); }});
  pool_->on_call([this] {
    sleep_watch_->called();
    suspension_->call_waits();
  });
  pool_->on_asks_room([this] { usage_page_.kick_all(); });
}

Status Session::check_suspendable() const {
  if (const std::string locked = process_checkpoints_->locked(); !locked.empty()) {
    return Status::error(EBUSY, "{}", locked);
  }
  for (const Runner* const runner : pool_->serving()) {
    if (runner->mps().empty()) continue;
    return Status::error(EBUSY, "a program of it is a client of the MPS daemon, which keeps what the program has");
  }
  if (const size_t sharing = pool_->exchange().sharing(); sharing != 0) {
    return Status::error(EBUSY, "{} of its programs share{} memory or events with other processes (IPC)", sharing,
                         sharing == 1 ? "s" : "");
  }
  return check_segments();
}

Status Session::check_segments() const {
  if (segments_->in_use()) return Status::error(EBUSY, "programs of it have a shared segment attached");
  const std::string held = segment_host_->any_held();
  if (held.empty()) return {};
  return Status::error(EBUSY, "its shared segment '{}' has memory on the device", held);
}

Status Session::check_checkpoint(const Runner& runner) const {
  if (!suspension_->running()) return Status::error(EBUSY, "the virtual GPU is suspended, or about to be");
  if (!runner.mps().empty()) return Status::error(ENOTSUP, "it is a client of the MPS daemon, which keeps what it has");
  if (pool_->exchange().shares(runner)) {
    return Status::error(ENOTSUP, "it shares memory or events with other processes (IPC)");
  }
  const Status status = check_segments();
  return status.ok() ? status : Status::error(ENOTSUP, "{}", status.message());
}

void Session::open_segments() {
  segment_maker_ = std::make_unique<SegmentMaker>(base_.get(), launcher_.get());
  segment_host_ = std::make_unique<SegmentHost>(config_.index, &usage_page_, segment_maker_.get());
  segments_ = std::make_unique<SegmentService>(config_.index, segment_host_.get());
}

// Memory needs no MPS daemon, whoever uses it later; of a device that is lost there is none.
void Session::choose_device_of_helpers() {
  SharingConfig alone = sharing_config_;
  alone.sharing = Sharing::kTimeSliced;
  RunnerLaunchConfig launch_config = runner_launch_config(alone);
  if (checkpointer_) {
    checkpointer_->set_environment(with_variables(runner_environment_, launch_config.variables));
    checkpointer_->set_gpu(sharing_config_.gpu);
  }
  if (launch_config.refusal != 0) launch_config.variables = {"BANDSAW_DEVICE=lost"};  // which no runner knows
  segment_maker_->set_environment(with_variables(runner_environment_, launch_config.variables));
}

Status Session::start_launcher() {
  runner_environment_ = runner_environment();
  LauncherConfig launcher{.mode = config_.sandbox.mode,
                          .session_uid = ::geteuid() == 0 ? config_.sandbox.uid : 0,
                          .runner_uid = config_.sandbox.runner_uid,
                          .program = config_.runner,
                          .staging = vgpu_directory(config_.run, config_.name),
                          .mps = mps_folder(config_.run),
                          .gpu = is_cuda(sharing_config_),
                          .peers = config_.sandbox.peers,
                          .environment = runner_environment_};
  if (!config_.state.empty()) open_state(&launcher);
  auto started = Launcher::start(launcher);
  if (!started.ok()) return started.status();
  launcher_ = std::move(started.value());
  launcher_ended_.reset(event_new(
      base_.get(), launcher_->socket(), EV_READ,
      [](evutil_socket_t, short, void*) {
        log::error("the launcher has ended, and this session and its runners with it");
        ::_exit(EXIT_FAILURE);
      },
      nullptr));
  event_add(launcher_ended_.get(), nullptr);
  return {};
}

// Of a software device the session itself keeps what runners compile; NVIDIA's driver does so in the runner. Without a
// folder, programs compile again what they compiled before.
void Session::open_state(LauncherConfig* launcher) {
  const uid_t session = launcher->session_uid, own = config_.sandbox.runner_uid;
  const uid_t runner = session != 0 && own != 0 ? own : session;
  launcher->runners_record = records_kernels();
  auto folder = launcher->runners_write() ? open_state_folder(config_.state, runner, session)
                                          : open_state_folder(config_.state, session, runner, runner);
  if (!folder.ok()) return log::warn("no cache for compiled code: {}", folder.status().message());
  launcher->state = config_.state;
  if (!launcher->runners_write()) state_folder_ = std::move(folder.value());
}

void Session::open_code_store() {
  if (!state_folder_) return;
  auto opened = CodeStore::open(state_folder_.get(), disk_bytes(usage_page_.limits()));
  state_folder_.reset();
  if (!opened.ok()) return log::warn("compiled code is not kept: {}", opened.status().message());
  code_store_ = std::move(opened.value());
}

Status Session::close_down() {
  SandboxConfig sandbox = config_.sandbox;
  sandbox.own_folder = state_folder_.get();
  sandbox.folders = {peer_folder(config_.run), mps_folder(config_.run)};
  sandbox.staging = vgpu_directory(config_.run, config_.name);
  auto entered = enter_sandbox(sandbox);
  if (!entered.ok()) return entered.status();
  measures_ = std::move(entered.value());
  for (const auto& [whose, lacks] :
       {std::pair{"this session", measures_.lacks}, std::pair{"its runners", launcher_->measures().lacks}}) {
    if (!lacks.empty()) log::info("the sandbox of {} lacks: {}", whose, lacks);
  }
  return {};
}

std::vector<std::string> Session::runner_environment() const {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable; ++variable) {
    if (for_runners(*variable)) environment.emplace_back(*variable);
  }
  environment.emplace_back("PATH=/usr/bin:/bin");
  environment.push_back("BANDSAW_SLICES=" + config_.slices);
  environment.push_back("BANDSAW_IDENTITY=" + to_text(identity_));
  if (!config_.state.empty()) {
    environment.push_back("BANDSAW_STATE=" + config_.state);
    environment.push_back("BANDSAW_CACHE=" + config_.state + "/cache");
    const bool kept = !is_cuda(sharing_config_) && !records_kernels();  // by this session
    if (kept) environment.emplace_back("BANDSAW_CODE_KEPT=1");
    // What NVIDIA's driver compiles from a guest's PTX is kept for this virtual GPU alone.
    environment.push_back("CUDA_CACHE_PATH=" + config_.state + "/cache/cuda");
  }
  return environment;
}

void Session::run() {
  log::info("virtual GPU {} is ready: {} bytes of memory, release {}", config_.name, config_.memory, wire::kRelease);
  pool_->start();
  event_base_dispatch(base_.get());
  log::info("virtual GPU {} ends", config_.name);
  ::unlink(session_socket(config_.run, config_.name).c_str());  // if we still may; vgpud removes the folder
}

Status Session::admit(const Owner& owner, int socket) const {
  const Peer peer = read_peer(socket);
  if (admits(owner, peer, own_uid_)) return {};
  return Status::error(EACCES, "virtual GPU '{}' has an owner, and user {} is not it (`vgpuctl show` says who is)",
                       config_.name, peer.who.uid);
}

}  // namespace bandsaw
