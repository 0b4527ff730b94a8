#include "backend/vgpud/sessions/session_supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"
#include "backend/vgpud/gpu.h"
#include "backend/vgpud/owners.h"
#include "backend/vgpud/sessions/log_writer.h"
#include "backend/vgpud/sessions/session_process.h"
#include "backend/vgpud/sessions/session_reply.h"
#include "memory/base/log_about.h"

namespace bandsaw {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::seconds kSessionStarts{15}, kSessionStops{5}, kSessionStable{10}, kAnswerTimeout{3};
constexpr long kPollMs = 100, kFirstPauseMs = 200, kLongestPauseMs = 10000;

// A session that understood what it was told may still refuse it.
Status refusal(const nlohmann::json& reply) {
  if (reply.value("ok", false)) return {};
  const std::string why = reply.value("error", "");
  return Status::error(EBUSY, "{}", why.empty() ? "its session refuses, and gives no reason" : why);
}

const char* word_of(SessionManager::Hold hold) {
  switch (hold) {
    case SessionManager::Hold::kPause:
      return "pause";
    case SessionManager::Hold::kLeave:
      return "suspend";
    case SessionManager::Hold::kNone:
      break;
  }
  return "run";
}

log::About about(const VgpuSpec& spec) { return {spec.name, spec.device}; }

}  // namespace

SessionSupervisor::SessionSupervisor(event_base* base, const Config& config, const VgpuSpec& spec, const Gpu& gpu,
                                     const CgroupTree* cgroups, SharingConfigOf sharing_config_of,
                                     std::function<void()> on_news)
    : base_(base),
      config_(config),
      gpu_(&gpu),
      cgroups_(cgroups),
      spec_(spec),
      sharing_config_of_(std::move(sharing_config_of)),
      on_news_(std::move(on_news)) {
  timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<SessionSupervisor*>(self)->tick(); },
      this));
}

SessionSupervisor::~SessionSupervisor() = default;

void SessionSupervisor::wait(long milliseconds) {
  const timeval time = to_timeval(std::chrono::milliseconds(milliseconds));
  event_add(timer_.get(), &time);
}

void SessionSupervisor::start(SessionManager::Ready ready) {
  if (ready) waiting_.push_back(std::move(ready));
  adopt_or_spawn();
}

void SessionSupervisor::became(const Status& status) {
  for (const auto& ready : std::exchange(waiting_, {})) ready(status);
}

std::string SessionSupervisor::session_log() const { return vgpu_directory(config_.run, spec_.name) + "/session.log"; }

void SessionSupervisor::adopt_or_spawn() {
  state_ = State::kStarting;
  if (connect()) {
    log::info(about(spec_), "the session (pid {}) has lived on", pid_);
    if (Status status = bound(); !status.ok()) log::error(about(spec_), "{}", status.message());
    return;
  }
  if (Status status = spawn(); !status.ok()) {
    log::error(about(spec_), "{}", status.message());
    pause();
    became(status);
    return;
  }
  deadline_ = steady_clock::now() + kSessionStarts;
  wait(kPollMs);
}

Status SessionSupervisor::spawn() {
  const std::string folder = vgpu_directory(config_.run, spec_.name);
  if (Status status = make_folder(folder, 0755); !status.ok()) return status;
  if (config_.cgroup.mode == "required" && !cgroups_) {
    return Status::error(ENOTSUP,
                         "no session without a cgroup: 'cgroup.mode' is \"required\", and vgpud could make none");
  }
  const auto users = users_of(config_, spec_.index);
  if (!users.ok()) return users.status();
  UniqueFd entrance;
  if (cgroups_) {
    if (Status status = bound(); !status.ok()) return status;
    auto opened = cgroups_->entrance(spec_.name);
    if (!opened.ok()) return opened.status();
    entrance = std::move(opened.value());
  }
  const auto log = start_log_writer(config_.log_program, session_log());
  if (!log.ok()) return log.status();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  ready_.reset(ends[0]);
  const UniqueFd tells_ready(ends[1]);
  const auto pid =
      start_session(session_arguments(config_, spec_, *gpu_, users.value()), log.value(), tells_ready, entrance);
  if (!pid.ok()) return pid.status();
  log::info(about(spec_), "started a session (pid {})", pid.value());
  await_ready();
  watch(pid.value());
  return {};
}

// It says so by itself, or ends; who looks in between does so to be sure.
void SessionSupervisor::await_ready() {
  ready_event_.reset(event_new(
      base_, ready_.get(), EV_READ,
      [](evutil_socket_t, short, void* self) { static_cast<SessionSupervisor*>(self)->tick(); }, this));
  event_add(ready_event_.get(), nullptr);
}

void SessionSupervisor::forget_ready() {
  ready_event_.reset();
  ready_.reset();
}

