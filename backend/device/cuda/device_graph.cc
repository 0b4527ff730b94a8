// Graphs: the driver's own, with an object of ours for each node that somebody has looked at.
#include <algorithm>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

// The driver hands out lists in two steps: how many, then which.
template <typename Call>
CUresult list_nodes(std::vector<CUgraphNode>* nodes, Call call) {
  size_t count = 0;
  if (const CUresult result = call(nullptr, &count)) return result;
  nodes->resize(count);
  const CUresult result = count ? call(nodes->data(), &count) : CUDA_SUCCESS;
  nodes->resize(count);
  return result;
}

std::vector<CUgraphNode> handles_of(std::span<const NodeRef> nodes) {
  std::vector<CUgraphNode> handles;
  for (const NodeRef& node : nodes) handles.push_back(as(node).handle);
  return handles;
}

}  // namespace

// One object per graph: while a capture lasts, and afterwards, it is the same graph.
CudaGraphRef CudaDevice::wrap_graph(CUgraph graph, bool owned) {
  std::lock_guard lock(graphs_mutex_);
  CudaGraphRef known = graphs_[graph].lock();
  if (!known) {
    known = std::make_shared<CudaGraph>(driver_, graph, owned);
    graphs_[graph] = known;
  } else if (owned) {
    known->owned = true;
  }
  std::erase_if(graphs_, [](const auto& entry) { return entry.second.expired(); });
  return known;
}

// The same for one that the driver has within another, for a node.
CudaGraphRef CudaDevice::wrap_inner(const CudaGraphRef& outer, CUgraph graph) {
  std::lock_guard lock(graphs_mutex_);
  if (CudaGraphRef known = graphs_[graph].lock()) return known;
  const CudaGraphRef made = CudaGraph::within(outer, std::make_shared<CudaGraph>(driver_, graph, false));
  graphs_[graph] = made;
  return made;
}

// The driver has destroyed the node's graphs, and may give others their handles.
void CudaDevice::forget_inner(const CudaNode& node) {
  std::vector<CUgraph> handles = node.bodies;
  handles.push_back(node.child);
  std::lock_guard lock(graphs_mutex_);
  for (const CUgraph handle : handles) {
    const auto found = graphs_.find(handle);
    const CudaGraphRef gone = found == graphs_.end() ? nullptr : found->second.lock();
    for (const CUgraph one : gone ? gone->with_inner() : std::vector<CUgraph>()) graphs_.erase(one);
  }
}

NodeRef CudaDevice::wrap_node(const CudaGraphRef& graph, CUgraphNode node) {
  std::lock_guard lock(graph->mutex);
  CudaNodeRef& known = graph->nodes[node];
  if (!known) {
    known = std::make_shared<CudaNode>();
    known->handle = node;
    known->graph = graph;
  }
  return known;
}

CUresult CudaDevice::wrap_nodes(const CudaGraphRef& graph, const std::vector<CUgraphNode>& handles,
                                std::vector<NodeRef>* nodes) {
  for (const CUgraphNode handle : handles) nodes->push_back(wrap_node(graph, handle));
  return CUDA_SUCCESS;
}

CUresult CudaDevice::graph_create(GraphRef* graph) {
  if (const CUresult result = enter()) return result;
  CUgraph made = nullptr;
  const CUresult result = check(driver_->cuGraphCreate(&made, 0));
  if (result == CUDA_SUCCESS) *graph = wrap_graph(made, true);
  return result;
}

