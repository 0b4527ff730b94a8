// Graphs as the guest keeps them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"

namespace bandsaw::libcuda {

class StagedCopy;

// A graph or an executable graph.
struct GraphRecord {
  uint64_t handle = 0;
  uint64_t flags = 0;  // of an executable graph: what it was instantiated with

  std::mutex mutex;
  std::set<std::shared_ptr<StagedCopy>> copies;  // that its nodes use; an executable graph keeps its graph's alive
};

GraphRecord* find_graph(CUgraph graph);
GraphRecord* find_exec(CUgraphExec exec);

// Takes up a graph that the host made. nullptr only if the host is broken.
GraphRecord* adopt_graph(uint64_t handle);

// Handles as the wire carries lists of them.
template <typename T>
std::span<const std::byte> as_bytes(T* const* handles, size_t count) {
  return std::as_bytes(std::span(handles, count));
}

// Edges may carry data only for programmatic launches, which there are none of: NOT_SUPPORTED for others than plain.
CUresult check_edges(const CUgraphEdgeData* edges, size_t count);

}  // namespace bandsaw::libcuda