Status SessionSupervisor::bound() const {
  if (!cgroups_) return {};
  VgpuSpec now = spec_;
  now.suspended_bytes += asleep_bytes();
  return cgroups_->set(spec_.name, {.memory = host_memory_of(now, gpu_->device, config_.cgroup),
                                    .pids = config_.cgroup.pids,
                                    .cpu_weight = config_.cgroup.cpu_weight});
}

void SessionSupervisor::watch(int pid) {
  pid_ = pid;
  since_ = steady_clock::now();
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd_) return died();  // it ended before we looked
  exit_event_.reset(event_new(
      base_, pidfd_.get(), EV_READ,
      [](evutil_socket_t, short, void* self) { static_cast<SessionSupervisor*>(self)->died(); }, this));
  event_add(exit_event_.get(), nullptr);
}

bool SessionSupervisor::connect() {
  auto socket = connect_unix(session_socket(config_.run, spec_.name), SOCK_STREAM | SOCK_NONBLOCK);
  if (!socket.ok()) return false;
  link_ = std::make_unique<JsonClient>(base_, std::move(socket.value()), [this](const Status& why) {
    if (why.code() == EPROTO) distrust(why);
  });
  notices_ = false;
  news_ = used_ = true;
  link_->on_notice([this] {
    news_ = used_ = true;
    on_news_();
  });
  if (pid_ == 0) watch(link_->peer_pid());
  if (pid_ == 0) return false;
  forget_ready();
  state_ = State::kRunning;
  on_news_();
  // A session that was found has the memory share of its start, which may have changed since. Its answer also says
  // that all its sockets are there.
  ask(set_request(), [this](const Result<nlohmann::json>& reply) {
    if (!reply.ok()) return;
    notices_ = reply.value().value("notices", false);
    sandbox_ = reply.value().value("sandbox", nlohmann::json());
    connect_gates();
    became({});
  });
  return true;
}

// What comes back was looked at.
void SessionSupervisor::ask(const nlohmann::json& object, SessionManager::Answer answer) {
  link_->request(object, [self = weak_from_this(), answer = std::move(answer)](Result<nlohmann::json> reply) {
    const Status status = reply.ok() ? check_reply(reply.value()) : reply.status();
    if (status.ok()) return answer(std::move(reply));
    if (const auto supervisor = self.lock(); supervisor && status.code() == EPROTO) supervisor->distrust(status);
    answer(status);
  });
}

