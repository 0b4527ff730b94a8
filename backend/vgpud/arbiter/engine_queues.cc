#include "backend/vgpud/arbiter/engine_queues.h"

#include <algorithm>

namespace bandsaw {

EngineQueues::EngineQueues(const ArbiterOptions* options, GrantTable* table) : options_(options), table_(table) {
  restart({}, 0);
}

void EngineQueues::restart(const sched::SharingRules& rules, sched::Time now) {
  waiting_.clear();
  const sched::SchedulerOptions scheduler{options_->model, options_->depth, options_->period_ns};
  sched::PolicyOptions policy;
  policy.period = options_->period_ns;
  policy.wait = options_->wait_ns;
  scheduler_ =
      std::make_unique<sched::Scheduler>(scheduler, [&] { return sched::make_policy(options_->policy, policy); });
  scheduler_->set_rules(rules);
  for (const VgpuState& vgpu : table_->all()) add(vgpu, now);
}

// The scheduler adds a virtual GPU with one share for all queues. The smallest of its shares fits every queue, because
// the sums were checked; then each queue gets its own.
void EngineQueues::add(const VgpuState& vgpu, sched::Time now) {
  sched::Share least;
  least.percent = 100;
  for (unsigned queue = 0; queue < table_->queues(); ++queue)
    least.percent = std::min(least.percent, vgpu.shares[queue].percent);
  (void)scheduler_->add(vgpu.id, least, now);
  set_shares(vgpu, now);
  set_mps(vgpu, now);
}

void EngineQueues::set_shares(const VgpuState& vgpu, sched::Time now) {
  for (unsigned queue = 0; queue < table_->queues(); ++queue)
    (void)scheduler_->set_share(vgpu.id, static_cast<Engine>(queue), vgpu.shares[queue], now);
}

void EngineQueues::set_mps(const VgpuState& vgpu, sched::Time now) {
  for (unsigned queue = 0; queue < table_->queues(); ++queue)
    (void)scheduler_->set_mps(vgpu.id, static_cast<Engine>(queue), table_->goes_beside(vgpu, queue), now);
}

void EngineQueues::remove(const VgpuState& vgpu, sched::Time now) { (void)scheduler_->remove(vgpu.id, now); }

void EngineQueues::ask(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  const GateState& state = vgpu.slots[slot][engine];
  const sched::Request request{.id = state.ask.id,
                               .vgpu = vgpu.id,
                               .engine = static_cast<Engine>(engine),
                               .estimate = 0,
                               .priority = options_->process_priorities ? table_->priority_at(vgpu, slot, engine) : 0};
  if (scheduler_->arrival(request, now) != sched::Error::kNone) return table_->grant(vgpu, slot, engine, {}, now);
  waiting_[request.id] = {&vgpu, slot, engine};
}

std::optional<EngineQueues::Place> EngineQueues::find(sched::RequestId id) const {
  const auto found = waiting_.find(id);
  return found == waiting_.end() ? std::nullopt : std::optional(found->second);
}

void EngineQueues::cancel(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time now) {
  (void)scheduler_->cancel(vgpu.id, static_cast<Engine>(engine), id, now);
  waiting_.erase(id);
}

void EngineQueues::grant(const sched::Request& request, sched::Time now) {
  const auto place = find(request.id);
  if (!place) return;
  let_go(request.id);
  table_->grant(*place->vgpu, place->slot, place->engine, {}, now);
}

std::optional<sched::RequestId> EngineQueues::take_lease(const VgpuState& vgpu, Queue queue, sched::Time now) {
  const sched::Request request{.id = new_id(),
                               .vgpu = vgpu.id,
                               .engine = static_cast<Engine>(queue),
                               .estimate = options_->period_ns,
                               .priority = 0};
  if (scheduler_->arrival(request, now) != sched::Error::kNone) return std::nullopt;
  const sched::Answer answer = scheduler_->next(request.engine, now);
  const bool goes = answer.kind == sched::Answer::Kind::kDispatch;
  if (goes && answer.request.id == request.id) return request.id;
  (void)scheduler_->cancel(vgpu.id, request.engine, request.id, now);
  if (goes) grant(answer.request, now);
  return std::nullopt;
}

sched::Answer EngineQueues::next(Queue queue, sched::Time now) {
  return scheduler_->next(static_cast<Engine>(queue), now);
}

void EngineQueues::complete(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time charged,
                            sched::Time now) {
  (void)scheduler_->completion(vgpu.id, static_cast<Engine>(engine), id, charged, now);
  free_since_[table_->queue_of(engine)] = now;
}

void EngineQueues::retract(const VgpuState& vgpu, unsigned engine, sched::RequestId id, sched::Time now) {
  (void)scheduler_->completion(vgpu.id, static_cast<Engine>(engine), id, 0, now);
}

}  // namespace bandsaw
