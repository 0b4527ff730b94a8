// Conditional nodes: handles, bodies, and running them.
#include <algorithm>

#include "backend/device/given.h"
#include "backend/device/soft/conditional.h"
#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

// What a body may hold, as CUDA says.
bool may_be_in_body(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_GRAPH ||
         type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool has_kernel(const ExecBody& body) {
  return std::any_of(body.steps.begin(), body.steps.end(), [](const SoftExec::Step& step) {
    return step.enabled && step.content.type == CU_GRAPH_NODE_TYPE_KERNEL;
  });
}

// Those of bodies too: a default is for the launch, not for each time that a body begins.
void add_conditions(const std::vector<SoftExec::Step>& steps, std::vector<std::shared_ptr<Condition>>* to) {
  for (const SoftExec::Step& step : steps) {
    if (step.condition) to->push_back(step.condition);
    for (const auto& body : step.bodies) add_conditions(body->steps, to);
  }
}

}  // namespace

CUresult SoftDevice::graph_conditional(const ContextRef&, const GraphRef& graph, uint32_t initial, uint32_t flags,
                                       uint64_t* handle) {
  if (const CUresult error = scheduler_.error()) return error;
  if (flags & ~uint32_t{CU_GRAPH_COND_ASSIGN_DEFAULT}) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Condition>(initial, flags != 0);
  {
    std::lock_guard lock(conditions_mutex_);
    std::erase_if(conditions_, [](const auto& entry) { return entry.second.expired(); });
    *handle = next_condition_++;
    conditions_[*handle] = made;
  }
  std::lock_guard lock(scheduler_.mutex());
  as(graph).conditions[*handle] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::node_bodies(const NodeRef& node, std::vector<GraphRef>* bodies) {
  std::lock_guard lock(scheduler_.mutex());
  bodies->assign(as(node).bodies.begin(), as(node).bodies.end());
  return as(node).condition ? scheduler_.error() : CUDA_ERROR_INVALID_VALUE;
}

void SoftDevice::set_condition(uint64_t handle, uint32_t value) {
  std::lock_guard lock(conditions_mutex_);
  const auto found = conditions_.find(handle);
  if (found == conditions_.end()) return;
  if (const auto condition = found->second.lock()) condition->value = value;
}

// With the mutex held. The node gets graphs of its own, which the program fills.
CUresult SoftDevice::make_conditional(SoftGraph& graph, SoftNode* node) {
  const vgpu_conditional_node& asked = node->content.conditional;
  const auto found = graph.conditions.find(asked.handle);
  const Given* const given = Given::current();
  const bool again = given && given->again();  // copies of a graph have the same conditions
  if (found == graph.conditions.end() || (found->second->used && !again)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t most = asked.type == CU_GRAPH_COND_TYPE_IF      ? 2
                        : asked.type == CU_GRAPH_COND_TYPE_WHILE ? 1
                                                                 : VGPU_CONDITIONAL_BODIES_MAX;
  if (asked.type > CU_GRAPH_COND_TYPE_SWITCH || asked.size == 0 || asked.size > most) return CUDA_ERROR_INVALID_VALUE;
  found->second->used = true;
  node->condition = found->second;
  for (uint32_t i = 0; i < asked.size; ++i) node->bodies.push_back(std::make_shared<SoftGraph>());
  return CUDA_SUCCESS;
}

// Kernels of all steps are compiled, all at once, and checked.
CUresult SoftDevice::prepare_steps(const SoftContextRef& context, const std::vector<SoftExec::Step>& steps, bool body) {
  for (const SoftExec::Step& step : steps) {
    if (step.content.type == CU_GRAPH_NODE_TYPE_KERNEL) is_compiled(context, step.content.launch.code);
    if (body && !may_be_in_body(step.content.type)) {
      log::warn("the body of a conditional node holds a node of type {}, which CUDA allows in none",
                static_cast<int>(step.content.type));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  for (const SoftExec::Step& step : steps) {
    for (const auto& inner : step.bodies) {
      if (const CUresult refused = prepare_steps(context, inner->steps, true)) return refused;
    }
    LaunchPlan plan;
    if (step.content.type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    if (const CUresult refused = plan_launch(context, step.content.launch, &plan)) return refused;
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::make_step(const SoftContextRef& context, int priority, const SoftExec::Step& step, OpRef* op) {
  if (!step.enabled) {
    *op = std::make_shared<CallOp>(context, nullptr);
    return CUDA_SUCCESS;
  }
  if (!step.condition) return make_op(context, priority, step.content, op);
  *op = std::make_shared<ConditionalOp>(*this, context, priority, step);
  return CUDA_SUCCESS;
}

OpRef SoftDevice::begin_steps(const SoftContextRef& context, const std::vector<SoftExec::Step>& steps) {
  std::vector<std::shared_ptr<Condition>> conditions;
  add_conditions(steps, &conditions);
  return std::make_shared<CallOp>(context, [conditions = std::move(conditions)] {
    for (const auto& condition : conditions) condition->begin();
    return CUDA_SUCCESS;
  });
}

CUresult SoftDevice::run_body(const SoftContextRef& context, int priority, const ExecBody& body, Done done) {
  Ops ops;
  for (const SoftExec::Step& step : body.steps) {
    OpRef op;
    if (const CUresult refused = make_step(context, priority, step, &op)) return refused;
    ops.push_back(std::move(op));
  }
  const OpRef first = std::make_shared<CallOp>(context, nullptr), end = std::make_shared<CallOp>(context, nullptr);
  end->done = std::move(done);
  {
    std::lock_guard lock(scheduler_.mutex());
    if (!scheduler_.link(first, {})) log::critical("the body of a conditional node is not ready");
    link_steps(body.steps, body.leaves, context, ops, first, end);
  }
  scheduler_.start(first);
  return CUDA_SUCCESS;
}

const ExecBody* ConditionalOp::chosen() const {
  const uint32_t value = condition_->value;
  size_t index = value;
  if (type_ == CU_GRAPH_COND_TYPE_IF) index = value ? 0 : 1;
  if (type_ == CU_GRAPH_COND_TYPE_WHILE) index = value ? 0 : bodies_.size();
  return index < bodies_.size() ? bodies_[index].get() : nullptr;
}

bool ConditionalOp::start(Scheduler& scheduler, CUresult* status) { return !go_on(scheduler, status); }

bool ConditionalOp::go_on(Scheduler& scheduler, CUresult* status) {
  const ExecBody* const body = chosen();
  if (cancelled_) *status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!body || cancelled_) return false;
  auto self = std::static_pointer_cast<ConditionalOp>(shared_from_this());
  // Where a body has a kernel, its end comes from another stack: the next round may begin on it.
  const bool shallow = has_kernel(*body);
  const CUresult refused = device_.run_body(context(), priority_, *body, [self, &scheduler, shallow](CUresult result) {
    self->body_ended(scheduler, result, !shallow);
  });
  if (!refused) return true;
  log::error("the body of a conditional node cannot run: error {}", static_cast<int>(refused));
  scheduler.poison(CUDA_ERROR_LAUNCH_FAILED);
  *status = scheduler.error();
  return false;
}

void ConditionalOp::body_ended(Scheduler& scheduler, CUresult status, bool deep) {
  auto self = shared_from_this();
  if (status || type_ != CU_GRAPH_COND_TYPE_WHILE) return scheduler.finish(std::move(self), status);
  if (!deep) {
    if (!go_on(scheduler, &status)) scheduler.finish(std::move(self), status);
    return;
  }
  // Else rounds of nothing but short steps would lie on one stack: another thread begins the next.
  const OpRef next = std::make_shared<CallOp>(context(), nullptr);
  next->done = [this, self, &scheduler](CUresult result) mutable {
    if (result || !go_on(scheduler, &result)) scheduler.finish(std::move(self), result);
  };
  bool ready;
  {
    std::lock_guard lock(scheduler.mutex());
    ready = scheduler.link(next, {});
  }
  if (ready) scheduler.poll({next, [](CUresult*) { return true; }});
}

}  // namespace bandsaw::soft
