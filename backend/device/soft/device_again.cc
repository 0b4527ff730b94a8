// What a process that was made anew is given again (gives_again.h), beside addresses.
#include <algorithm>

#include "backend/device/soft/conditional.h"
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

std::string SoftDevice::not_given() {
  {
    std::lock_guard lock(pointing_mutex_);
    for (const auto& [weak, name] : pointing_) {
      const auto image = weak.lock();
      if (!image) continue;
      std::lock_guard managed(image->managed_mutex);
      if (!image->managed_ready.contains(name)) return "a managed variable that nothing has used yet";
    }
  }
  return memory_->not_given();
}

std::string SoftDevice::reserved(std::vector<ReservedAgain>* all) {
  *all = reservations_.all();
  const bool elsewhere = std::any_of(all->begin(), all->end(), [this](const ReservedAgain& one) {
    return memory_->is_elsewhere(one.address, one.bytes);
  });
  return elsewhere ? "addresses of another virtual GPU" : "";
}

uint64_t SoftDevice::memory_key(const MemoryRef& memory, uint64_t* bytes) {
  const auto& physical = static_cast<const PhysicalMemory&>(*memory);
  *bytes = physical.bytes;
  return physical.own_key();
}

CUresult SoftDevice::memory_make(uint64_t key, uint64_t bytes, MemoryRef* memory) {
  if (const CUresult error = scheduler_.error()) return error;
  return with_room([&] { return PhysicalMemory::again(memory_, key, bytes, memory); });
}

SharedByGraphs SoftDevice::shared_by_graphs() {
  SharedByGraphs shared{memory_->graph_memory(), {}};
  std::scoped_lock lock(scheduler_.mutex(), conditions_mutex_);
  for (const auto& [handle, weak] : conditions_) {
    const auto condition = weak.lock();
    if (!condition) continue;
    shared.conditions.push_back({handle, condition->initial, condition->value, condition->assigns, condition->used});
  }
  return shared;
}

CUresult SoftDevice::make_shared_by_graphs(const SharedByGraphs& shared) {
  std::scoped_lock lock(again_mutex_, conditions_mutex_);
  for (const GraphMemoryAgain& one : shared.memory) {
    if (const CUresult refused = memory_->reserve_again(one)) return refused;
    memory_again_[one.address] = graph_memory(one.address);
  }
  for (const ConditionAgain& one : shared.conditions) {
    auto made = std::make_shared<Condition>(one.initial, one.assigns != 0);
    made->value = one.value;
    made->used = one.used != 0;
    if (one.handle == 0 || !conditions_.try_emplace(one.handle, made).second) return CUDA_ERROR_INVALID_VALUE;
    next_condition_ = std::max(next_condition_, one.handle + 1);
    conditions_again_.push_back(std::move(made));
  }
  return CUDA_SUCCESS;
}

void SoftDevice::end_shared_by_graphs() {
  std::lock_guard lock(again_mutex_);
  memory_again_.clear();
  conditions_again_.clear();
}

std::shared_ptr<void> SoftDevice::graph_memory_again(uint64_t address) {
  std::lock_guard lock(again_mutex_);
  const auto found = memory_again_.find(address);
  return found != memory_again_.end() ? found->second : nullptr;
}

std::shared_ptr<Condition> SoftDevice::condition_again(uint64_t handle) {
  std::lock_guard lock(conditions_mutex_);
  const auto found = conditions_.find(handle);
  return found != conditions_.end() ? found->second.lock() : nullptr;
}

std::vector<uint64_t> SoftDevice::conditions_of(const GraphRef& graph) {
  std::lock_guard lock(scheduler_.mutex());
  std::vector<uint64_t> handles;
  for (const auto& [handle, condition] : as(graph).conditions) handles.push_back(handle);
  return handles;
}

