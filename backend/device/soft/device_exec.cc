// Executable graphs: instantiating, updating, launching.
#include <algorithm>
#include <unordered_set>

#include "backend/device/soft/conditional.h"
#include "backend/device/soft/graph.h"
#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

bool can_disable(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET;
}

SoftExec::Step* find_step(SoftExec& exec, const NodeRef& node) {
  for (SoftExec::Step& step : exec.steps) {
    if (step.node && step.node == node) return &step;
  }
  return nullptr;
}

// Whether an executable node of content `from` may take `to`.
CUgraphExecUpdateResult compare(const NodeContent& from, const NodeContent& to) {
  if (from.type != to.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  switch (from.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (from.copy.destination.host != to.copy.destination.host || from.copy.source.host != to.copy.source.host) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      }
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return from.launch.cooperative == to.launch.cooperative ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                              : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return from.address == to.address ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default:
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

// As far as it decides what may run at all.
bool same_bodies(const SoftExec::Step& from, const SoftExec::Step& to) {
  return std::equal(from.bodies.begin(), from.bodies.end(), to.bodies.begin(), to.bodies.end(),
                    [](const auto& one, const auto& other) {
                      return std::equal(one->steps.begin(), one->steps.end(), other->steps.begin(), other->steps.end(),
                                        [](const SoftExec::Step& a, const SoftExec::Step& b) {
                                          return a.content.type == b.content.type && a.after == b.after &&
                                                 same_bodies(a, b);
                                        });
                    });
}

void take_content(const SoftExec::Step& from, SoftExec::Step* to) {
  to->content = copy_content(from.content);
  to->condition = from.condition;
  to->bodies = from.bodies;
}

}  // namespace

CUresult SoftDevice::graph_instantiate(const ContextRef& context, const GraphRef& graph, uint64_t flags,
                                       ExecRef* exec) {
  if (const CUresult error = scheduler_.error()) return error;
  constexpr uint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                              CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
    log::warn("graphs launched from kernels are not implemented");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto made = std::make_shared<SoftExec>();
  made->context = as(context);
  made->flags = flags;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (as(graph).has_cycle()) return CUDA_ERROR_INVALID_VALUE;
    made->leaves = unfold(as(graph), -1, &made->steps);
  }
  // Now, rather than at the first launch.
  if (const CUresult refused = prepare_steps(made->context, made->steps, false)) return refused;
  *exec = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_update(const ExecRef& exec, const GraphRef& graph, CUgraphExecUpdateResult* result,
                                 NodeRef* error_node) {
  *result = CU_GRAPH_EXEC_UPDATE_ERROR;
  if (error_node) error_node->reset();
  if (const CUresult error = scheduler_.error()) return error;
  std::scoped_lock lock(as(exec).steps_mutex, scheduler_.mutex());
  std::vector<SoftExec::Step> steps;
  unfold(as(graph), -1, &steps);
  std::vector<SoftExec::Step>& old = as(exec).steps;
  if (steps.size() != old.size()) {
    *result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    std::sort(steps[i].after.begin(), steps[i].after.end());
    std::vector<uint32_t> after = old[i].after;
    std::sort(after.begin(), after.end());
    *result = after == steps[i].after && same_bodies(old[i], steps[i]) ? compare(old[i].content, steps[i].content)
                                                                       : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    const bool child = steps[i].content.type == CU_GRAPH_NODE_TYPE_GRAPH;  // unfolded: its nodes are steps of their own
    if (*result == CU_GRAPH_EXEC_UPDATE_SUCCESS && steps[i].node && !child && check_content(steps[i].content)) {
      *result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (*result == CU_GRAPH_EXEC_UPDATE_SUCCESS) continue;
    if (error_node) *error_node = steps[i].node;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < steps.size(); ++i) take_content(steps[i], &old[i]);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_node_set(const ExecRef& exec, const NodeRef& node, const NodeContent& content) {
  if (const CUresult error = scheduler_.error()) return error;
  std::scoped_lock lock(as(exec).steps_mutex, scheduler_.mutex());
  SoftExec::Step* step = find_step(as(exec), node);
  if (!step || compare(step->content, content) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (content.type == CU_GRAPH_NODE_TYPE_GRAPH) return set_child(as(exec), *step, content);
  if (const CUresult refused = check_content(content)) return refused;
  step->content = copy_content(content);
  return CUDA_SUCCESS;
}

// A child graph of the same shape: its nodes' contents replace those that were unfolded after its step.
CUresult SoftDevice::set_child(SoftExec& exec, SoftExec::Step& step, const NodeContent& content) {
  if (!content.child) return CUDA_ERROR_INVALID_VALUE;
  std::vector<SoftExec::Step> steps;
  unfold(as(content.child), -1, &steps);
  const size_t first = static_cast<size_t>(&step - exec.steps.data()) + 1;
  if (exec.steps.size() - first < steps.size() + 1) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < steps.size(); ++i) {
    const SoftExec::Step& old = exec.steps[first + i];
    const bool root = steps[i].after.empty();
    if (compare(old.content, steps[i].content) != CU_GRAPH_EXEC_UPDATE_SUCCESS || !same_bodies(old, steps[i]) ||
        old.after.size() != (root ? 1 : steps[i].after.size())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t k = 0; !root && k < old.after.size(); ++k) {
      if (old.after[k] != steps[i].after[k] + first) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (exec.steps[first + steps.size()].node) return CUDA_ERROR_INVALID_VALUE;  // the old child had more nodes
  for (size_t i = 0; i < steps.size(); ++i) take_content(steps[i], &exec.steps[first + i]);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_node_enable(const ExecRef& exec, const NodeRef& node, bool enabled) {
  if (const CUresult error = scheduler_.error()) return error;
  std::scoped_lock lock(as(exec).steps_mutex, scheduler_.mutex());
  SoftExec::Step* step = find_step(as(exec), node);
  if (!step || !can_disable(step->content.type)) return CUDA_ERROR_INVALID_VALUE;
  step->enabled = enabled;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_node_enabled(const ExecRef& exec, const NodeRef& node, bool* enabled) {
  if (const CUresult error = scheduler_.error()) return error;
  std::scoped_lock lock(as(exec).steps_mutex, scheduler_.mutex());
  const SoftExec::Step* step = find_step(as(exec), node);
  if (!step || !can_disable(step->content.type)) return CUDA_ERROR_INVALID_VALUE;
  *enabled = step->enabled;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::make_op(const SoftContextRef& context, int priority, const NodeContent& content, OpRef* op) {
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      Launch launch = content.launch;
      launch.parameters = content.parameter_bytes;
      return make_launch(context, priority, launch, op);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return make_copy(context, priority, content.copy, op);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return make_fill(context, priority, content.fill, op);
    case CU_GRAPH_NODE_TYPE_HOST:
      *op = std::make_shared<HostOp>(context, content.host, host_);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      *op = std::make_shared<RecordOp>(context);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      *op = std::make_shared<CallOp>(
          context,
          [memory = memory_, address = content.address] {
            memory->drop_claim(address);
            return CUDA_SUCCESS;
          },
          true);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      std::vector<ValueStep> steps;
      if (const CUresult refused = value_steps(content, &steps)) return refused;
      *op = std::make_shared<WaitValueOp>(context, std::move(steps));
      break;
    }
    default:  // MEM_ALLOC too: the launch claimed its pages
      *op = std::make_shared<CallOp>(context, nullptr);
      break;
  }
  return CUDA_SUCCESS;
}

// Pages for all that a launch will allocate, or for nothing: a launch that has begun cannot fail for want of memory.
CUresult SoftDevice::claim_pages(const SoftExec& exec) {
  std::vector<uint64_t> claimed;
  for (const auto& step : exec.steps) {
    if (step.content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    if (const CUresult refused = memory_->claim(step.content.address)) {
      for (const uint64_t address : claimed) memory_->drop_claim(address);
      return refused;
    }
    claimed.push_back(step.content.address);
  }
  return CUDA_SUCCESS;
}

// The program's memory after this launch: what the graph allocates and does not free is live.
CUresult SoftDevice::claim_allocations(SoftExec& exec, Ops* before) {
  std::unordered_set<uint64_t> freed;
  for (const auto& step : exec.steps) {
    if (step.content.type == CU_GRAPH_NODE_TYPE_MEM_FREE) freed.insert(step.content.address);
  }
  const bool auto_free = exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  for (const auto& step : exec.steps) {
    if (step.content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const auto allocation = memory_->find(step.content.address);
    if (allocation && allocation->live && !auto_free) return CUDA_ERROR_INVALID_VALUE;  // not freed since
  }
  if (const CUresult refused = with_room([&] { return claim_pages(exec); })) return refused;
  for (const auto& step : exec.steps) {
    const uint64_t address = step.content.address;
    if (step.content.type == CU_GRAPH_NODE_TYPE_MEM_FREE) memory_->set_live(address, false);
    if (step.content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    if (auto_free && memory_->set_live(address, false) == CUDA_SUCCESS) {
      before->push_back(std::make_shared<CallOp>(
          exec.context,
          [memory = memory_, address] {
            memory->drop_claim(address);
            return CUDA_SUCCESS;
          },
          true));
    }
    if (!freed.contains(address)) memory_->set_live(address, true);
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::exec_launch(const ExecRef& exec, const StreamRef& stream) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  SoftExec& launched = as(exec);
  if (on.context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  std::lock_guard steps_lock(launched.steps_mutex);
  Ops ops;
  for (const SoftExec::Step& step : launched.steps) {
    OpRef op;
    if (const CUresult refused = make_step(launched.context, on.priority, step, &op)) return refused;
    ops.push_back(std::move(op));
  }
  OpRef begin = begin_steps(on.context, launched.steps), end = std::make_shared<CallOp>(on.context, nullptr);
  // The operations use memory that the executable graph holds.
  end->done = [exec](CUresult) {};
  bool ready;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) return capture_exec(launched, on);
    if (const CUresult refused = check_capture(on)) return refused;
    Ops frees;
    if (const CUresult refused = claim_allocations(launched, &frees)) return refused;
    Ops after;
    follow(on, &after);
    after.push_back(launched.last);
    ready = scheduler_.link(begin, after);
    OpRef first = begin;
    for (const OpRef& free : frees) {
      const bool early = scheduler_.link(free, std::span(&first, 1));
      (void)early;  // `begin` has not run
      first = free;
    }
    link_steps(launched.steps, launched.leaves, launched.context, ops, first, end);
    launched.last = end;
    on.tail = end;
  }
  if (ready) scheduler_.start(std::move(begin));
  return CUDA_SUCCESS;
}

// A captured launch is a child graph.
CUresult SoftDevice::capture_exec(SoftExec& exec, SoftStream& stream) {
  const auto conditional = [](const SoftExec::Step& step) { return step.condition != nullptr; };
  if (std::any_of(exec.steps.begin(), exec.steps.end(), conditional)) {
    log::warn("capturing the launch of a graph with conditional nodes is not implemented");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_GRAPH;
  content.child = fold(exec);
  return capture_node(stream, content, nullptr);
}

// With the mutex held: every step follows its dependencies, roots follow `first`, `end` follows the leaves. Nothing
// is ready here, because `first` has not run.
void SoftDevice::link_steps(const std::vector<SoftExec::Step>& steps, const std::vector<uint32_t>& leaves,
                            const SoftContextRef& context, const Ops& ops, const OpRef& first, const OpRef& end) {
  bool ready = false;
  for (size_t i = 0; i < ops.size(); ++i) {
    const SoftExec::Step& step = steps[i];
    Ops after;
    for (const uint32_t index : step.after) after.push_back(ops[index]);
    if (after.empty()) after.push_back(first);
    if (step.content.event) {
      SoftEvent& event = as(step.content.event);
      if (step.content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        const OpRef record = awaited_record(context, event);
        if (record && record != event.record) ready |= scheduler_.link(record, std::span(&first, 1));
        after.push_back(record);
      }
      if (step.content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        event.record = std::static_pointer_cast<RecordOp>(ops[i]);
        note_record(event, *event.record);
        event.capture.reset();
      }
    }
    ready |= scheduler_.link(ops[i], after);
  }
  Ops last;
  for (const uint32_t leaf : leaves) last.push_back(ops[leaf]);
  if (last.empty()) last.push_back(first);
  ready |= scheduler_.link(end, last);
  if (ready) log::critical("graph launch: a step was ready before the launch began");
}

// Pages are there only while a launch has the allocation, so what is reserved is what is used.
CUresult SoftDevice::graph_memory_get(CUgraphMem_attribute attribute, uint64_t* value) {
  const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  *value = high ? memory_->graph_high(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) : memory_->graph_bytes();
  return scheduler_.error();
}

CUresult SoftDevice::graph_memory_reset(CUgraphMem_attribute attribute) {
  memory_->reset_graph_high(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
  return scheduler_.error();
}

CUresult SoftDevice::graph_memory_trim() { return scheduler_.error(); }

}  // namespace bandsaw::soft
