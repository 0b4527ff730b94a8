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

// The graphs that a node runs.
std::vector<GraphRef> inner_of(Device& device, const NodeRef& node, const NodeContent& content) {
  std::vector<GraphRef> inner;
  if (content.child) inner.push_back(content.child);
  if (content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) static_cast<void>(device.node_bodies(node, &inner));
  return inner;
}

void collect_inner(Device& device, const GraphRef& graph, int depth, std::set<const Graph*>* inner) {
  std::vector<NodeRef> nodes;
  if (depth > kDepthMost || device.graph_nodes(graph, false, &nodes) != CUDA_SUCCESS) return;
  for (const NodeRef& node : nodes) {
    NodeContent content;
    if (device.node_get(node, &content) != CUDA_SUCCESS) continue;
    for (const GraphRef& child : inner_of(device, node, content)) {
      if (inner->insert(child.get()).second) collect_inner(device, child, depth + 1, inner);
    }
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
    for (const GraphRef& inner : inner_of(device, node, content)) {
      collect_kernels(device, table, inner, depth + 1, kernels);
    }
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
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return decode_node(objects_, memory_, type, bytes_of(payload), content);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// What cannot be read back now could not be later.
std::string GraphsAgain::encode(const NodeContent& content, std::string* payload) {
  if (encode_node(objects_, memory_, content, 0, 0, payload) != CUDA_SUCCESS) return kGone;
  NodeContent read;
  return decode(content.type, *payload, &read) == CUDA_SUCCESS ? std::string() : kGone;
}

std::string GraphsAgain::add_node(const NodeRef& node, const NodeContent& content, int depth, NodeState* state) {
  state->handle = objects_.table().handle_of(node.get());
  state->type = content.type;
  if (content.child) return add(content.child, depth + 1, false, &state->child);
  for (const GraphRef& body : inner_of(device_, node, content)) {
    if (std::string why = add(body, depth + 1, true, &state->bodies.emplace_back()); !why.empty()) return why;
  }
  return encode(content, &state->payload);
}

std::string GraphsAgain::add(const GraphRef& graph, int depth, bool body, uint32_t* place) {
  if (depth > kDepthMost) return "graphs within graphs, more than 32 deep";
  GraphState state;
  state.body = body;
  state.conditions = device_.gives_again()->conditions_of(graph);
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
  for (const NodeRef& node : nodes) {
    place_of_[node.get()] = {*place, index.at(node.get())};
    if (NodeRef original = device_.gives_again()->original_of(node)) copies_.emplace_back(node, std::move(original));
  }
  states_->graphs.push_back(std::move(state));
  return {};
}

std::string GraphsAgain::add_exec(uint64_t handle) {
  const auto exec = std::static_pointer_cast<Exec>(objects_.find(HandleKind::kExec, handle));
  ExecState state{.handle = handle, .context = objects_.table().owner(handle), .flags = 0, .steps = {}};
  std::vector<ExecStep> steps;
  device_.gives_again()->exec_steps(exec, &steps, &state.flags);
  if (std::string why = add_steps(steps, &state.steps); !why.empty()) return why;
  states_->execs.push_back(std::move(state));
  return {};
}

std::string GraphsAgain::add_steps(std::span<const ExecStep> steps, std::vector<StepState>* states) {
  for (const ExecStep& step : steps) {
    StepState& made = states->emplace_back();
    if (const auto known = place_of_.find(step.node.get()); step.node && known != place_of_.end()) {
      std::tie(made.graph, made.node) = known->second;
    }
    made.type = step.content.type;
    made.end = step.end;
    made.enabled = step.enabled;
    made.after = step.after;
    if (step.end || step.content.type == CU_GRAPH_NODE_TYPE_GRAPH) continue;
    if (std::string why = encode(step.content, &made.payload); !why.empty()) return why;
    for (const std::vector<ExecStep>& body : step.bodies) {
      if (std::string why = add_steps(body, &made.bodies.emplace_back()); !why.empty()) return why;
    }
  }
  return {};
}

// What a node is a copy of may be described after it.
void GraphsAgain::add_originals() {
  for (const auto& [node, original] : copies_) {
    const auto known = place_of_.find(original.get());
    if (known == place_of_.end()) continue;
    const auto& [graph, at] = place_of_.at(node.get());
    NodeState& state = states_->graphs[graph].nodes[at];
    std::tie(state.original_graph, state.original_node) = known->second;
  }
}

std::string GraphsAgain::describe(GraphStates* states, std::set<uint64_t>* handles) {
  states_ = states;
  states->shared = device_.gives_again()->shared_by_graphs();
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
    if (std::string why = add(graph, 0, false, &place); !why.empty()) return why;
  }
  add_originals();
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

// A node with a graph that it runs, or with those that it may run. `place`: of the graph that the node is in.
CUresult GraphsAgain::build_node(const GraphStates& states, uint32_t place, const NodeState& state,
                                 const GraphRef& graph, NodeRef* node) {
  NodeContent content;
  if (state.child != kNoGraph) {
    if (state.child >= place || !built_[state.child]) return CUDA_ERROR_INVALID_VALUE;
    depths_[place] = std::max(depths_[place], depths_[state.child] + 1);
    if (depths_[place] > kDepthMost) return CUDA_ERROR_INVALID_VALUE;
    content.type = CU_GRAPH_NODE_TYPE_GRAPH;
    content.child = std::exchange(built_[state.child], nullptr);  // for one node only
    content.moved = true;                                         // it may allocate memory
  } else if (const CUresult result = decode(state.type, state.payload, &content)) {
    return result;
  }
  uint64_t value = 0;
  {
    Given given(std::vector<uint64_t>(), nullptr);
    const Given::Scope scope(&given);  // memory and conditions are here already
    if (const CUresult result = device_.graph_add_node(graph, {}, content, node, &value)) return result;
  }
  return state.bodies.empty() ? CUDA_SUCCESS : build_bodies(states, place, state, *node);
}

// The node has made them.
CUresult GraphsAgain::build_bodies(const GraphStates& states, uint32_t place, const NodeState& state,
                                   const NodeRef& node) {
  std::vector<GraphRef> bodies;
  if (const CUresult result = device_.node_bodies(node, &bodies)) return result;
  if (bodies.size() != state.bodies.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const uint32_t at = state.bodies[i];
    if (at >= place || !states.graphs[at].body || !bodies_built_.insert(at).second) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = build(states, at, bodies[i])) return result;
    depths_[place] = std::max(depths_[place], depths_[at] + 1);
    if (depths_[place] > kDepthMost) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Edges come last: a node may come before one that it follows.
CUresult GraphsAgain::build(const GraphStates& states, uint32_t place, const GraphRef& graph) {
  const GraphState& state = states.graphs[place];
  if (const CUresult result = device_.gives_again()->set_conditions(graph, state.conditions)) return result;
  std::vector<NodeRef> nodes;
  for (const NodeState& node : state.nodes) {
    if (const CUresult result = build_node(states, place, node, graph, &nodes.emplace_back())) return result;
  }
  if (state.edges.size() % 2 != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  for (size_t i = 0; i < state.edges.size(); i += 2) {
    if (std::max(state.edges[i], state.edges[i + 1]) >= nodes.size()) return CUDA_ERROR_INVALID_VALUE;
    edges.emplace_back(nodes[state.edges[i]], nodes[state.edges[i + 1]]);
  }
  return device_.graph_change_edges(graph, true, edges);
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
    if (const CUresult result = settle_inner(states, node, nodes[i])) return result;
  }
  return CUDA_SUCCESS;
}

CUresult GraphsAgain::settle_inner(const GraphStates& states, const NodeState& state, const NodeRef& node) {
  if (state.child == kNoGraph && state.bodies.empty()) return CUDA_SUCCESS;
  NodeContent content;
  if (const CUresult result = device_.node_get(node, &content)) return result;
  if (state.child != kNoGraph) return settle(states, state.child, content.child);
  const std::vector<GraphRef> bodies = inner_of(device_, node, content);
  if (bodies.size() != state.bodies.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (const CUresult result = settle(states, state.bodies[i], bodies[i])) return result;
  }
  return CUDA_SUCCESS;
}

CUresult GraphsAgain::make_originals(const GraphStates& states) {
  const auto find = [this](uint32_t graph, uint32_t node) {
    const auto nodes = nodes_.find(graph);
    return nodes != nodes_.end() && node < nodes->second.size() ? nodes->second[node] : nullptr;
  };
  for (uint32_t place = 0; place < states.graphs.size(); ++place) {
    const std::vector<NodeState>& nodes = states.graphs[place].nodes;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].original_graph == kNoGraph) continue;
      const NodeRef node = find(place, i), original = find(nodes[i].original_graph, nodes[i].original_node);
      if (!node || !original) return CUDA_ERROR_INVALID_VALUE;
      device_.gives_again()->set_original(node, original);
    }
  }
  return CUDA_SUCCESS;
}

