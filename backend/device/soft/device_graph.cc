// Building graphs.
#include <algorithm>

#include "backend/device/given.h"
#include "backend/device/soft/graph.h"
#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/transfer.h"

namespace bandsaw::soft {

// Holds a reserved address for a node and the steps that are made of it.
std::shared_ptr<void> SoftDevice::graph_memory(uint64_t address) {
  return {memory_.get(), [memory = memory_, address](void*) { memory->abandon(address); }};
}

CUresult SoftDevice::add_node(const SoftGraphRef& graph, std::span<const NodeRef> dependencies,
                              const NodeContent& content, NodeRef* node, uint64_t* value) {
  if (const CUresult refused = check_content(content)) return refused;
  for (size_t i = 0; i < dependencies.size(); ++i) {
    const NodeRef& dependency = dependencies[i];
    const auto same = [&](const NodeRef& other) { return other == dependency; };
    if (!dependency || as(dependency).graph.lock() != graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::any_of(dependencies.begin(), dependencies.begin() + static_cast<ptrdiff_t>(i), same)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  auto made = std::make_shared<SoftNode>();
  made->graph = graph;
  made->content = copy_content(content);
  if (const CUresult refused = child_of(content, *graph, &made->content.child)) return refused;
  if (content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    const Given* const given = Given::current();
    if (given && given->again()) {
      made->reservation = graph_memory_again(content.address);
      if (!made->reservation) return CUDA_ERROR_INVALID_VALUE;
    } else {
      if (const CUresult refused = memory_->reserve(content.bytes, nullptr, &made->content.address)) return refused;
      made->reservation = graph_memory(made->content.address);
    }
    if (value) *value = made->content.address;
  }
  if (content.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    const bool again = std::ranges::any_of(graph->nodes, [&](const SoftNodeRef& other) {
      return other->content.type == CU_GRAPH_NODE_TYPE_MEM_FREE && other->content.address == content.address;
    });
    if (again || !memory_->find(content.address)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    if (const CUresult refused = make_conditional(*graph, made.get())) return refused;
  }
  for (const NodeRef& dependency : dependencies) SoftGraph::add_edge(as(dependency), *made);
  graph->nodes.push_back(made);
  *node = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::graph_create(GraphRef* graph) {
  if (const CUresult error = scheduler_.error()) return error;
  *graph = std::make_shared<SoftGraph>();
  return CUDA_SUCCESS;
}

CUresult SoftDevice::graph_clone(const GraphRef& graph, GraphRef* clone) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  if (as(graph).has_allocations()) return CUDA_ERROR_NOT_SUPPORTED;  // as in CUDA: their addresses are theirs
  *clone = as(graph).clone();
  return CUDA_SUCCESS;
}

CUresult SoftDevice::graph_add_node(const GraphRef& graph, std::span<const NodeRef> dependencies,
                                    const NodeContent& content, NodeRef* node, uint64_t* value) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  return add_node(as(graph).shared_from_this(), dependencies, content, node, value);
}

CUresult SoftDevice::graph_nodes(const GraphRef& graph, bool roots_only, std::vector<NodeRef>* nodes) {
  std::lock_guard lock(scheduler_.mutex());
  nodes->clear();
  for (const SoftNodeRef& node : as(graph).nodes) {
    if (!roots_only || node->dependencies.empty()) nodes->push_back(node);
  }
  return scheduler_.error();
}

CUresult SoftDevice::graph_edges(const GraphRef& graph, std::vector<std::pair<NodeRef, NodeRef>>* edges) {
  std::lock_guard lock(scheduler_.mutex());
  edges->clear();
  for (const SoftNodeRef& node : as(graph).nodes) {
    for (SoftNode* next : node->dependents) edges->emplace_back(node, next->shared_from_this());
  }
  return scheduler_.error();
}

// All edges or none.
CUresult SoftDevice::graph_change_edges(const GraphRef& graph, bool add,
                                        std::span<const std::pair<NodeRef, NodeRef>> edges) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const SoftGraphRef in = as(graph).shared_from_this();
  if (!add && in->has_allocations()) return CUDA_ERROR_NOT_SUPPORTED;  // as in CUDA: nothing of such a graph goes
  const auto change = [&](const std::pair<NodeRef, NodeRef>& edge) {
    if (!edge.first || !edge.second) return false;
    SoftNode &from = as(edge.first), &to = as(edge.second);
    if (from.graph.lock() != in || to.graph.lock() != in) return false;
    if (!add) return SoftGraph::remove_edge(from, to);
    if (&from == &to || SoftGraph::has_edge(from, to)) return false;  // of a cycle, instantiating tells
    SoftGraph::add_edge(from, to);
    return true;
  };
  for (size_t i = 0; i < edges.size(); ++i) {
    if (change(edges[i])) continue;
    while (i-- > 0) {
      SoftNode &from = as(edges[i].first), &to = as(edges[i].second);
      if (add) {
        SoftGraph::remove_edge(from, to);
      } else {
        SoftGraph::add_edge(from, to);
      }
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::node_neighbours(const NodeRef& node, bool dependents, std::vector<NodeRef>* nodes) {
  std::lock_guard lock(scheduler_.mutex());
  nodes->clear();
  if (as(node).graph.expired()) return CUDA_ERROR_INVALID_VALUE;
  for (SoftNode* other : dependents ? as(node).dependents : as(node).dependencies) {
    nodes->push_back(other->shared_from_this());
  }
  return scheduler_.error();
}

CUresult SoftDevice::node_find_in_clone(const NodeRef& node, const GraphRef& clone, NodeRef* found) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  for (const SoftNodeRef& candidate : as(clone).nodes) {
    if (candidate->original.lock() != node) continue;
    *found = candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult SoftDevice::node_destroy(const NodeRef& node) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  SoftNode& going = as(node);
  const SoftGraphRef graph = going.graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_allocations()) return CUDA_ERROR_NOT_SUPPORTED;  // as in CUDA, also for the nodes that are none
  for (SoftNode* other : going.dependencies) std::erase(other->dependents, &going);
  for (SoftNode* other : going.dependents) std::erase(other->dependencies, &going);
  going.dependencies.clear();
  going.dependents.clear();
  going.graph.reset();
  std::erase(graph->nodes, node);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