CUresult SoftDevice::set_conditions(const GraphRef& graph, std::span<const uint64_t> handles) {
  for (const uint64_t handle : handles) {
    auto condition = condition_again(handle);
    if (!condition) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(scheduler_.mutex());
    as(graph).conditions[handle] = std::move(condition);
  }
  return CUDA_SUCCESS;
}

NodeRef SoftDevice::original_of(const NodeRef& node) {
  std::lock_guard lock(scheduler_.mutex());
  return as(node).original.lock();
}

void SoftDevice::set_original(const NodeRef& node, const NodeRef& original) {
  std::lock_guard lock(scheduler_.mutex());
  as(node).original = std::static_pointer_cast<SoftNode>(original);
}

namespace {

std::vector<ExecStep> steps_of(const std::vector<SoftExec::Step>& from) {
  std::vector<ExecStep> steps;
  for (const SoftExec::Step& step : from) {
    ExecStep& made = steps.emplace_back();
    made.content = copy_content(step.content);
    made.content.launch.parameters = made.content.parameter_bytes;
    made.node = step.node;
    made.end = !step.node;
    made.enabled = step.enabled;
    made.after = step.after;
    for (const auto& body : step.bodies) made.bodies.push_back(steps_of(body->steps));
  }
  return steps;
}

}  // namespace

void SoftDevice::exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) {
  SoftExec& of = as(exec);
  std::lock_guard lock(of.steps_mutex);
  *steps = steps_of(of.steps);
  *flags = of.flags;
}

CUresult SoftDevice::step_again(const SoftContextRef& context, const ExecStep& from, size_t at, SoftExec::Step* step,
                                int depth) {
  const bool bare = from.end || from.content.type == CU_GRAPH_NODE_TYPE_GRAPH;
  if (const CUresult refused = bare ? CUDA_SUCCESS : check_content(from.content)) return refused;
  if (std::any_of(from.after.begin(), from.after.end(), [at](uint32_t before) { return before >= at; })) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  step->content = copy_content(from.content);
  step->enabled = from.enabled;
  step->after = from.after;
  if (from.content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    step->reservation = graph_memory_again(from.content.address);
    if (!step->reservation) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool conditional = from.content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  if (conditional) {
    step->condition = condition_again(from.content.conditional.handle);
    if (!step->condition || from.bodies.size() != from.content.conditional.size) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const std::vector<ExecStep>& body : from.bodies) {
    auto made = std::make_shared<ExecBody>();
    if (!conditional) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = steps_again(context, body, &made->steps, &made->leaves, depth + 1)) return refused;
    step->bodies.push_back(std::move(made));
  }
  // One whose graph has gone, or has no such node any more, is nobody's to change.
  if (!from.end) {
    step->node = from.node ? std::static_pointer_cast<SoftNode>(from.node) : std::make_shared<SoftNode>();
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::steps_again(const SoftContextRef& context, std::span<const ExecStep> from,
                                 std::vector<SoftExec::Step>* steps, std::vector<uint32_t>* leaves, int depth) {
  constexpr int kDepthMost = 32;
  if (depth > kDepthMost) return CUDA_ERROR_INVALID_VALUE;
  std::vector<bool> followed(from.size());
  for (const ExecStep& one : from) {
    const size_t at = steps->size();
    if (const CUresult refused = step_again(context, one, at, &steps->emplace_back(), depth)) return refused;
    for (const uint32_t before : one.after) followed[before] = true;
  }
  for (uint32_t i = 0; i < followed.size(); ++i) {
    if (!followed[i]) leaves->push_back(i);
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                               ExecRef* exec) {
  if (const CUresult error = scheduler_.error()) return error;
  constexpr uint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                              CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<SoftExec>();
  made->context = as(context);
  made->flags = flags;
  if (const CUresult refused = steps_again(made->context, steps, &made->steps, &made->leaves, 0)) return refused;
  if (const CUresult refused = prepare_steps(made->context, made->steps, false)) return refused;
  *exec = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