CUresult GraphsAgain::make_steps(const std::vector<StepState>& states, std::vector<ExecStep>* steps) {
  for (const StepState& from : states) {
    ExecStep& step = steps->emplace_back();
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
    for (const std::vector<StepState>& body : from.bodies) {
      if (const CUresult result = make_steps(body, &step.bodies.emplace_back())) return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult GraphsAgain::make_exec(const ExecState& state, const Made& made) {
  const auto context = std::static_pointer_cast<Context>(objects_.find(HandleKind::kContext, state.context));
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<ExecStep> steps;
  if (const CUresult result = make_steps(state.steps, &steps)) return result;
  ExecRef exec;
  if (const CUresult result = device_.gives_again()->exec_make(context, state.flags, steps, &exec)) return result;
  made(exec, context, state.flags, steps);
  return give(objects_.table(), HandleKind::kExec, exec, state.handle, state.context) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

Status GraphsAgain::make_shared(const SharedByGraphs& shared) {
  const CUresult result = device_.gives_again()->make_shared_by_graphs(shared);
  if (result == CUDA_SUCCESS) return {};
  return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "memory of graphs again: error {}",
                       static_cast<int>(result));
}

Status GraphsAgain::make(const GraphStates& states, const Made& made) {
  CUresult result = CUDA_SUCCESS;
  depths_.assign(states.graphs.size(), 0);
  built_.assign(states.graphs.size(), nullptr);
  for (uint32_t place = 0; place < states.graphs.size() && result == CUDA_SUCCESS; ++place) {
    if (states.graphs[place].body) continue;  // with its node
    result = device_.graph_create(&built_[place]);
    if (result == CUDA_SUCCESS) result = build(states, place, built_[place]);
  }
  for (uint32_t place = 0; place < built_.size() && result == CUDA_SUCCESS; ++place) {
    if (built_[place] && !states.graphs[place].inner) result = settle(states, place, built_[place]);
  }
  if (result == CUDA_SUCCESS) result = make_originals(states);
  for (const ExecState& state : states.execs) {
    if (result == CUDA_SUCCESS) result = make_exec(state, made);
  }
  device_.gives_again()->end_shared_by_graphs();
  if (result == CUDA_SUCCESS) return {};
  return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "a graph again: error {}",
                       static_cast<int>(result));
}

}  // namespace bandsaw::runner
