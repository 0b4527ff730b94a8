#include "backend/runner/saved/graphs_again.h"

#include <algorithm>

#include "backend/device/given.h"
#include "backend/runner/handlers/node_payload.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;

constexpr int kDepthMost = 32;
constexpr const char* kGone = "a graph that uses something that has gone";

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// It gets the handle that it had. False: that is another's, or no such object can have it.
bool give(HandleTable& table, HandleKind kind, ObjectRef object, uint64_t handle, uint64_t owner) {
  Given given({handle}, nullptr);
  const Given::Scope scope(&given);
  const bool once = kind != HandleKind::kExec;
  const uint64_t got =
      once ? table.add_once(kind, std::move(object), owner) : table.add(kind, std::move(object), owner);
  return got == handle;
}

void collect_inner(Device& device, const GraphRef& graph, int depth, std::set<const Graph*>* inner) {
  std::vector<NodeRef> nodes;
  if (depth > kDepthMost || device.graph_nodes(graph, false, &nodes) != CUDA_SUCCESS) return;
  for (const NodeRef& node : nodes) {
    NodeContent content;
    if (device.node_get(node, &content) != CUDA_SUCCESS || !content.child) continue;
    if (inner->insert(content.child.get()).second) collect_inner(device, content.child, depth + 1, inner);
  }
}

void collect_kernels(Device& device, const HandleTable& table, const GraphRef& graph, int depth,
                     std::set<uint64_t>* kernels) {
  std::vector<NodeRef> nodes;
  if (depth > kDepthMost || device.graph_nodes(graph, false, &nodes) != CUDA_SUCCESS) return;
  for (const NodeRef& node : nodes) {
    NodeContent content;
    if (device.node_get(node, &content) != CUDA_SUCCESS) continue;
    const Code& code = content.launch.code;
    const Object* const object =
        code.kernel ? static_cast<const Object*>(code.kernel.get()) : static_cast<const Object*>(code.function.get());
    if (const uint64_t handle = object ? table.handle_of(object) : 0; handle != 0) kernels->insert(handle);
    if (content.child) collect_kernels(device, table, content.child, depth + 1, kernels);
  }
}

}  // namespace

std::set<uint64_t> kernels_of(Device& device, const HandleTable& table, const GraphRef& graph) {
  std::set<uint64_t> kernels;
  collect_kernels(device, table, graph, 0, &kernels);
  return kernels;
}

