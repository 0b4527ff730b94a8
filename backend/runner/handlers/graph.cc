#include <algorithm>
#include <cstring>

#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::graph_create(C, uint64_t* graph) {
  GraphRef made;
  const CUresult result = device_.graph_create(&made);
  return result == CUDA_SUCCESS ? give(HandleKind::kGraph, std::move(made), 0, graph, true) : result;
}

CUresult Handlers::graph_destroy(C, R<Graph> graph) {
  if (wire::kind_of(table().owner(graph.handle)) == HandleKind::kNode) return CUDA_ERROR_INVALID_VALUE;
  // The handles of its nodes and child graphs go along; the graph itself with the last exec that needs it.
  return table().remove(HandleKind::kGraph, graph.handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult Handlers::graph_clone(C, R<Graph> graph, uint64_t* clone) {
  GraphRef made;
  const CUresult result = device_.graph_clone(graph, &made);
  return result == CUDA_SUCCESS ? give(HandleKind::kGraph, std::move(made), 0, clone, true) : result;
}

CUresult Handlers::graph_add_node(C, R<Graph> graph, uint32_t type, uint32_t dependencies, Bytes data, uint64_t* node,
                                  uint64_t* value) {
  if (dependencies > data.size() / sizeof(uint64_t)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<NodeRef> nodes;
  CUresult result = find_nodes(data.first(dependencies * sizeof(uint64_t)), &nodes);
  if (result != CUDA_SUCCESS) return result;
  NodeContent content;
  result = decode_node(world_.objects, world_.memory, type, data.subspan(dependencies * sizeof(uint64_t)), &content);
  if (result != CUDA_SUCCESS) return result;
  // NVIDIA's driver would copy it into itself without end.
  const bool within_itself = content.child && table().handle_of(content.child.get()) == graph.handle;
  if (within_itself) return CUDA_ERROR_INVALID_VALUE;
  NodeRef made;
  result = device_.graph_add_node(graph, nodes, content, &made, value);
  if (result == CUDA_SUCCESS) result = give(HandleKind::kNode, std::move(made), graph.handle, node, true);
  if (result == CUDA_SUCCESS && content.moved) table().give_to(table().handle_of(content.child.get()), *node);
  return result;
}

CUresult Handlers::graph_conditional(C call, R<Graph> graph, uint32_t initial, uint32_t flags, uint64_t* handle) {
  return device_.graph_conditional(call.context, graph, initial, flags, handle);
}

// The handles of its graphs go with the node.
CUresult Handlers::node_bodies(C, R<Node> node, std::string* graphs) {
  std::vector<GraphRef> bodies;
  const CUresult result = device_.node_bodies(node, &bodies);
  if (result != CUDA_SUCCESS) return result;
  for (GraphRef& body : bodies) {
    const uint64_t handle = table().add_once(HandleKind::kGraph, std::move(body), node.handle);
    if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    graphs->append(reinterpret_cast<const char*>(&handle), sizeof(handle));
  }
  return CUDA_SUCCESS;
}

CUresult Handlers::graph_nodes(C, R<Graph> graph, uint32_t which, uint32_t* count, std::string* nodes) {
  std::vector<NodeRef> list;
  if (which > 1) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = device_.graph_nodes(graph, which == 1, &list);
  *count = static_cast<uint32_t>(list.size());
  return result == CUDA_SUCCESS ? list_nodes(list, graph.handle, nodes) : result;
}

CUresult Handlers::graph_edges(C, R<Graph> graph, uint32_t* count, std::string* edges) {
  std::vector<std::pair<NodeRef, NodeRef>> list;
  CUresult result = device_.graph_edges(graph, &list);
  *count = static_cast<uint32_t>(list.size());
  for (size_t i = 0; i < list.size() && result == CUDA_SUCCESS; ++i) {
    result = list_nodes({list[i].first, list[i].second}, graph.handle, edges);
  }
  return result;
}

CUresult Handlers::graph_change_edges(C, R<Graph> graph, uint32_t add, Bytes edges) {
  std::vector<NodeRef> nodes;
  const CUresult result = find_nodes(edges, &nodes);
  if (result != CUDA_SUCCESS) return result;
  if (add > 1 || nodes.size() % 2 != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<NodeRef, NodeRef>> pairs;
  for (size_t i = 0; i < nodes.size(); i += 2) pairs.emplace_back(nodes[i], nodes[i + 1]);
  return device_.graph_change_edges(graph, add == 1, pairs);
}

CUresult Handlers::node_neighbours(C, R<Node> node, uint32_t which, uint32_t* count, std::string* nodes) {
  std::vector<NodeRef> list;
  if (which > 1) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = device_.node_neighbours(node, which == 1, &list);
  *count = static_cast<uint32_t>(list.size());
  return result == CUDA_SUCCESS ? list_nodes(list, table().owner(node.handle), nodes) : result;
}

CUresult Handlers::node_get(C call, R<Node> node, uint32_t* type, std::string* payload) {
  NodeContent content;
  const CUresult result = device_.node_get(node, &content);
  if (result != CUDA_SUCCESS) return result;
  *type = content.type;
  return encode_node(world_.objects, world_.memory, content, node.handle, call.context.handle, payload);
}

CUresult Handlers::decode_for(const NodeRef& node, Bytes payload, NodeContent* content) {
  NodeContent now;
  const CUresult result = device_.node_get(node, &now);
  return result == CUDA_SUCCESS ? decode_node(world_.objects, world_.memory, now.type, payload, content) : result;
}

CUresult Handlers::node_set(C, R<Node> node, Bytes payload) {
  NodeContent content;
  CUresult result = decode_for(node, payload, &content);
  if (result == CUDA_SUCCESS) result = device_.node_set(node, content);
  if (result != CUDA_SUCCESS || content.type != CU_GRAPH_NODE_TYPE_GRAPH) return result;
  table().remove_owned(node.handle);  // the graph that it had, of which a handle may be known
  if (content.moved) table().give_to(table().handle_of(content.child.get()), node.handle);
  return CUDA_SUCCESS;
}

CUresult Handlers::node_graph(C, R<Node> node, uint64_t* graph) {
  *graph = table().owner(node.handle);
  return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::node_find_in_clone(C, R<Node> node, R<Graph> clone, uint64_t* found) {
  NodeRef twin;
  const CUresult result = device_.node_find_in_clone(node, clone, &twin);
  return result == CUDA_SUCCESS ? give(HandleKind::kNode, std::move(twin), clone.handle, found, true) : result;
}

CUresult Handlers::node_destroy(C, R<Node> node) {
  const CUresult result = device_.node_destroy(node);
  if (result == CUDA_SUCCESS) table().remove(HandleKind::kNode, node.handle);
  return result;
}

CUresult Handlers::graph_instantiate(C call, R<Graph> graph, uint64_t flags, uint64_t* exec) {
  ExecRef made;
  CUresult result = device_.graph_instantiate(call.context, graph, flags, &made);
  if (result != CUDA_SUCCESS) return result;
  bool cut = false;
  result = graph_memory_.note(made, graph, &cut);
  if (result == CUDA_SUCCESS && flags == 0 && cut) world_.segments.note(made, call.context, graph);
  return result == CUDA_SUCCESS ? give(HandleKind::kExec, std::move(made), call.context.handle, exec) : result;
}

// One whose steps are as its graph was may be cut as that.
void Handlers::exec_made_again(const ExecRef& exec, const ContextRef& context, uint64_t flags,
                               std::span<const ExecStep> steps) {
  graph_memory_.note_steps(exec, steps);
  const bool whole = std::all_of(steps.begin(), steps.end(), [](const ExecStep& step) {
    const CUgraphNodeType type = step.content.type;
    const bool apart = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
                       type == CU_GRAPH_NODE_TYPE_CONDITIONAL;  // of the graph that it was alone
    return step.enabled && !apart;
  });
  if (flags != 0 || !whole) return;
  GraphRef graph;
  std::vector<NodeRef> nodes;
  CUresult result = device_.graph_create(&graph);
  for (const ExecStep& step : steps) {
    if (result != CUDA_SUCCESS) return;
    std::vector<NodeRef> before;
    for (const uint32_t at : step.after) before.push_back(nodes[at]);
    uint64_t value = 0;
    const bool bare = step.content.type == CU_GRAPH_NODE_TYPE_GRAPH;
    result = device_.graph_add_node(graph, before, bare ? NodeContent() : step.content, &nodes.emplace_back(), &value);
  }
  if (result == CUDA_SUCCESS) world_.segments.note(exec, context, graph);
}

CUresult Handlers::exec_update(C, R<Exec> exec, R<Graph> graph, uint32_t* result, uint64_t* error_node) {
  CUgraphExecUpdateResult outcome = CU_GRAPH_EXEC_UPDATE_ERROR;
  NodeRef at;
  const CUresult updated = device_.exec_update(exec, graph, &outcome, &at);
  ++exec.object->changes;
  *result = outcome;
  if (at) give(HandleKind::kNode, std::move(at), graph.handle, error_node, true);
  bool cut = false;
  const CUresult noted = updated == CUDA_SUCCESS ? graph_memory_.note(exec, graph, &cut) : updated;
  if (noted != CUDA_SUCCESS) return noted;
  cut ? world_.segments.note_update(exec, graph) : world_.segments.forget(exec.object.get());
  return noted;
}

CUresult Handlers::exec_node_set(C, R<Exec> exec, R<Node> node, Bytes payload) {
  NodeContent content;
  CUresult result = decode_for(node, payload, &content);
  if (result != CUDA_SUCCESS) return result;
  result = device_.exec_node_set(exec, node, content);
  ++exec.object->changes;
  if (result == CUDA_SUCCESS) {
    graph_memory_.note_node(exec, node.object.get(), content);
    world_.segments.forget(exec.object.get());
  }
  return result;
}

CUresult Handlers::exec_node_enable(C, R<Exec> exec, R<Node> node, uint32_t enabled) {
  world_.segments.forget(exec.object.get());
  ++exec.object->changes;
  return device_.exec_node_enable(exec, node, enabled != 0);
}

CUresult Handlers::exec_node_enabled(C, R<Exec> exec, R<Node> node, uint32_t* enabled) {
  bool is_enabled = false;
  const CUresult result = device_.exec_node_enabled(exec, node, &is_enabled);
  *enabled = is_enabled;
  return result;
}

CUresult Handlers::exec_destroy(C, R<Exec> exec) {
  if (!table().remove(HandleKind::kExec, exec.handle)) return CUDA_ERROR_INVALID_HANDLE;
  graph_memory_.forget(exec);
  world_.segments.forget(exec.object.get());
  return CUDA_SUCCESS;
}

CUresult Handlers::exec_launch(C call, R<Exec> exec, R<Stream> stream) {
  auto regions = graph_memory_.hold(exec);
  if (!regions) return CUDA_ERROR_INVALID_VALUE;
  count(world_.usage_page.slot().launches);
  const bool capturing = is_capturing(stream);
  const bool follows = !capturing && world_.segments.follow(exec, stream);
  const SegmentsRef segments = world_.pieces.is_cut() && follows ? world_.segments.find(exec) : nullptr;
  if (segments) return launch_segments(call, exec, segments, stream);
  const CUresult result = device_.exec_launch(exec, stream);
  if (result != CUDA_SUCCESS || capturing) return result;
  world_.segments.launched(exec, stream);
  if (!regions->empty()) {
    // It holds the regions until the launch is done.
    device_.stream_when_done(stream, [held = std::move(*regions)](CUresult) {});
  }
  return result;
}

// The first segment has passed the gate. Such a graph copies nothing from or to host memory.
CUresult Handlers::launch_segments(C call, const ExecRef& exec, const SegmentsRef& segments, R<Stream> stream) {
  auto next = std::make_shared<size_t>(0);
  auto left = std::make_shared<uint64_t>(segments->all_nodes);
  const auto issue = [this, exec, segments, next, left, to = stream.object](uint64_t, Done ended) {
    const CUresult result = device_.exec_launch(segments->execs[*next], to);
    if (result != CUDA_SUCCESS) return result;
    *left -= segments->nodes[(*next)++];
    if (*left == 0) world_.segments.launched(exec, to);
    ended(CUDA_SUCCESS);  // it is nobody's to wait for
    return CUDA_SUCCESS;
  };
  Done finish = [ring = ring_of(call)](CUresult outcome) { finish_async(*ring, {}, outcome); };
  return begin_pieces(call, stream, issue, [left] { return *left; }, std::move(finish));
}

CUresult Handlers::graph_memory_get(C, uint32_t attribute, uint64_t* value) {
  if (attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  return device_.graph_memory_get(static_cast<CUgraphMem_attribute>(attribute), value);
}

CUresult Handlers::graph_memory_reset(C, uint32_t attribute) {
  if (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return device_.graph_memory_reset(static_cast<CUgraphMem_attribute>(attribute));
}

CUresult Handlers::graph_memory_trim(C) { return device_.graph_memory_trim(); }

CUresult Handlers::graph_memory_free(C call, uint64_t address, R<Stream> stream) {
  return memory_free_async(call, address, std::move(stream));
}

}  // namespace bandsaw::runner
