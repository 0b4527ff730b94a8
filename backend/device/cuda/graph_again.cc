// Graphs of a process that another one may follow: what their executable forms do is kept beside them, because the
// driver does not tell it, and given again.
#include <algorithm>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

bool is_graph(const ExecStep& step) { return !step.end && step.content.type == CU_GRAPH_NODE_TYPE_GRAPH; }

// Whether an executable graph takes other contents of such a node.
bool can_change(CUgraphNodeType type) { return type != CU_GRAPH_NODE_TYPE_EMPTY && type != CU_GRAPH_NODE_TYPE_GRAPH; }

}  // namespace

// The node of another graph that this one is a copy of. The driver finds copies by what they were made from, and not
// the other way round.
NodeRef CudaDevice::original_of(const NodeRef& node) {
  const CudaGraphRef graph = as(node).graph.lock();
  const CudaGraphRef from = graph ? graph->copy_of.lock() : nullptr;
  if (as(node).original || !from || graph->originals_known.exchange(true)) return as(node).original;
  std::vector<NodeRef> originals;
  if (enter() != CUDA_SUCCESS || graph_nodes(from, false, &originals) != CUDA_SUCCESS) return nullptr;
  for (const NodeRef& original : originals) {
    CUgraphNode twin = nullptr;
    if (driver_->cuGraphNodeFindInClone(&twin, as(original).handle, graph->handle) != CUDA_SUCCESS) continue;
    as(wrap_node(graph, twin)).original = original;
  }
  return as(node).original;
}

void CudaDevice::set_original(const NodeRef& node, const NodeRef& original) { as(node).original = original; }

bool CudaDevice::find_copy(const NodeRef& node, const GraphRef& clone, NodeRef* found) {
  CudaGraph& graph = as(clone);
  std::lock_guard lock(graph.mutex);
  const auto is_copy = [&](const auto& one) { return one.second->original == node; };
  const auto there = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_copy);
  if (there == graph.nodes.end()) return false;
  *found = there->second;
  return true;
}

// Whoever follows could not have it.
void CudaDevice::lose_copy(const ExecRef& exec, const char* words) {
  if (!config_.replaceable) return;
  is_only_here(exec, words);
  std::lock_guard lock(as(exec).mutex);
  as(exec).copy = nullptr;
}

void CudaDevice::keep_copy(const GraphRef& graph, const ExecRef& exec) {
  CudaExec& of = as(exec);
  GraphRef copy;
  std::vector<NodeRef> nodes;
  CUresult result = graph_clone(graph, &copy);
  if (result == CUDA_SUCCESS) result = graph_nodes(graph, false, &nodes);
  for (const NodeRef& node : nodes) {
    NodeRef twin;
    if (result == CUDA_SUCCESS) result = node_find_in_clone(node, copy, &twin);
    of.twins[node.get()] = {node, twin};
  }
  if (result == CUDA_SUCCESS) {
    of.copy = std::static_pointer_cast<CudaGraph>(copy);
  } else {
    log::info("a graph is not copied: {}", driver_->describe(result));
    lose_copy(exec, "an executable graph on a GPU that the driver does not copy");
  }
}

NodeRef CudaDevice::twin_of(const ExecRef& exec, const NodeRef& node) {
  std::lock_guard lock(as(exec).mutex);
  if (!as(exec).copy) return nullptr;
  const auto found = as(exec).twins.find(node.get());
  return found != as(exec).twins.end() ? found->second.second : nullptr;
}

void CudaDevice::copy_changed(const ExecRef& exec, const NodeRef& node, const NodeContent& content) {
  if (!config_.replaceable) return;
  const NodeRef twin = twin_of(exec, node);
  if (twin && node_set(twin, content) == CUDA_SUCCESS) return;
  lose_copy(exec, "an executable graph on a GPU of which a node's graph has changed");
}

void CudaDevice::copy_enabled(const ExecRef& exec, const NodeRef& node, bool enabled) {
  if (!config_.replaceable) return;
  const NodeRef twin = twin_of(exec, node);
  if (!twin) return lose_copy(exec, "an executable graph on a GPU of which a node within a node is off");
  std::lock_guard lock(as(exec).mutex);
  if (enabled) {
    as(exec).disabled.erase(twin.get());
  } else {
    as(exec).disabled.insert(twin.get());
  }
}

