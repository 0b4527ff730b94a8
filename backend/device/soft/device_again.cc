// What a process that was made anew is given again (gives_again.h), beside addresses.
#include <algorithm>

#include "backend/device/soft/graph.h"
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
  const auto all = contexts();
  return memory_->not_given([&all](const void* owner) {
    return std::any_of(all.begin(), all.end(), [owner](const auto& context) { return context.get() == owner; });
  });
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

std::string SoftDevice::not_again(const GraphRef& graph, bool inner) {
  std::lock_guard lock(scheduler_.mutex());
  if (!as(graph).conditions.empty()) return "a graph with conditional nodes";
  const auto& nodes = as(graph).nodes;
  const bool clone = !inner && std::any_of(nodes.begin(), nodes.end(),
                                           [](const SoftNodeRef& node) { return node->original.lock() != nullptr; });
  return clone ? "a copy of a graph" : "";
}

std::string SoftDevice::exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) {
  SoftExec& of = as(exec);
  std::lock_guard lock(of.steps_mutex);
  for (const SoftExec::Step& step : of.steps) {
    if (step.condition) return "a graph with conditional nodes";
    if (step.reservation) return "memory of graphs";
    steps->push_back({copy_content(step.content), step.node, !step.node, step.enabled, step.after});
    steps->back().content.launch.parameters = steps->back().content.parameter_bytes;
  }
  *flags = of.flags;
  return {};
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
  std::vector<bool> followed(steps.size());
  for (const ExecStep& from : steps) {
    SoftExec::Step& step = made->steps.emplace_back();
    const bool bare = from.end || from.content.type == CU_GRAPH_NODE_TYPE_GRAPH;
    if (const CUresult refused = bare ? CUDA_SUCCESS : check_content(from.content)) return refused;
    for (const uint32_t before : from.after) {
      if (before >= made->steps.size() - 1) return CUDA_ERROR_INVALID_VALUE;  // with this one
      followed[before] = true;
    }
    step.content = copy_content(from.content);
    step.enabled = from.enabled;
    step.after = from.after;
    if (from.end) continue;
    // One whose graph has gone, or has no such node any more, is nobody's to change.
    step.node = from.node ? std::static_pointer_cast<SoftNode>(from.node) : std::make_shared<SoftNode>();
  }
  for (uint32_t i = 0; i < followed.size(); ++i) {
    if (!followed[i]) made->leaves.push_back(i);
  }
  if (const CUresult refused = prepare_steps(made->context, made->steps, false)) return refused;
  *exec = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
