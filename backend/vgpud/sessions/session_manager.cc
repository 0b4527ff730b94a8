#include "backend/vgpud/sessions/session_manager.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/control/mps_priority.h"
#include "backend/vgpud/arbiter/partitions.h"
#include "backend/vgpud/gpu.h"
#include "backend/vgpud/mps/mps_daemon.h"
#include "backend/vgpud/sessions/session_supervisor.h"
#include "memory/base/log_about.h"

namespace bandsaw {

namespace {

constexpr long kHealthIntervalUs = 250'000;
constexpr long kSuspensionPollUs = 2'000;
constexpr std::chrono::seconds kSuspensionMost{60};
constexpr unsigned kSlowTicks = 4;  // between questions to those whose fault ends nobody else, if they have news

// Tells folders of one vgpud from those of another, which has another RUN.
std::string run_id(const std::string& run) { return fmt::format("{:08x}", std::hash<std::string>()(run) & 0xffffffff); }

std::unique_ptr<MpsDaemon> make_mps(event_base* base, const Config& config, const PhysicalDevice& device,
                                    std::function<void()> changed) {
  MpsConfig mps{.command = config.mps_command,
                .run = config.run,
                .gpu = device.visible,
                .several_users = config.first_uid != 0 && ::geteuid() == 0};
  return std::make_unique<MpsDaemon>(base, std::move(mps), std::move(changed));
}

}  // namespace

SessionManager::SessionManager(event_base* base, const Config& config, const Gpus& gpus)
    : base_(base), config_(config), gpus_(gpus), planning_mode_(config.planning_mode) {
  open_cgroups();
  make_daemons();
  health_timer_.reset(event_new(
      base_, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* self) { static_cast<SessionManager*>(self)->check_health(); }, this));
}

SessionManager::~SessionManager() = default;

void SessionManager::open_cgroups() {
  no_cgroups_ = "'cgroup.mode' is \"off\"";
  if (config_.cgroup.mode == "off") return;
  auto tree = CgroupTree::open("bandsaw-" + run_id(config_.run));
  if (!tree.ok()) {
    no_cgroups_ = tree.status().message();
    log::warn("virtual GPUs have no bounds on host memory, processes and processors: {}", no_cgroups_);
    return;
  }
  no_cgroups_.clear();
  cgroups_ = std::make_unique<CgroupTree>(std::move(tree.value()));
  log::info("cgroups of virtual GPUs: {} ({})", cgroups_->path(), cgroups_->controllers());
}

nlohmann::json SessionManager::describe_cgroups() const {
  return {{"path", cgroups_ ? cgroups_->path() : ""},
          {"controllers", cgroups_ ? cgroups_->controllers() : ""},
          {"error", no_cgroups_}};
}

// All sessions of a host have the same; one that has lived on may have less.
nlohmann::json SessionManager::describe_sandbox() const {
  nlohmann::json state = {{"mode", config_.sandbox_mode}, {"sessions", nullptr}};
  for (const auto& [name, supervisor] : supervisors_) {
    nlohmann::json one = supervisor->sandbox();
    if (one.is_null()) continue;
    state["sessions"] = std::move(one);
    break;
  }
  return state;
}

// Of GPUs that are known by now; one that was lost when vgpud started is not.
void SessionManager::make_daemons() {
  for (const Gpu& gpu : gpus_.all()) {
    const std::string& name = gpu.device.name;
    if (gpu.device.kind != "cuda" || !gpu.device.lost.empty() || mps_.contains(name)) continue;
    mps_[name] = make_mps(base_, config_, gpu.device, [this, name] { tell_all(name); });
  }
}

MpsDaemon* SessionManager::mps_of(const std::string& device) const {
  const auto found = mps_.find(device);
  return found == mps_.end() ? nullptr : found->second.get();
}

void SessionManager::look_soon() {
  if (event_pending(health_timer_.get(), EV_TIMEOUT, nullptr)) return;
  const timeval interval{0, kHealthIntervalUs};
  event_add(health_timer_.get(), &interval);
}

