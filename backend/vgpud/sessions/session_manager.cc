#include "backend/vgpud/sessions/session_manager.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/control/mps_priority.h"
#include "backend/vgpud/arbiter/partitions.h"
#include "backend/vgpud/mps/mps_daemon.h"
#include "backend/vgpud/sessions/session_supervisor.h"

namespace bandsaw {

namespace {

constexpr long kFaultIntervalUs = 250'000;

std::unique_ptr<MpsDaemon> make_mps(event_base* base, const Config& config, std::function<void()> changed) {
  if (config.device.kind != "cuda") return nullptr;
  MpsConfig mps{.command = config.mps_command,
                .run = config.run,
                .gpu = mps_gpu(config.device.uuid),
                .several_users = config.first_uid != 0 && ::geteuid() == 0};
  return std::make_unique<MpsDaemon>(base, std::move(mps), std::move(changed));
}

}  // namespace

SessionManager::SessionManager(event_base* base, const Config& config, Arbiter* arbiter)
    : base_(base), config_(config), arbiter_(arbiter), planning_mode_(config.planning_mode) {
  mps_ = make_mps(base, config, [this] { tell_all(); });
  if (!mps_) return;
  fault_timer_.reset(event_new(
      base_, -1, EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<SessionManager*>(self)->probe_faults(); }, this));
  const timeval interval{0, kFaultIntervalUs};
  event_add(fault_timer_.get(), &interval);
}

SessionManager::~SessionManager() = default;

// Who faults takes all clients of the MPS daemon along, and those that wait warm do not notice.
void SessionManager::probe_faults() {
  for (const auto& [name, supervisor] : supervisors_) {
    if (supervisor->spec().sharing != Sharing::kMps || !supervisor->running()) continue;
    supervisor->request({{"op", "faulted"}}, [this, vgpu = name](const Result<nlohmann::json>& reply) {
      const auto mps = reply.ok() ? reply.value().value("mps", std::string()) : "";
      if (mps.empty() || mps != mps_->state().directory) return;
      mps_->replace(fmt::format(
          "a program on '{}' has had a fault on the GPU, which ends the programs of all MPS virtual GPUs", vgpu));
    });
  }
}

// What the session of a virtual GPU is to know about sharing.
nlohmann::json SessionManager::sharing_config(const VgpuSpec& spec) const {
  nlohmann::json result = {{"sharing", to_text(spec.sharing)}, {"planning", to_text(planning_mode_)}};
  std::vector<VgpuSpec> all;
  for (const auto& [name, supervisor] : supervisors_) all.push_back(supervisor->spec());
  result["sms"] = to_text(sm_part(spec, all, config_.device));
  result["mps_priority"] = to_text(mps_priority(spec.latency_us, spec.priority));
  if (!mps_) return result;
  const MpsState& state = mps_->state();
  result["mps"] = {{"directory", state.directory},
                   {"error", state.error},
                   {"lost", state.lost},
                   {"gpu", mps_gpu(config_.device.uuid)}};
  return result;
}

void SessionManager::tell_all() {
  for (const auto& [name, supervisor] : supervisors_) supervisor->tell();
}

void SessionManager::review() {
  if (!mps_) return;
  mps_->want(std::any_of(supervisors_.begin(), supervisors_.end(),
                         [](const auto& entry) { return entry.second->spec().sharing == Sharing::kMps; }));
}

void SessionManager::set_planning_mode(PlanningMode mode) {
  planning_mode_ = mode;
  tell_all();
}

nlohmann::json SessionManager::describe_mps() const { return {{"daemon", mps_ ? mps_->describe() : nlohmann::json()}}; }

std::string SessionManager::mps_error() const { return mps_ ? mps_->state().error : ""; }

void SessionManager::add(const VgpuSpec& spec, Ready ready) {
  auto supervisor = std::make_shared<SessionSupervisor>(base_, config_, spec, arbiter_,
                                                        [this](const VgpuSpec& now) { return sharing_config(now); });
  supervisors_[spec.name] = supervisor;
  if (mps_ && spec.sharing == Sharing::kMps) mps_->want(true);
  if (spec.sms > 0) tell_all();
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
    if (supervisor->spec().sms > 0) tell_all();
    done();
  });
}

void SessionManager::remove_all(std::function<void()> done) {
  // The MPS daemon after its clients.
  const std::shared_ptr<void> latch(nullptr, [this, done = std::move(done)](void*) {
    if (mps_) return mps_->stop(done);
    done();
  });
  for (const auto& [name, supervisor] : supervisors_) supervisor->stop(false, [latch] {});
}

void SessionManager::update(const VgpuSpec& spec) {
  const auto found = supervisors_.find(spec.name);
  const bool sms_change = found != supervisors_.end() && found->second->spec().sms != spec.sms;
  if (found != supervisors_.end()) found->second->update(spec);
  if (sms_change) tell_all();
  review();
}

void SessionManager::request(const std::string& name, const nlohmann::json& object, Answer answer) {
  const auto found = supervisors_.find(name);
  if (found == supervisors_.end()) return answer(Status::error(ENOENT, "no session of '{}'", name));
  found->second->request(object, std::move(answer));
}

nlohmann::json SessionManager::describe(const std::string& name) const {
  const auto found = supervisors_.find(name);
  if (found == supervisors_.end()) return {{"state", "none"}, {"pid", 0}, {"restarts", 0}};
  return found->second->describe();
}

}  // namespace bandsaw
