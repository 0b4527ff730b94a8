#include "backend/vgpud/supervisor.h"

#include <nlohmann/json.hpp>

#include "backend/vgpud/session_keeper.h"

namespace bandsaw {

Supervisor::Supervisor(event_base* base, const Config& config, Arbiter* arbiter)
    : base_(base), config_(config), arbiter_(arbiter) {}
Supervisor::~Supervisor() = default;

void Supervisor::add(const VgpuSpec& spec, Ready ready) {
  auto keeper = std::make_shared<SessionKeeper>(base_, config_, spec, arbiter_);
  keepers_[spec.name] = keeper;
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
    done();
  });
}

void Supervisor::remove_all(std::function<void()> done) {
  const std::shared_ptr<void> latch(nullptr, [done = std::move(done)](void*) { done(); });
  for (const auto& [name, keeper] : keepers_) keeper->stop(false, [latch] {});
}

void Supervisor::update(const VgpuSpec& spec) {
  if (const auto found = keepers_.find(spec.name); found != keepers_.end()) found->second->update(spec);
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