CUresult CudaDevice::graph_clone(const GraphRef& graph, GraphRef* clone) {
  if (const CUresult result = enter()) return result;
  CUgraph made = nullptr;
  const CUresult result = check(driver_->cuGraphClone(&made, as(graph).handle));
  if (result != CUDA_SUCCESS) return result;
  const CudaGraphRef copy = wrap_graph(made, true);
  copy->keep_functions_of(as(graph));
  copy->copy_of = std::static_pointer_cast<CudaGraph>(graph);
  *clone = copy;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::graph_add_node(const GraphRef& graph, std::span<const NodeRef> dependencies,
                                    const NodeContent& content, NodeRef* node, uint64_t* value) {
  if (const CUresult result = enter()) return result;
  const std::vector<CUgraphNode> after = handles_of(dependencies);
  const CudaGraphRef into = std::static_pointer_cast<CudaGraph>(graph);
  if (content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return add_conditional(into, after, content, node);
  auto host = content.type == CU_GRAPH_NODE_TYPE_HOST
                  ? std::make_shared<HostFunction>(HostFunction{host_, content.host})
                  : nullptr;
  CUgraphNode made = nullptr;
  const CUresult result = check(add_content(into->handle, after, content, host.get(), &made, value));
  if (result != CUDA_SUCCESS) return result;
  *node = wrap_node(into, made);
  CudaNode& added = as(*node);
  added.event = content.event;
  added.pool = content.pool;
  added.host = host;
  if (host) into->keep(std::move(host));  // an exec may outlive the node
  if (content.child) took_child(into, added, content);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::graph_conditional(const ContextRef& context, const GraphRef& graph, uint32_t initial,
                                       uint32_t flags, uint64_t* handle) {
  if (const CUresult result = enter(as(context))) return result;
  CUgraphConditionalHandle made = 0;
  const CUresult result =
      check(driver_->cuGraphConditionalHandleCreate(&made, as(graph).handle, as(context)->handle, initial, flags));
  if (result != CUDA_SUCCESS) return result;
  graph_conditions_ = true;
  std::lock_guard lock(as(graph).mutex);
  as(graph).conditions.insert(made);
  *handle = made;
  return CUDA_SUCCESS;
}

// The driver takes any number for a handle, so only those that were given out for this graph reach it.
CUresult CudaDevice::add_conditional(const CudaGraphRef& graph, const std::vector<CUgraphNode>& after,
                                     const NodeContent& content, NodeRef* node) {
  {
    std::lock_guard lock(graph->mutex);
    if (graph->conditions.erase(content.conditional.handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = content.conditional.handle;
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(content.conditional.type);
  params.conditional.size = content.conditional.size;
  params.conditional.ctx = own_context()->handle;
  CUgraphNode made = nullptr;
  const CUresult result =
      check(driver_->cuGraphAddNode(&made, graph->handle, after.data(), nullptr, after.size(), &params));
  if (result != CUDA_SUCCESS) {
    std::lock_guard lock(graph->mutex);
    graph->conditions.insert(content.conditional.handle);
    return result;
  }
  *node = wrap_node(graph, made);
  CudaNode& added = as(*node);
  added.conditional = content.conditional;
  added.bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + content.conditional.size);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::node_bodies(const NodeRef& node, std::vector<GraphRef>* bodies) {
  const CudaGraphRef graph = as(node).graph.lock();
  for (const CUgraph body : as(node).bodies) {
    if (graph) bodies->push_back(wrap_inner(graph, body));
  }
  return bodies->empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CudaDevice::graph_nodes(const GraphRef& graph, bool roots_only, std::vector<NodeRef>* nodes) {
  std::vector<CUgraphNode> handles;
  const CUresult result = list_nodes(&handles, [&](CUgraphNode* list, size_t* count) {
    return roots_only ? driver_->cuGraphGetRootNodes(as(graph).handle, list, count)
                      : driver_->cuGraphGetNodes(as(graph).handle, list, count);
  });
  if (result != CUDA_SUCCESS) return check(result);
  return wrap_nodes(std::static_pointer_cast<CudaGraph>(graph), handles, nodes);
}

CUresult CudaDevice::graph_edges(const GraphRef& graph, std::vector<std::pair<NodeRef, NodeRef>>* edges) {
  size_t count = 0;
  CUresult result = driver_->cuGraphGetEdges(as(graph).handle, nullptr, nullptr, nullptr, &count);
  std::vector<CUgraphNode> from(count), to(count);
  if (result == CUDA_SUCCESS && count) {
    result = driver_->cuGraphGetEdges(as(graph).handle, from.data(), to.data(), nullptr, &count);
  }
  const CudaGraphRef of = std::static_pointer_cast<CudaGraph>(graph);
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    edges->emplace_back(wrap_node(of, from[i]), wrap_node(of, to[i]));
  }
  return check(result);
}

CUresult CudaDevice::graph_change_edges(const GraphRef& graph, bool add,
                                        std::span<const std::pair<NodeRef, NodeRef>> edges) {
  std::vector<CUgraphNode> from, to;
  for (const auto& [first, second] : edges) {
    from.push_back(as(first).handle);
    to.push_back(as(second).handle);
  }
  return check(
      add ? driver_->cuGraphAddDependencies(as(graph).handle, from.data(), to.data(), nullptr, from.size())
          : driver_->cuGraphRemoveDependencies(as(graph).handle, from.data(), to.data(), nullptr, from.size()));
}

CUresult CudaDevice::node_neighbours(const NodeRef& node, bool dependents, std::vector<NodeRef>* nodes) {
  const CudaGraphRef graph = as(node).graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> handles;
  const CUresult result = list_nodes(&handles, [&](CUgraphNode* list, size_t* count) {
    return dependents ? driver_->cuGraphNodeGetDependentNodes(as(node).handle, list, nullptr, count)
                      : driver_->cuGraphNodeGetDependencies(as(node).handle, list, nullptr, count);
  });
  return result == CUDA_SUCCESS ? wrap_nodes(graph, handles, nodes) : check(result);
}

CUresult CudaDevice::node_find_in_clone(const NodeRef& node, const GraphRef& clone, NodeRef* found) {
  if (config_.replaceable && find_copy(node, clone, found)) return CUDA_SUCCESS;
  CUgraphNode twin = nullptr;
  const CUresult result = check(driver_->cuGraphNodeFindInClone(&twin, as(node).handle, as(clone).handle));
  if (result != CUDA_SUCCESS) return result;
  *found = wrap_node(std::static_pointer_cast<CudaGraph>(clone), twin);
  CudaNode& made = as(*found);
  if (!made.host) made.host = as(node).host;
  if (!made.event) made.event = as(node).event;
  if (!made.pool) made.pool = as(node).pool;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::node_destroy(const NodeRef& node) {
  const CudaGraphRef graph = as(node).graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check(driver_->cuGraphDestroyNode(as(node).handle));
  if (result != CUDA_SUCCESS) return result;
  forget_inner(as(node));
  std::lock_guard lock(graph->mutex);
  graph->nodes.erase(as(node).handle);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
