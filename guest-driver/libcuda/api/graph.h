// Graphs, executable graphs and nodes as the guest keeps them. The host owns their structure. The guest keeps what the
// host cannot know: the program's pageable memory, and the storage that parameter queries return pointers to.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

class StagedCopy;
struct UserObject;

// Numbers that stand for graphs and executable graphs in drawings and tools; none is used twice.
unsigned next_graph_id();
// The same for a node among those of its graph.
unsigned local_id(CUgraphNode node);
// What cuGraphNodeGetParams tells.
CUresult describe_node(CUgraphNode node, CUgraphNodeParams* params);

// A graph or an executable graph.
struct GraphRecord {
  const unsigned id = next_graph_id();
  uint64_t handle = 0;
  uint64_t flags = 0;              // of an executable graph: what it was instantiated with
  bool may_keep_memory = false;    // of an executable graph: a launch may allocate what the program has to free
  std::atomic<bool> moved{false};  // it is a node's now, and stands for nothing by itself

  std::mutex mutex;
  // Copies that its nodes use. An executable graph keeps those of its graph alive.
  std::set<std::shared_ptr<StagedCopy>> copies;
  std::vector<uint64_t> copy_nodes;               // nodes that have one
  std::vector<std::shared_ptr<UserObject>> kept;  // one entry per reference
  std::atomic<uint64_t> launched_on{0};           // of an executable graph: the stream of its last launch, on the wire
};

// Lets go of what `exec` has kept, when its launches are done: on the thread that runs host functions (CUDA C++
// Programming Guide, "CUDA User Objects"). At once if it was not launched, or if its stream has gone.
void let_go_behind_launches(Call& call, GraphRecord* exec);

struct NodeRecord {
  uint64_t handle = 0;
  uint64_t graph = 0;

  std::mutex mutex;
  std::vector<std::byte> parameters;  // what cuGraphKernelNodeGetParams points to
  std::vector<void*> pointers;
  // Set for a copy that uses memory that only the program sees. On the wire the node is then a child graph
  // (graph_copy.h).
  std::shared_ptr<StagedCopy> copy;
  // The parameters of a copy as the program gave them; empty for one that was captured, unless it is staged.
  std::optional<CUDA_MEMCPY3D> asked;
};

GraphRecord* find_graph(uint64_t graph);
// One that is no node's.
GraphRecord* find_free_graph(CUgraph graph);
inline GraphRecord* find_graph(CUgraph graph) { return find_graph(reinterpret_cast<uint64_t>(graph)); }
void remove_graph(uint64_t graph);
HandleTable<GraphRecord>& execs();
HandleTable<NodeRecord>& nodes();

// The record of a graph that the host named; made if it is new. nullptr only if the host is broken.
GraphRecord* adopt_graph(uint64_t handle);
// The record of a node, made if there is none: only some nodes have one.
NodeRecord* node_record(uint64_t node);

// A node's type and payload (wire.toml, node_get), as the host has them.
CUresult get_node(Call& call, CUgraphNode node, uint32_t* type, std::vector<std::byte>* payload);

// A conditional node's graphs, in storage that lives as long as the node's record.
CUresult list_bodies(Call& call, CUgraphNode node, CUgraph** graphs);

// Whether the handle can be a node's; the host knows for sure.
bool is_node(CUgraphNode node);

// Handles as the wire carries lists of them.
template <typename T>
std::span<const std::byte> as_bytes(T* const* handles, size_t count) {
  return std::as_bytes(std::span(handles, count));
}

// CUDA_ERROR_INVALID_VALUE if an edge has data that there is no edge with. All edges are kept as plain ones: a kernel
// behind a programmatic edge may begin before the one ahead of it has ended, and need not.
CUresult check_edges(const CUgraphEdgeData* edges, size_t count);

}  // namespace bandsaw::libcuda