CUresult GraphsAgain::decode(uint32_t type, const std::string& payload, NodeContent* content) const {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return decode_node(objects_, memory_, type, bytes_of(payload), content);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// What cannot be read back now could not be later.
std::string GraphsAgain::encode(const NodeContent& content, std::string* payload) {
  if (content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return "a graph with conditional nodes";
  if (encode_node(objects_, memory_, content, 0, 0, payload) != CUDA_SUCCESS) return kGone;
  NodeContent read;
  return decode(content.type, *payload, &read) == CUDA_SUCCESS ? std::string() : kGone;
}

std::string GraphsAgain::add_node(const NodeRef& node, const NodeContent& content, int depth, NodeState* state) {
  state->handle = objects_.table().handle_of(node.get());
  state->type = content.type;
  return content.child ? add(content.child, depth + 1, &state->child) : encode(content, &state->payload);
}

std::string GraphsAgain::add(const GraphRef& graph, int depth, uint32_t* place) {
  if (depth > kDepthMost) return "graphs within graphs, more than 32 deep";
  if (std::string lacks = device_.gives_again()->not_again(graph, depth > 0); !lacks.empty()) return lacks;
  GraphState state;
  state.handle = objects_.table().handle_of(graph.get());
  state.owner = state.handle != 0 ? objects_.table().owner(state.handle) : 0;
  state.inner = depth > 0;
  std::vector<NodeRef> nodes;
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  if (device_.graph_nodes(graph, false, &nodes) != CUDA_SUCCESS) return kGone;
  if (device_.graph_edges(graph, &edges) != CUDA_SUCCESS) return kGone;
  std::map<const Node*, uint32_t> index;
  for (const NodeRef& node : nodes) {
    NodeContent content;
    if (device_.node_get(node, &content) != CUDA_SUCCESS) return kGone;
    index.emplace(node.get(), static_cast<uint32_t>(state.nodes.size()));
    if (std::string why = add_node(node, content, depth, &state.nodes.emplace_back()); !why.empty()) return why;
  }
  for (const auto& [from, to] : edges) {
    state.edges.push_back(index.at(from.get()));
    state.edges.push_back(index.at(to.get()));
  }
  *place = static_cast<uint32_t>(states_->graphs.size());
  for (const auto& [node, at] : index) place_of_[node] = {*place, at};
  states_->graphs.push_back(std::move(state));
  return {};
}

std::string GraphsAgain::add_exec(uint64_t handle) {
  const auto exec = std::static_pointer_cast<Exec>(objects_.find(HandleKind::kExec, handle));
  ExecState state{.handle = handle, .context = objects_.table().owner(handle), .flags = 0, .steps = {}};
  std::vector<ExecStep> steps;
  if (std::string lacks = device_.gives_again()->exec_steps(exec, &steps, &state.flags); !lacks.empty()) return lacks;
  for (const ExecStep& step : steps) {
    StepState& made = state.steps.emplace_back();
    if (const auto known = place_of_.find(step.node.get()); step.node && known != place_of_.end()) {
      std::tie(made.graph, made.node) = known->second;
    }
    made.type = step.content.type;
    made.end = step.end;
    made.enabled = step.enabled;
    made.after = step.after;
    if (step.end || step.content.type == CU_GRAPH_NODE_TYPE_GRAPH) continue;
    if (std::string why = encode(step.content, &made.payload); !why.empty()) return why;
  }
  states_->execs.push_back(std::move(state));
  return {};
}

std::string GraphsAgain::describe(GraphStates* states, std::set<uint64_t>* handles) {
  states_ = states;
  std::set<const Graph*> inner;
  std::vector<GraphRef> graphs;
  const std::vector<uint64_t> all = objects_.table().all();
  for (const uint64_t handle : all) {
    if (wire::kind_of(handle) != HandleKind::kGraph) continue;
    graphs.push_back(std::static_pointer_cast<Graph>(objects_.find(HandleKind::kGraph, handle)));
    collect_inner(device_, graphs.back(), 0, &inner);
  }
  for (const GraphRef& graph : graphs) {
    uint32_t place = 0;
    if (inner.contains(graph.get())) continue;
    if (std::string why = add(graph, 0, &place); !why.empty()) return why;
  }
  for (const uint64_t handle : all) {
    if (wire::kind_of(handle) != HandleKind::kExec) continue;
    if (std::string why = add_exec(handle); !why.empty()) return why;
    handles->insert(handle);
  }
  for (const GraphState& graph : states->graphs) {
    handles->insert(graph.handle);
    for (const NodeState& node : graph.nodes) handles->insert(node.handle);
  }
  return {};
}

// Edges come last: a node may come before one that it follows.
CUresult GraphsAgain::build(const GraphState& state, GraphRef* graph) {
  int& depth = depths_.emplace_back(0);
  if (const CUresult result = device_.graph_create(graph)) return result;
  std::vector<NodeRef> nodes;
  for (const NodeState& node : state.nodes) {
    NodeContent content;
    if (node.child != kNoGraph) {
      if (node.child >= built_.size() || !built_[node.child]) return CUDA_ERROR_INVALID_VALUE;
      depth = std::max(depth, depths_[node.child] + 1);
      if (depth > kDepthMost) return CUDA_ERROR_INVALID_VALUE;
      content.type = CU_GRAPH_NODE_TYPE_GRAPH;
      content.child = std::exchange(built_[node.child], nullptr);  // for one node only
    } else if (const CUresult result = decode(node.type, node.payload, &content)) {
      return result;
    }
    uint64_t value = 0;
    if (const CUresult result = device_.graph_add_node(*graph, {}, content, &nodes.emplace_back(), &value)) {
      return result;
    }
  }
  if (state.edges.size() % 2 != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  for (size_t i = 0; i < state.edges.size(); i += 2) {
    if (std::max(state.edges[i], state.edges[i + 1]) >= nodes.size()) return CUDA_ERROR_INVALID_VALUE;
    edges.emplace_back(nodes[state.edges[i]], nodes[state.edges[i + 1]]);
  }
  return device_.graph_change_edges(*graph, true, edges);
}

// Gives the handles of a graph and of all in it. A node has a copy of the graph that it was given.
CUresult GraphsAgain::settle(const GraphStates& states, uint32_t place, const GraphRef& graph) {
  const GraphState& state = states.graphs[place];
  std::vector<NodeRef>& nodes = nodes_[place];
  if (const CUresult result = device_.graph_nodes(graph, false, &nodes)) return result;
  if (nodes.size() != state.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  HandleTable& table = objects_.table();
  if (state.handle != 0 && !give(table, HandleKind::kGraph, graph, state.handle, state.owner)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeState& node = state.nodes[i];
    if (node.handle != 0 && !give(table, HandleKind::kNode, nodes[i], node.handle, state.handle)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (node.child == kNoGraph) continue;
    NodeContent content;
    if (const CUresult result = device_.node_get(nodes[i], &content)) return result;
    if (const CUresult result = settle(states, node.child, content.child)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult GraphsAgain::make_exec(const ExecState& state, const Made& made) {
  const auto context = std::static_pointer_cast<Context>(objects_.find(HandleKind::kContext, state.context));
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<ExecStep> steps;
  for (const StepState& from : state.steps) {
    ExecStep& step = steps.emplace_back();
    if (from.graph != kNoGraph) {
      const auto nodes = nodes_.find(from.graph);
      if (nodes == nodes_.end() || from.node >= nodes->second.size()) return CUDA_ERROR_INVALID_VALUE;
      step.node = nodes->second[from.node];
    }
    step.end = from.end;
    step.enabled = from.enabled;
    step.after = from.after;
    if (from.end) continue;
    step.content.type = CU_GRAPH_NODE_TYPE_GRAPH;
    if (from.type == CU_GRAPH_NODE_TYPE_GRAPH) continue;
    if (const CUresult result = decode(from.type, from.payload, &step.content)) return result;
  }
  ExecRef exec;
  if (const CUresult result = device_.gives_again()->exec_make(context, state.flags, steps, &exec)) return result;
  made(exec, context, state.flags, steps);
  return give(objects_.table(), HandleKind::kExec, exec, state.handle, state.context) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

Status GraphsAgain::make(const GraphStates& states, const Made& made) {
  CUresult result = CUDA_SUCCESS;
  for (const GraphState& state : states.graphs) {
    GraphRef graph;
    if (result == CUDA_SUCCESS) result = build(state, &graph);
    built_.push_back(std::move(graph));
  }
  for (uint32_t place = 0; place < built_.size() && result == CUDA_SUCCESS; ++place) {
    if (built_[place] && !states.graphs[place].inner) result = settle(states, place, built_[place]);
  }
  for (const ExecState& state : states.execs) {
    if (result == CUDA_SUCCESS) result = make_exec(state, made);
  }
  if (result == CUDA_SUCCESS) return {};
  return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "a graph again: error {}",
                       static_cast<int>(result));
}

}  // namespace bandsaw::runner
