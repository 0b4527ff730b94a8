#include "backend/runner/execution/graph_segments.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using Edges = std::vector<std::pair<NodeRef, NodeRef>>;

// The nodes in an order that keeps the edges; empty: there is none.
std::vector<NodeRef> in_order(const std::vector<NodeRef>& nodes, const Edges& edges) {
  std::unordered_map<const Node*, size_t> before;
  std::unordered_map<const Node*, std::vector<NodeRef>> followers;
  for (const auto& [from, to] : edges) {
    ++before[to.get()];
    followers[from.get()].push_back(to);
  }
  std::queue<NodeRef> ready;
  for (const NodeRef& node : nodes) {
    if (!before.contains(node.get())) ready.push(node);
  }
  std::vector<NodeRef> ordered;
  for (; !ready.empty(); ready.pop()) {
    ordered.push_back(ready.front());
    for (const NodeRef& next : followers[ready.front().get()]) {
      if (--before[next.get()] == 0) ready.push(next);
    }
  }
  return ordered.size() == nodes.size() ? ordered : std::vector<NodeRef>();
}

}  // namespace

bool may_be_cut(const NodeContent& content) {
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return engine_of(content.copy) == Engine::kCompute;
    default:
      return false;
  }
}

void GraphSegments::note(const ExecRef& exec, const ContextRef& context, const GraphRef& graph) {
  GraphRef copy;
  const bool inside = exec->nodes[kCopyIn] == 0 && exec->nodes[kCopyOut] == 0;
  if (!inside || exec->nodes[kCompute] < kNodesLeast || device_.graph_clone(graph, &copy) != CUDA_SUCCESS) {
    return forget(exec.get());
  }
  std::lock_guard lock(mutex_);
  if (entries_.size() >= sweep_at_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.exec.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * entries_.size());
  }
  entries_[exec.get()] = {exec, context, std::move(copy), nullptr, false, {}};
}

void GraphSegments::note_update(const ExecRef& exec, const GraphRef& graph) {
  ContextRef context;
  {
    std::lock_guard lock(mutex_);
    if (const Entry* entry = entry_of(exec)) context = entry->context;
  }
  context ? note(exec, context, graph) : forget(exec.get());
}

void GraphSegments::forget(const Exec* exec) {
  std::lock_guard lock(mutex_);
  entries_.erase(exec);
}

// With mutex_ held. One that went with its context leaves its entry; another one at the same address is not it.
GraphSegments::Entry* GraphSegments::entry_of(const ExecRef& exec) {
  const auto found = entries_.find(exec.get());
  return found != entries_.end() && found->second.exec.lock() == exec ? &found->second : nullptr;
}

SegmentsRef GraphSegments::find(const ExecRef& exec) {
  std::lock_guard lock(mutex_);
  const Entry* const entry = entry_of(exec);
  return entry ? entry->segments : nullptr;
}

SegmentsRef GraphSegments::find_or_make(const ExecRef& exec, uint64_t nodes) {
  std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(exec);
  if (!entry || entry->segments || std::exchange(entry->asked, true)) return entry ? entry->segments : nullptr;
  worker_.post([this, of = std::weak_ptr(exec), context = entry->context, graph = entry->graph, nodes] {
    SegmentsRef made = make(context, graph, std::max<uint64_t>(nodes, 1));
    const ExecRef still = of.lock();
    std::lock_guard worker_lock(mutex_);
    Entry* const place = still ? entry_of(still) : nullptr;
    if (place && place->graph == graph) place->segments = std::move(made);
  });
  return nullptr;
}

// Null: some node may not be cut off from the others, or the device refuses.
SegmentsRef GraphSegments::make(const ContextRef& context, const GraphRef& graph, uint64_t most) {
  std::vector<NodeRef> nodes;
  Edges edges;
  if (device_.graph_nodes(graph, false, &nodes) || device_.graph_edges(graph, &edges)) return nullptr;
  nodes = in_order(nodes, edges);
  std::unordered_map<const Node*, std::vector<const Node*>> after;
  for (const auto& [from, to] : edges) after[to.get()].push_back(from.get());
  auto segments = std::make_shared<Segments>();
  for (size_t at = 0; at < nodes.size(); at += most) {
    const size_t end = std::min<size_t>(nodes.size(), at + most);
    std::unordered_map<const Node*, NodeRef> twins;
    GraphRef part;
    if (device_.graph_create(&part)) return nullptr;
    for (size_t i = at; i < end; ++i) {
      NodeContent content;
      if (device_.node_get(nodes[i], &content) || !may_be_cut(content)) return nullptr;
      std::vector<NodeRef> dependencies;
      for (const Node* before : after[nodes[i].get()]) {
        if (const auto twin = twins.find(before); twin != twins.end()) dependencies.push_back(twin->second);
      }
      uint64_t value = 0;
      if (device_.graph_add_node(part, dependencies, content, &twins[nodes[i].get()], &value)) return nullptr;
    }
    ExecRef made;
    if (device_.graph_instantiate(context, part, 0, &made)) return nullptr;
    made->nodes[kCompute] = end - at;
    segments->execs.push_back(std::move(made));
    segments->nodes.push_back(end - at);
    segments->all_nodes += end - at;
  }
  if (segments->execs.size() < 2) return nullptr;
  if (device_.event_create(context, CU_EVENT_DISABLE_TIMING, &segments->ended)) return nullptr;
  log::debug("a graph of {} nodes has {} segments", nodes.size(), segments->execs.size());
  return segments;
}

bool GraphSegments::follow(const ExecRef& exec, const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(exec);
  if (!entry) return false;
  if (entry->last.lock() == stream) return true;
  if (entry->segments && device_.stream_wait_event(stream, entry->segments->ended, 0) != CUDA_SUCCESS) {
    log::warn("a graph's launch does not wait for the last one");
  }
  return false;
}

void GraphSegments::launched(const ExecRef& exec, const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(exec);
  if (!entry) return;
  entry->last = stream;
  if (entry->segments && device_.event_record(entry->segments->ended, stream, 0) != CUDA_SUCCESS) {
    log::warn("the end of a graph's launch cannot be told");
  }
}

}  // namespace bandsaw::runner
