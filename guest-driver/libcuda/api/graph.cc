#include "guest-driver/libcuda/api/graph.h"

#include "guest-driver/libcuda/api/graph_copy.h"

namespace bandsaw::libcuda {
namespace {
struct Tables {
  HandleTable<GraphRecord> graphs, execs;
};
Tables& tables() {
  static Tables& all = *new Tables;
  return all;
}
}  // namespace

class StagedCopy {};

GraphRecord* find_graph(CUgraph graph) { return tables().graphs.find(graph); }
GraphRecord* find_exec(CUgraphExec exec) { return tables().execs.find(exec); }

GraphRecord* adopt_graph(uint64_t handle) {
  auto record = std::make_unique<GraphRecord>();
  record->handle = handle;
  return tables().graphs.insert(std::move(record));
}

CUresult check_edges(const CUgraphEdgeData* edges, size_t count) {
  for (size_t i = 0; edges && i < count; ++i) {
    if (edges[i].from_port || edges[i].to_port || edges[i].type) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult capture_pageable_copy(Call&, const vgpu_copy&, Side, Side, uint64_t) {
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
}  // namespace bandsaw::libcuda
