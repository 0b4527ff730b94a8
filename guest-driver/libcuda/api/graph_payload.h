// A node's parameters, between CUDA's structures and the wire's payloads (vgpu_wire.h).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "guest-driver/libcuda/api/graph_copy.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// What a node is on the wire. `type` differs from the program's for staged copies.
struct NodePlan {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<std::byte> payload;
  std::shared_ptr<StagedCopy> staged;
  CUDA_MEMCPY3D asked{};  // of a copy
  uint64_t child = 0;     // a temporary graph, gone with the plan
  uint64_t inner = 0;     // the program's child graph
  bool moved = false;     // it moves into the node

  NodePlan() = default;
  ~NodePlan();
  NodePlan(const NodePlan&) = delete;
  NodePlan& operator=(const NodePlan&) = delete;
};

CUresult plan_kernel(const CUDA_KERNEL_NODE_PARAMS_v2& params, NodePlan* plan);
CUresult plan_copy(Call& call, const CUDA_MEMCPY3D& params, CUcontext context, NodePlan* plan);
CUresult plan_fill(const CUDA_MEMSET_NODE_PARAMS_v1& params, CUcontext context, NodePlan* plan);
CUresult plan_host(const CUDA_HOST_NODE_PARAMS_v1& params, NodePlan* plan);
CUresult plan_child(CUgraph child, CUgraphChildGraphNodeOwnership ownership, NodePlan* plan);
CUresult plan_event(CUgraphNodeType type, CUevent event, NodePlan* plan);
CUresult plan_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v1& params, NodePlan* plan);
CUresult plan_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params, NodePlan* plan);
CUresult plan_free(CUdeviceptr address, NodePlan* plan);
// A node of `to` has the plan's child graph, if it has one: what that keeps alive, `to` keeps too.
void took_child(const NodePlan& plan, GraphRecord* to);
// Any node that cuGraphAddNode knows.
CUresult plan_node(Call& call, const CUgraphNodeParams& params, NodePlan* plan);

// Of CUDA 13.4's calls: CUDA_ERROR_INVALID_CONTEXT if a kernel node names a context that its function is not of.
CUresult check_kernel_context(const CUgraphNodeParams& params);

CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1& params);

template <typename T>
bool read_payload(std::span<const std::byte> payload, T* value) {
  if (payload.size() < sizeof(T)) return false;
  std::memcpy(value, payload.data(), sizeof(T));
  return true;
}

}  // namespace bandsaw::libcuda
