// Graphs and how their nodes hang together.
#include "guest-driver/libcuda/api/graph.h"

#include <algorithm>
#include <cstring>

#include "guest-driver/libcuda/api/graph_copy.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct GraphTables {
  HandleTable<GraphRecord> graphs, execs;
  HandleTable<NodeRecord> nodes;
  std::mutex mutex;  // one thread at a time makes records for handles that the host named
};

GraphTables& graph_tables() {
  static GraphTables& all = *new GraphTables;
  return all;
}

// Returns a list of handles as CUDA does. Without an array only the count; with one, `*count` is its length, and
// entries that are left over become NULL.
template <typename T>
void give_list(const std::vector<std::byte>& list, T* out, size_t* count) {
  const size_t there = list.size() / sizeof(T);
  if (!out) {
    *count = there;
    return;
  }
  const size_t given = std::min(*count, there);
  if (given) std::memcpy(out, list.data(), given * sizeof(T));
  std::fill(out + given, out + *count, nullptr);
  *count = given;
}

CUresult list_nodes(CUgraph graph, uint32_t which, CUgraphNode* out, size_t* count) {
  Call call;
  if (call.failed()) return call.status();
  if (!find_graph(graph) || !count) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> list;
  const CUresult result = wire::graph_nodes(call, to_wire(graph), which, nullptr, &list);
  if (result == CUDA_SUCCESS) give_list(list, out, count);
  return result;
}