// A session that says what none says has been taken over, or is broken: its tenant gets another.
void SessionSupervisor::distrust(const Status& why) {
  if (state_ == State::kGone || !pidfd_) return;
  log::error(about(spec_), "the session's answer is no use: {}; it is ended", why.message());
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

void SessionSupervisor::connect_gates() {
  auto socket = connect_unix(gate_socket(config_.run, spec_.name), SOCK_SEQPACKET | SOCK_NONBLOCK);
  if (socket.ok()) return gpu_->arbiter->connect(spec_.name, std::move(socket.value()));
  log::error(about(spec_), "its shares do not hold: {}", socket.status().message());
}

void SessionSupervisor::tick() {
  const auto self = shared_from_this();
  switch (state_) {
    case State::kStarting:
      if (connect()) return;
      if (steady_clock::now() < deadline_) return wait(kPollMs);
      log::error(about(spec_), "the session does not answer; killing it");
      if (pid_ > 0) ::kill(pid_, SIGKILL);
      return;
    case State::kWaiting:
      return adopt_or_spawn();
    case State::kStopping:
      log::warn(about(spec_), "the session does not end; killing it");
      if (pid_ > 0) ::kill(pid_, SIGKILL);
      return;
    default:
      return;
  }
}

void SessionSupervisor::died() {
  const auto self = shared_from_this();
  int status = 0;
  std::string how = "ended";
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                              : fmt::format("exited with status {}", WEXITSTATUS(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSandboxStatus) {
      how =
          "cannot have the sandbox that 'sandbox.mode' = \"required\" asks for on this host (`vgpuctl status` says "
          "what is "
          "lacking while it is \"auto\")";
    }
  }
  pid_ = 0;
  asleep_bytes_ = checkpointed_bytes_ = restored_bytes_ = 0;
  asleep_ = saved_ = false;
  forget_ready();
  exit_event_.reset();
  pidfd_.reset();
  if (link_) link_->close();  // who waits for an answer gets none
  link_.reset();
  if (state_ == State::kStopping) {
    log::info(about(spec_), "the session {}", how);
    return clean_up();
  }
  log::error(about(spec_), "the session {}; its log is {}", how, session_log());
  if (steady_clock::now() - since_ > kSessionStable) failures_ = 0;
  pause();
  became(Status::error(EIO, "the session of '{}' {}", spec_.name, how));
}

// Starts it again after a pause that doubles.
void SessionSupervisor::pause() {
  state_ = State::kWaiting;
  ++restarts_;
  wait(std::min(kLongestPauseMs, kFirstPauseMs << std::min(failures_++, 8u)));
}

void SessionSupervisor::stop(bool forget, std::function<void()> gone) {
  if (gone) when_gone_.push_back(std::move(gone));
  forget_ = forget_ || forget;
  if (state_ == State::kStopping) return;
  state_ = State::kStopping;
  forget_ready();
  became(Status::error(ECANCELED, "'{}' is being ended", spec_.name));
  if (pid_ == 0) return clean_up();
  if (link_) {
    link_->request({{"op", "shutdown"}}, [](const Result<nlohmann::json>&) {});
  } else {
    ::kill(pid_, SIGTERM);
  }
  wait(std::chrono::milliseconds(kSessionStops).count());
}

// Of a VM whose session has died, and that no other session will take: the process that holds it ends with the cgroup,
// and QEMU would abort unless it ends the connection first (hypervisor/vfio_user/held_connection.h).
void SessionSupervisor::end_connection() const {
  constexpr char kEnd = 'e';
  constexpr int kMostMs = 100;
  const auto holder = connect_unix(held_socket(config_.run, spec_.name), SOCK_SEQPACKET | SOCK_NONBLOCK);
  if (!holder.ok() || ::send(holder.value().get(), &kEnd, 1, MSG_NOSIGNAL) != 1) return;
  pollfd ended{holder.value().get(), POLLIN, 0};
  if (::poll(&ended, 1, kMostMs) != 1) log::error(about(spec_), "its VM's connection does not end");
}

void SessionSupervisor::clean_up() {
  const auto self = shared_from_this();
  state_ = State::kGone;
  event_del(timer_.get());
  end_connection();
  if (cgroups_) cgroups_->remove(spec_.name);
  std::error_code ignored;
  if (keep_log_ && make_folder(failed_folder(config_.run), 0700).ok()) {
    std::filesystem::rename(session_log(), failed_log(config_.run, spec_.name), ignored);
  }
  std::filesystem::remove_all(vgpu_directory(config_.run, spec_.name), ignored);
  std::filesystem::remove(peer_socket(config_.run, spec_.index), ignored);
  if (forget_) std::filesystem::remove_all(config_.state + "/vgpus/" + spec_.name, ignored);
  for (const auto& gone : std::exchange(when_gone_, {})) gone();
}

nlohmann::json SessionSupervisor::set_request() const {
  nlohmann::json request = sharing_config_of_(spec_);
  request["op"] = "set";
  request["notices"] = true;
  request["device"] = spec_.device;
  request["soft_sms"] = soft_sms(*gpu_);
  request["guard"] = guard_text(spec_);
  request["memory"] = spec_.memory;
  request["resident"] = reserved_memory(spec_);
  request["suspension"] = spec_.suspended ? "suspend" : word_of(hold_);
  request["contexts"] = contexts_stay_ ? "stay" : "leave";
  request["idle_suspend_s"] = spec_.idle_suspend_s.value_or(config_.idle_suspend_s);
  const Limits limits = effective_limits(config_.limits, spec_.limits);
  request["limits"] = to_text(limits, kLimitedBefore);
  for (size_t i = kLimitedBefore; i < kLimitedCount; ++i) request[kLimitedNames[i]] = limits[i];
  request["owner"] = to_text(owner_of(spec_));
  request["domain"] = spec_.domain;
  request["vm_owner"] = to_text(vm_owner_of(spec_, config_));
  return request;
}

void SessionSupervisor::give_sockets() const {
  for (const Status& status :
       {give_socket(direct_socket(config_.run, spec_.name), owner_of(spec_), direct_access(spec_, config_)),
        give_socket(vfio_socket(config_.run, spec_.name), vm_owner_of(spec_, config_), vm_access(config_)),
        give_socket(vfio_live_socket(config_.run, spec_.name), vm_owner_of(spec_, config_), vm_access(config_))}) {
    if (!status.ok() && status.code() != ENOENT) log::error(about(spec_), "{}", status.message());
  }
}

void SessionSupervisor::update(const VgpuSpec& spec) {
  const bool moved = spec.owner != spec_.owner || spec.domain != spec_.domain;
  spec_ = spec;
  if (moved) give_sockets();
  if (Status status = bound(); !status.ok()) log::error(about(spec_), "{}", status.message());
  on_news_();
  tell();
}

void SessionSupervisor::move(const VgpuSpec& spec, const Gpu& gpu, SessionManager::Ready moved) {
  spec_ = spec;
  gpu_ = &gpu;
  hold_ = SessionManager::Hold::kNone;
  if (Status status = bound(); !status.ok()) log::error(about(spec_), "{}", status.message());
  request(set_request(), [self = shared_from_this(), moved = std::move(moved)](const Result<nlohmann::json>& reply) {
    // One that is not there starts with its new device.
    Status status = reply.ok() ? refusal(reply.value()) : Status();
    const bool follows = !reply.ok() || reply.value().value("device", "") == self->spec_.device;
    if (status.ok() && !follows) status = Status::error(EBUSY, "its session is of an earlier version, and stays");
    if (reply.ok() && self->state_ == State::kRunning) self->connect_gates();
    moved(status);
  });
}

bool SessionSupervisor::take_news() { return std::exchange(news_, !notices_); }

void SessionSupervisor::sleep(uint64_t bytes) {
  set_asleep(bytes);
  request({{"op", "sleep"}, {"bytes", bytes}}, [self = shared_from_this()](const Result<nlohmann::json>& reply) {
    const Status refused = reply.ok() ? refusal(reply.value()) : reply.status();
    if (refused.ok()) return;
    self->set_asleep(0);
    log::debug("{} does not sleep: {}", self->spec_.name, refused.message());
  });
}

void SessionSupervisor::set_asleep(uint64_t bytes) {
  if (std::exchange(asleep_bytes_, bytes) != bytes) bound_again();
}

void SessionSupervisor::set_checkpointed(uint64_t bytes) {
  if (std::exchange(checkpointed_bytes_, bytes) != bytes) bound_again();
}

void SessionSupervisor::bound_again() const {
  if (Status status = bound(); !status.ok()) log::error(about(spec_), "{}", status.message());
}

void SessionSupervisor::note_sleep(bool asleep, uint64_t bytes, const std::string& error) {
  if (error != std::exchange(sleep_error_, error) && !error.empty()) {
    log::error(about(spec_), "a call waits, and it cannot come back to its device: {}; it tries again", error);
  }
  if (std::exchange(asleep_, asleep) == asleep) return;
  if (asleep) {
    log::info(about(spec_), "asleep: its programs have nothing on the device, and {} in the host's memory",
              format_size(bytes));
  } else if (!spec_.suspended) {
    log::info(about(spec_), "awake again");
  }
}

void SessionSupervisor::set_hold(SessionManager::Hold hold, uint64_t bytes) {
  if (std::exchange(held_bytes_, bytes) != bytes) bound_again();
  if (std::exchange(hold_, hold) != hold) tell();
}

void SessionSupervisor::tell() {
  if (!link_) return;
  ask(set_request(), [spec = spec_](const Result<nlohmann::json>& reply) {
    const Status refused = reply.ok() ? refusal(reply.value()) : Status();
    if (!refused.ok()) log::error(about(spec), "the session refuses what it is told: {}", refused.message());
  });
}

void SessionSupervisor::request(const nlohmann::json& object, SessionManager::Answer answer) {
  if (state_ != State::kRunning || !link_) {
    return answer(Status::error(ENOTCONN, "the session of '{}' does not run now", spec_.name));
  }
  // Whichever comes first, the answer or the end of the timeout.
  struct Waiting {
    SessionManager::Answer answer;
    EventPtr timer;
    void tell(Result<nlohmann::json> result) {
      timer.reset();
      if (const auto call = std::exchange(answer, nullptr)) call(std::move(result));
    }
  };
  const auto waiting = std::make_shared<Waiting>(Waiting{std::move(answer), nullptr});
  waiting->timer.reset(event_new(
      base_, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* argument) {
        static_cast<Waiting*>(argument)->tell(Status::error(ETIMEDOUT, "the session is silent"));
      },
      waiting.get()));
  const timeval timeout{kAnswerTimeout.count(), 0};
  event_add(waiting->timer.get(), &timeout);
  ask(object, [waiting](Result<nlohmann::json> reply) { waiting->tell(std::move(reply)); });
}

nlohmann::json SessionSupervisor::sandbox() const { return state_ == State::kRunning ? sandbox_ : nlohmann::json(); }

nlohmann::json SessionSupervisor::describe() const {
  static constexpr const char* kNames[] = {"starting", "running", "restarting", "stopping", "gone"};
  nlohmann::json host;
  if (const auto use = cgroups_ ? cgroups_->use(spec_.name) : std::nullopt) {
    host = {{"memory", use->memory}, {"memory_most", host_memory_of(spec_, gpu_->device, config_.cgroup)},
            {"tasks", use->pids},    {"tasks_most", config_.cgroup.pids},
            {"cpu_us", use->cpu_us}, {"killed", use->oom_kills}};
  }
  return {{"state", kNames[static_cast<int>(state_)]},
          {"pid", pid_},
          {"restarts", restarts_},
          {"host", host},
          {"sandbox", sandbox()}};
}

}  // namespace bandsaw