// While nobody has news, and nobody is a client of an MPS daemon, vgpud sleeps.
void SessionManager::check_health() {
  const bool all = ++health_ticks_ % kSlowTicks == 0;
  for (const auto& [name, supervisor] : supervisors_) {
    if (!supervisor->running()) continue;  // says so once it runs
    const bool client = supervisor->spec().sharing == Sharing::kMps && mps_of(supervisor->spec().device);
    if (client || supervisor->has_news()) look_soon();
    if (!client && !(all && supervisor->take_news())) continue;
    supervisor->request({{"op", "faulted"}}, [this, vgpu = name](const Result<nlohmann::json>& reply) {
      take_health(vgpu, reply.ok() ? reply.value() : nlohmann::json{{"silent", true}});
    });
  }
}

void SessionManager::take_health(const std::string& vgpu, const nlohmann::json& health) {
  const auto found = supervisors_.find(vgpu);
  if (found == supervisors_.end()) return;
  const auto failing = health.value("failing", std::string());
  if (!failing.empty() || health.contains("silent")) {  // until all is well again
    found->second->more_news();
    look_soon();
  }
  take_sleep(found->second.get(), health);
  take_checkpoints(found->second.get(), health);
  const std::string device = found->second->spec().device;
  // Who faults takes all clients of the MPS daemon along, and those that wait warm do not notice.
  const auto mps = health.value("mps", std::string());
  if (MpsDaemon* daemon = mps_of(device); daemon && !mps.empty() && mps == daemon->state().directory) {
    daemon->replace(fmt::format(
        "a program on '{}' has had a fault on the GPU, which ends the programs of all MPS virtual GPUs there", vgpu));
  }
  if (!failing.empty() && failing_) failing_(device, vgpu, failing);
}

void SessionManager::take_sleep(SessionSupervisor* supervisor, const nlohmann::json& health) {
  if (!health.contains("sleeps")) return;  // silent, or of an earlier version
  const auto bytes = health.value("bytes", uint64_t{0});
  const VgpuSpec& spec = supervisor->spec();
  supervisor->set_saved(!health.value("saved", std::string()).empty());
  supervisor->set_restored(std::min(health.value("restored", uint64_t{0}), reserved_memory(spec)));
  supervisor->set_asleep(health.value("sleeps", false) && !spec.suspended ? bytes : 0);
  supervisor->note_sleep(health.value("asleep", false), bytes, health.value("sleep_error", std::string()));
  if (!health.value("would_sleep", false) || spec.suspended || !room_to_sleep_) return;
  const Status room = room_to_sleep_(spec, bytes);
  if (room.ok()) {
    supervisor->sleep(bytes);
  } else if (no_room_said_.insert(spec.name).second) {
    log::warn(log::About{spec.name, spec.device}, "it is idle and keeps its place: {}", room.message());
  }
}

// Of single processes, by their programs' checkpoints.
void SessionManager::take_checkpoints(SessionSupervisor* supervisor, const nlohmann::json& health) {
  if (!health.contains("checkpointed")) return;  // silent, or of an earlier version
  const auto bytes = health.value("checkpointed", uint64_t{0});
  if (!health.value("wants_room", false)) return supervisor->set_checkpointed(bytes);
  const VgpuSpec& spec = supervisor->spec();
  const Status room = room_to_sleep_ ? room_to_sleep_(spec, bytes) : Status();
  if (!room.ok()) log::warn(log::About{spec.name, spec.device}, "no checkpoint of its processes: {}", room.message());
  if (room.ok()) supervisor->set_checkpointed(bytes);
  supervisor->request({{"op", "room"}, {"bytes", room.ok() ? bytes : 0}}, [](const Result<nlohmann::json>&) {});
}

uint64_t SessionManager::asleep_bytes(const std::string& name) const {
  const auto found = supervisors_.find(name);
  return found == supervisors_.end() ? 0 : found->second->asleep_bytes();
}

uint64_t SessionManager::restored_bytes(const std::string& name) const {
  const auto found = supervisors_.find(name);
  return found == supervisors_.end() ? 0 : found->second->restored_bytes();
}

bool SessionManager::saved(const std::string& name) const {
  const auto found = supervisors_.find(name);
  return found != supervisors_.end() && found->second->saved();
}

void SessionManager::device_changed(const std::string& device) {
  make_daemons();
  review();
  tell_all(device);
}