// In an order that keeps edges. `before`: the step that a node's graph begins with, and those that end it.
CUresult CudaDevice::add_steps(const GraphRef& graph, CudaExec* exec, std::optional<uint32_t> before,
                               std::vector<uint32_t>* ends, std::vector<ExecStep>* steps) {
  std::vector<NodeRef> nodes;
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  if (const CUresult result = graph_nodes(graph, false, &nodes)) return result;
  if (const CUresult result = graph_edges(graph, &edges)) return result;
  std::map<const Node*, size_t> missing;               // edges to nodes without a step
  std::map<const Node*, std::vector<NodeRef>> next;    // nodes behind each
  std::map<const Node*, std::vector<uint32_t>> after;  // steps
  for (const auto& [from, to] : edges) {
    ++missing[to.get()];
    next[from.get()].push_back(to);
  }
  std::vector<NodeRef> ready;
  for (const NodeRef& node : nodes) {
    if (missing[node.get()] == 0) ready.push_back(node);
  }
  for (size_t at = 0; at < ready.size(); ++at) {
    const NodeRef node = ready[at];
    std::vector<uint32_t>& follows = after[node.get()];
    if (follows.empty() && before) follows.push_back(*before);
    uint32_t last = 0;
    if (const CUresult result = add_step(node, exec, !before, std::move(follows), &last, steps)) return result;
    if (next[node.get()].empty()) ends->push_back(last);
    for (const NodeRef& one : next[node.get()]) {
      after[one.get()].push_back(last);
      if (--missing[one.get()] == 0) ready.push_back(one);
    }
  }
  return ready.size() == nodes.size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CudaDevice::add_step(const NodeRef& node, CudaExec* exec, bool outer, std::vector<uint32_t> after,
                              uint32_t* last, std::vector<ExecStep>* steps) {
  ExecStep step;
  if (const CUresult result = node_get(node, &step.content)) return result;
  step.after = std::move(after);
  if (outer) {
    std::lock_guard lock(exec->mutex);
    step.enabled = !exec->disabled.contains(node.get());
    for (const auto& [original, pair] : exec->twins) {
      if (pair.second == node) step.node = pair.first.lock();
    }
  }
  const GraphRef child = std::exchange(step.content.child, nullptr);
  *last = static_cast<uint32_t>(steps->size());
  steps->push_back(std::move(step));
  if (!child) return CUDA_SUCCESS;
  ExecStep end;
  end.end = true;
  if (const CUresult result = add_steps(child, exec, *last, &end.after, steps)) return result;
  if (end.after.empty()) end.after.push_back(*last);
  *last = static_cast<uint32_t>(steps->size());
  steps->push_back(std::move(end));
  return CUDA_SUCCESS;
}

// A step that cannot be read back says that for the whole (a node of no type).
void CudaDevice::exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) {
  CudaExec& of = as(exec);
  *flags = of.flags;
  steps->clear();
  CudaGraphRef copy;
  {
    std::lock_guard lock(of.mutex);
    copy = of.copy;
  }
  std::vector<uint32_t> ends;
  const CUresult result = copy ? add_steps(copy, &of, {}, &ends, steps) : CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) return;
  log::info("an executable graph does not tell what it does: {}", driver_->describe(result));
  steps->assign(1, {});
  steps->front().content.type = static_cast<CUgraphNodeType>(~0u);
}

// The graph that has just these nodes and edges, if one that lives has; else null.
GraphRef CudaDevice::graph_with(std::span<const ExecStep> steps) {
  CudaGraphRef graph;
  std::vector<NodeRef> node_of(steps.size());  // of steps that begin or end a node
  std::vector<size_t> open;
  std::set<std::pair<const Node*, const Node*>> wanted, there;
  size_t count = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].end) {
      if (open.empty()) return nullptr;
      node_of[i] = node_of[open.back()];
      open.pop_back();
      continue;
    }
    if (open.empty()) {
      const CudaGraphRef of = steps[i].node ? as(steps[i].node).graph.lock() : nullptr;
      if (!of || (graph && of != graph)) return nullptr;
      graph = of;
      node_of[i] = steps[i].node;
      ++count;
      for (const uint32_t before : steps[i].after) wanted.emplace(node_of[before].get(), node_of[i].get());
    }
    if (is_graph(steps[i])) open.push_back(i);
  }
  std::vector<NodeRef> nodes;
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  if (!graph || graph_nodes(graph, false, &nodes) != CUDA_SUCCESS || nodes.size() != count) return nullptr;
  if (graph_edges(graph, &edges) != CUDA_SUCCESS) return nullptr;
  for (const auto& [from, to] : edges) there.emplace(from.get(), to.get());
  return there == wanted ? graph : nullptr;
}

// A graph of its own, with the graphs of its nodes unfolded.
CUresult CudaDevice::make_graph(std::span<const ExecStep> steps, GraphRef* graph, std::vector<NodeRef>* nodes) {
  if (const CUresult result = graph_create(graph)) return result;
  for (const ExecStep& step : steps) {
    std::vector<NodeRef> after;
    for (const uint32_t before : step.after) after.push_back((*nodes)[before]);
    NodeRef& made = nodes->emplace_back();
    uint64_t value = 0;
    const bool bare = step.end || is_graph(step);
    const NodeContent none;
    if (const CUresult result = graph_add_node(*graph, after, bare ? none : step.content, &made, &value)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult CudaDevice::exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                               ExecRef* exec) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto later = [i](uint32_t before) { return before >= i; };
    if (std::any_of(steps[i].after.begin(), steps[i].after.end(), later)) return CUDA_ERROR_INVALID_VALUE;
    if (!steps[i].bodies.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const CUresult result = enter(as(context))) return result;
  GraphRef graph = graph_with(steps);
  const bool lives = graph != nullptr;
  std::vector<NodeRef> nodes;
  CUresult result = lives ? CUDA_SUCCESS : make_graph(steps, &graph, &nodes);
  if (result == CUDA_SUCCESS) result = graph_instantiate(context, graph, flags, exec);
  size_t depth = 0;
  for (size_t i = 0; i < steps.size() && result == CUDA_SUCCESS; ++i) {
    const ExecStep& step = steps[i];
    if (step.end && depth > 0) --depth;
    const bool outer = depth == 0 && !step.end;
    if (is_graph(step)) ++depth;
    const NodeRef& node = lives ? step.node : nodes[i];
    if (outer && lives && can_change(step.content.type)) result = exec_node_set(*exec, node, step.content);
    if (outer && !step.enabled && result == CUDA_SUCCESS) result = exec_node_enable(*exec, node, false);
    if (result != CUDA_SUCCESS) {
      log::error("step {} of {} (node type {}) of a graph again: {}", i, steps.size(),
                 static_cast<int>(step.content.type), driver_->describe(result));
    }
  }
  return result;
}

}  // namespace bandsaw::cuda