CUresult neighbours(CUgraphNode node, uint32_t which, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
  Call call;
  if (call.failed()) return call.status();
  if (!is_node(node) || !count || (edges && !out)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> list;
  const CUresult result = wire::node_neighbours(call, to_wire(node), which, nullptr, &list);
  if (result != CUDA_SUCCESS) return result;
  give_list(list, out, count);
  if (edges) std::fill(edges, edges + *count, CUgraphEdgeData{});
  return CUDA_SUCCESS;
}

CUresult list_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges, size_t* count) {
  Call call;
  if (call.failed()) return call.status();
  if (!find_graph(graph) || !count || (!from != !to) || (edges && !from)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> list;
  const CUresult result = wire::graph_edges(call, to_wire(graph), nullptr, &list);
  if (result != CUDA_SUCCESS) return result;
  const size_t there = list.size() / (2 * sizeof(CUgraphNode));
  const size_t given = from ? std::min(*count, there) : there;
  for (size_t i = 0; from && i < given; ++i) {
    CUgraphNode pair[2];
    std::memcpy(pair, list.data() + i * sizeof(pair), sizeof(pair));
    from[i] = pair[0];
    to[i] = pair[1];
    if (edges) edges[i] = {};
  }
  *count = given;
  return CUDA_SUCCESS;
}

CUresult change_edges(CUgraph graph, uint32_t add, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* edges, size_t count) {
  Call call;
  if (call.failed()) return call.status();
  if (!find_graph(graph) || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
  const CUresult plain = check_edges(edges, count);
  if (plain != CUDA_SUCCESS || count == 0) return plain;
  std::vector<CUgraphNode> pairs;
  for (size_t i = 0; i < count; ++i) {
    if (!is_node(from[i]) || !is_node(to[i])) return CUDA_ERROR_INVALID_VALUE;
    pairs.push_back(from[i]);
    pairs.push_back(to[i]);
  }
  return wire::graph_change_edges(call, to_wire(graph), add, as_bytes(pairs.data(), pairs.size()));
}

// Copies what the guest keeps about a graph to its clone, also for the nodes that copy the program's memory.
CUresult clone_copies(Call& call, GraphRecord* from, GraphRecord* to) {
  std::lock_guard lock(from->mutex);
  to->copies = from->copies;
  to->kept = from->kept;
  for (const uint64_t original : from->copy_nodes) {
    NodeRecord* const record = nodes().find(original);
    if (!record) continue;
    uint64_t twin = 0;
    const CUresult result = wire::node_find_in_clone(call, original, to->handle, &twin);
    if (result != CUDA_SUCCESS) return result;
    NodeRecord* const made = node_record(twin);
    if (!made) return CUDA_ERROR_UNKNOWN;
    std::scoped_lock both(record->mutex, made->mutex);
    made->graph = to->handle;
    made->copy = record->copy;
    made->asked = record->asked;
    to->copy_nodes.push_back(twin);
  }
  return CUDA_SUCCESS;
}

}  // namespace

GraphRecord* find_graph(uint64_t graph) { return graph_tables().graphs.find(graph); }
GraphRecord* find_free_graph(CUgraph graph) {
  GraphRecord* const record = find_graph(graph);
  return record && !record->moved ? record : nullptr;
}
void remove_graph(uint64_t graph) { graph_tables().graphs.remove(graph); }
HandleTable<GraphRecord>& execs() { return graph_tables().execs; }
HandleTable<NodeRecord>& nodes() { return graph_tables().nodes; }

GraphRecord* adopt_graph(uint64_t handle) {
  std::lock_guard lock(graph_tables().mutex);
  if (GraphRecord* const known = find_graph(handle)) return known;
  auto record = std::make_unique<GraphRecord>();
  record->handle = handle;
  return graph_tables().graphs.insert(std::move(record));
}

NodeRecord* node_record(uint64_t node) {
  std::lock_guard lock(graph_tables().mutex);
  if (NodeRecord* const known = nodes().find(node)) return known;
  auto record = std::make_unique<NodeRecord>();
  record->handle = node;
  return nodes().insert(std::move(record));
}

CUresult get_node(Call& call, CUgraphNode node, uint32_t* type, std::vector<std::byte>* payload) {
  if (call.failed()) return call.status();
  if (!is_node(node)) return CUDA_ERROR_INVALID_VALUE;
  return wire::node_get(call, to_wire(node), type, payload);
}

bool is_node(CUgraphNode node) { return wire::kind_of(to_wire(node)) == wire::HandleKind::kNode; }

CUresult check_edges(const CUgraphEdgeData* edges, size_t count) {
  for (size_t i = 0; edges && i < count; ++i) {
    const CUgraphEdgeData& edge = edges[i];
    const bool programmatic = edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    const bool known = edge.type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && !edge.to_port &&
                       edge.from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    const bool early = edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    if (!known || (programmatic && !edge.from_port) || (early && !programmatic)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = wire::graph_create(call, &handle);
  if (result != CUDA_SUCCESS) return result;
  *graph = from_wire<CUgraph>(handle);
  return adopt_graph(handle) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphDestroy(CUgraph graph) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_free_graph(graph);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::graph_destroy(call, record->handle);
  if (result != CUDA_SUCCESS) return result;
  forget_graph(record);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_graph(graph);
  if (!clone || !record) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = wire::graph_clone(call, record->handle, &handle);
  if (result != CUDA_SUCCESS) return result;
  GraphRecord* const made = adopt_graph(handle);
  if (!made) return CUDA_ERROR_UNKNOWN;
  *clone = from_wire<CUgraph>(handle);
  return clone_copies(call, record, made);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* out, size_t* count) { return list_nodes(graph, 0, out, count); }

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  return list_nodes(graph, 1, out, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges, size_t* count) {
  return list_edges(graph, from, to, edges, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return list_edges(graph, from, to, nullptr, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
  return neighbours(node, 0, out, edges, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return neighbours(node, 0, out, nullptr, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
  return neighbours(node, 1, out, edges, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return neighbours(node, 1, out, nullptr, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, size_t count) {
  return change_edges(graph, 1, from, to, edges, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return change_edges(graph, 1, from, to, nullptr, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edges, size_t count) {
  return change_edges(graph, 0, from, to, edges, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return change_edges(graph, 0, from, to, nullptr, count);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  Call call;
  if (call.failed()) return call.status();
  if (!is_node(node)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::node_destroy(call, to_wire(node));
  if (result == CUDA_SUCCESS) forget_node(to_wire(node));
  return result;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  Call call;
  if (call.failed()) return call.status();
  if (!type) return CUDA_ERROR_INVALID_VALUE;
  uint32_t number = 0;
  const CUresult result = get_node(call, node, &number, nullptr);
  if (result != CUDA_SUCCESS) return result;
  *type = staged_copy_of(node) ? CU_GRAPH_NODE_TYPE_MEMCPY : static_cast<CUgraphNodeType>(number);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph clone) {
  Call call;
  if (call.failed()) return call.status();
  if (!found || !is_node(original) || !find_graph(clone)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = wire::node_find_in_clone(call, to_wire(original), to_wire(clone), &handle);
  if (result == CUDA_SUCCESS) *found = from_wire<CUgraphNode>(handle);
  return result;
}

}  // extern "C"