// What the session of a virtual GPU is to know about sharing.
nlohmann::json SessionManager::sharing_config(const VgpuSpec& spec) const {
  const PlanningMode planning = gpus_.of(spec)->device.planning.value_or(planning_mode_);
  nlohmann::json result = {{"sharing", to_text(spec.sharing)}, {"planning", to_text(planning)}};
  std::vector<VgpuSpec> all;
  for (const auto& [name, supervisor] : supervisors_) all.push_back(supervisor->spec());
  const PhysicalDevice& device = gpus_.of(spec)->device;
  result["sms"] = to_text(sm_part(spec, all, device));
  result["sm_thousandths"] = sm_thousandths(spec, all, device);
  if (segments_of_) result["segments"] = segments_of_(spec);
  result["gpu"] = device.visible;
  result["device_error"] = device.lost;
  result["mps_priority"] = to_text(mps_priority(spec.latency_us, spec.priority));
  const MpsDaemon* daemon = mps_of(spec.device);
  if (!daemon) return result;
  const MpsState& state = daemon->state();
  result["mps"] = {
      {"directory", state.directory}, {"error", state.error}, {"lost", state.lost}, {"gpu", device.visible}};
  return result;
}

void SessionManager::tell_all(const std::string& device) {
  for (const auto& [name, supervisor] : supervisors_) {
    if (supervisor->spec().device == device) supervisor->tell();
  }
}

void SessionManager::review() {
  for (const auto& [device, daemon] : mps_) review(device);
}

void SessionManager::review(const std::string& device) {
  MpsDaemon* const daemon = mps_of(device);
  if (!daemon) return;
  std::set<std::string> clients;
  const bool usable = gpus_.find(device)->device.lost.empty();
  for (const auto& [name, supervisor] : supervisors_) {
    const VgpuSpec& spec = supervisor->spec();
    if (usable && spec.device == device && spec.sharing == Sharing::kMps) clients.insert(name);
  }
  // Who has left the group may have programs there yet: the others go on with a daemon that it does not know.
  std::set<std::string>& served = served_[device];
  const bool left = std::any_of(served.begin(), served.end(), [&](const std::string& name) {
    return !clients.contains(name) && supervisors_.contains(name);
  });
  if (left) {
    daemon->want(false);
    served.clear();
  }
  served.insert(clients.begin(), clients.end());
  daemon->want(!clients.empty());
}

void SessionManager::set_planning_mode(PlanningMode mode) {
  planning_mode_ = mode;
  for (const auto& [name, supervisor] : supervisors_) supervisor->tell();
}

nlohmann::json SessionManager::describe_mps(const std::string& device) const {
  const MpsDaemon* daemon = mps_of(device);
  return {{"daemon", daemon ? daemon->describe() : nlohmann::json()}};
}

std::string SessionManager::mps_error(const std::string& device) const {
  const MpsDaemon* daemon = mps_of(device);
  return daemon ? daemon->state().error : "";
}

void SessionManager::add(const VgpuSpec& spec, Ready ready) {
  auto supervisor = std::make_shared<SessionSupervisor>(
      base_, config_, spec, *gpus_.of(spec), cgroups_.get(),
      [this](const VgpuSpec& now) { return sharing_config(now); }, [this] { look_soon(); });
  supervisors_[spec.name] = supervisor;
  if (spec.sharing == Sharing::kMps) review(spec.device);  // the others' may not all be there yet
  if (takes_from_others(spec)) tell_all(spec.device);
  supervisor->start(std::move(ready));
}

void SessionManager::remove(const std::string& name, std::function<void()> done) {
  const auto found = supervisors_.find(name);
  if (found == supervisors_.end()) return done();
  const auto supervisor = found->second;
  // The supervisor may still run its own code when it calls back; the reference keeps it until that returns.
  supervisor->stop(true, [this, supervisor, name, done = std::move(done)] {
    if (const auto entry = supervisors_.find(name); entry != supervisors_.end() && entry->second == supervisor)
      supervisors_.erase(entry);
    review();
    if (takes_from_others(supervisor->spec())) tell_all(supervisor->spec().device);
    done();
  });
}

