#include "backend/vgpud/sessions/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/vgpud/arbiter/partitions.h"
#include "backend/vgpud/mps/mps_daemon.h"
#include "backend/vgpud/sessions/session_keeper.h"

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

Supervisor::Supervisor(event_base* base, const Config& config, Arbiter* arbiter)
    : base_(base), config_(config), arbiter_(arbiter), planning_mode_(config.planning_mode) {
  mps_ = make_mps(base, config, [this] { tell_all(); });
  if (!mps_) return;
  fault_timer_.reset(event_new(
      base_, -1, EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Supervisor*>(self)->look_for_faults(); }, this));
  const timeval interval{0, kFaultIntervalUs};
  event_add(fault_timer_.get(), &interval);
}

Supervisor::~Supervisor() = default;

// Who faults takes all clients of the MPS daemon along, and those that wait warm do not notice.
void Supervisor::look_for_faults() {
  for (const auto& [name, keeper] : keepers_) {
    if (keeper->spec().sharing != Sharing::kMps || !keeper->running()) continue;
    keeper->request({{"op", "faulted"}}, [this, vgpu = name](const Result<nlohmann::json>& reply) {
      const auto mps = reply.ok() ? reply.value().value("mps", std::string()) : "";
      if (mps.empty() || mps != mps_->state().directory) return;
      mps_->replace(fmt::format(
          "a program on '{}' has had a fault on the GPU, which ends the programs of all MPS virtual GPUs", vgpu));
    });
  }
}

// What the session of a virtual GPU is to know about sharing.
nlohmann::json Supervisor::orders(const VgpuSpec& spec) const {
  nlohmann::json result = {{"sharing", to_text(spec.sharing)}, {"planning", to_text(planning_mode_)}};
  std::vector<VgpuSpec> all;
  for (const auto& [name, keeper] : keepers_) all.push_back(keeper->spec());
  result["sms"] = to_text(sm_part(spec, all, config_.device));
  if (!mps_) return result;
  const MpsState& state = mps_->state();
  result["mps"] = {{"directory", state.directory},
                   {"error", state.error},
                   {"lost", state.lost},
                   {"gpu", mps_gpu(config_.device.uuid)}};
  return result;
}

void Supervisor::tell_all() {
  for (const auto& [name, keeper] : keepers_) keeper->tell();
}

void Supervisor::review() {
  if (!mps_) return;
  mps_->want(std::any_of(keepers_.begin(), keepers_.end(),
                         [](const auto& entry) { return entry.second->spec().sharing == Sharing::kMps; }));
}

void Supervisor::set_planning_mode(PlanningMode mode) {
  planning_mode_ = mode;
  tell_all();
}

nlohmann::json Supervisor::describe_mps() const {
  return {{"planning", to_text(planning_mode_)}, {"daemon", mps_ ? mps_->describe() : nlohmann::json()}};
}

std::string Supervisor::mps_error() const { return mps_ ? mps_->state().error : ""; }

void Supervisor::add(const VgpuSpec& spec, Ready ready) {
  auto keeper = std::make_shared<SessionKeeper>(base_, config_, spec, arbiter_,
                                                [this](const VgpuSpec& now) { return orders(now); });
  keepers_[spec.name] = keeper;
  if (mps_ && spec.sharing == Sharing::kMps) mps_->want(true);
  if (spec.sms > 0) tell_all();
  keeper->start(std::move(ready));
}

void Supervisor::remove(const std::string& name, std::function<void()> done) {
  const auto found = keepers_.find(name);
  if (found == keepers_.end()) return done();
  const auto keeper = found->second;
  // The keeper may be in the middle of its own work when it tells; it goes with the last reference.
  keeper->stop(true, [this, keeper, name, done = std::move(done)] {
    if (const auto entry = keepers_.find(name); entry != keepers_.end() && entry->second == keeper)
      keepers_.erase(entry);
    review();
    if (keeper->spec().sms > 0) tell_all();
    done();
  });
}

void Supervisor::remove_all(std::function<void()> done) {
  // The MPS daemon after its clients.
  const std::shared_ptr<void> latch(nullptr, [this, done = std::move(done)](void*) {
    if (mps_) return mps_->stop(done);
    done();
  });
  for (const auto& [name, keeper] : keepers_) keeper->stop(false, [latch] {});
}

void Supervisor::update(const VgpuSpec& spec) {
  const auto found = keepers_.find(spec.name);
  const bool sms_change = found != keepers_.end() && found->second->spec().sms != spec.sms;
  if (found != keepers_.end()) found->second->update(spec);
  if (sms_change) tell_all();
  review();
}

void Supervisor::request(const std::string& name, const nlohmann::json& object, Answer answer) {
  const auto found = keepers_.find(name);
  if (found == keepers_.end()) return answer(Status::error(ENOENT, "no session of '{}'", name));
  found->second->request(object, std::move(answer));
}

nlohmann::json Supervisor::describe(const std::string& name) const {
  const auto found = keepers_.find(name);
  if (found == keepers_.end()) return {{"state", "none"}, {"pid", 0}, {"restarts", 0}};
  return found->second->describe();
}

}  // namespace bandsaw