void SessionManager::give_up(const std::string& name) {
  if (const auto found = supervisors_.find(name); found != supervisors_.end()) found->second->keep_log();
  remove(name, [] {});
}

void SessionManager::remove_all(std::function<void()> done) {
  // MPS daemons after their clients.
  const std::shared_ptr<void> latch(nullptr, [this, done = std::move(done)](void*) {
    const std::shared_ptr<void> all_gone(nullptr, [done](void*) { done(); });
    for (const auto& [device, daemon] : mps_) daemon->stop([all_gone] {});
  });
  for (const auto& [name, supervisor] : supervisors_) supervisor->stop(false, [latch] {});
}

void SessionManager::update(const VgpuSpec& spec) {
  const auto found = supervisors_.find(spec.name);
  const bool took = found != supervisors_.end() && takes_from_others(found->second->spec());
  if (found != supervisors_.end()) found->second->update(spec);
  if (took || takes_from_others(spec)) tell_all(spec.device);
  review();
}

void SessionManager::move(const VgpuSpec& spec, Ready moved) {
  const auto found = supervisors_.find(spec.name);
  if (found == supervisors_.end()) return add(spec, std::move(moved));  // its device was not configured
  const std::string from = found->second->spec().device;
  found->second->move(spec, *gpus_.of(spec), std::move(moved));
  if (takes_from_others(spec)) {
    tell_all(from);
    tell_all(spec.device);
  }
  review();
}

void SessionManager::request(const std::string& name, const nlohmann::json& object, Answer answer) {
  const auto found = supervisors_.find(name);
  if (found == supervisors_.end()) return answer(Status::error(ENOENT, "no session of '{}'", name));
  found->second->request(object, std::move(answer));
}

bool SessionManager::used(const std::string& name) const {
  const auto found = supervisors_.find(name);
  return found != supervisors_.end() && found->second->used();
}

void SessionManager::quiet(const std::string& name) {
  if (const auto found = supervisors_.find(name); found != supervisors_.end()) found->second->quiet();
}

void SessionManager::set_hold(const std::string& name, Hold hold, uint64_t bytes) {
  if (const auto found = supervisors_.find(name); found != supervisors_.end()) found->second->set_hold(hold, bytes);
}

void SessionManager::set_contexts_stay(const std::string& name, bool stay) {
  if (const auto found = supervisors_.find(name); found != supervisors_.end()) found->second->set_contexts_stay(stay);
}

bool is_in(const nlohmann::json& suspension, const char* state) {
  const bool there = suspension.value("state", "") == state;
  return there || (std::string_view(state) == "paused" && stands_still(suspension));
}

bool stands_still(const nlohmann::json& suspension) {
  const auto state = suspension.value("state", std::string());
  return state == "paused" || state == "suspended";
}

void SessionManager::await_suspension(const std::string& name, const char* state, Answer answer) {
  await_suspension(name, state, std::move(answer), std::chrono::steady_clock::now() + kSuspensionMost);
}

void SessionManager::await_suspension(const std::string& name, const char* state, Answer answer,
                                      std::chrono::steady_clock::time_point until) {
  request(name, {{"op", "suspension"}}, [=, this](Result<nlohmann::json> reply) {
    const bool ended = !reply.ok() || is_in(reply.value(), state) || !reply.value().value("error", "").empty();
    if (ended) return answer(std::move(reply));
    if (std::chrono::steady_clock::now() > until) {
      return answer(
          Status::error(ETIMEDOUT, "the session of '{}' is {} for too long", name, reply.value().value("state", "?")));
    }
    // Once, and freed by the loop.
    auto* const again = new std::function<void()>([=, this] { await_suspension(name, state, answer, until); });
    const timeval pause{0, kSuspensionPollUs};
    event_base_once(
        base_, -1, EV_TIMEOUT,
        [](evutil_socket_t, short, void* call) {
          const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(call));
          (*owned)();
        },
        again, &pause);
  });
}

nlohmann::json SessionManager::describe(const std::string& name) const {
  const auto found = supervisors_.find(name);
  if (found == supervisors_.end())
    return {{"state", "none"}, {"pid", 0}, {"restarts", 0}, {"host", nullptr}, {"sandbox", nullptr}};
  return found->second->describe();
}

}  // namespace bandsaw
