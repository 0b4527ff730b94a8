// Adding nodes to graphs.
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/graph_payload.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Where a new node goes.
struct NewNode {
  CUgraphNode* node;
  CUgraph graph;
  const CUgraphNode* dependencies;
  size_t count;
};

CUresult check_place(const NewNode& place) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!place.node || !find_graph(place.graph) || (place.count && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < place.count; ++i) {
    if (!is_node(place.dependencies[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult add(Call& call, const NewNode& place, const NodePlan& plan, uint64_t* value) {
  const bool allocates = plan.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || plan.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (allocates && !find_free_graph(place.graph)) return CUDA_ERROR_INVALID_VALUE;
  const auto list = as_bytes(place.dependencies, place.count);
  std::vector<std::byte> data(list.begin(), list.end());
  data.insert(data.end(), plan.payload.begin(), plan.payload.end());
  uint64_t node = 0;
  const CUresult result = wire::graph_add_node(call, to_wire(place.graph), plan.type,
                                               static_cast<uint32_t>(place.count), data, &node, value);
  if (result != CUDA_SUCCESS) return result;
  *place.node = from_wire<CUgraphNode>(node);
  took_child(plan, find_graph(place.graph));
  const bool is_copy = plan.staged || plan.type == CU_GRAPH_NODE_TYPE_MEMCPY;
  return is_copy ? remember_copy(find_graph(place.graph), node, plan.staged, plan.asked) : CUDA_SUCCESS;
}

CUresult add_alloc(Call& call, const NewNode& place, const NodePlan& plan, uint64_t bytes, CUdeviceptr* address) {
  uint64_t value = 0;
  const CUresult result = add(call, place, plan, &value);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().add({.base = value, .bytes = bytes, .kind = RangeKind::kGraph, .context = call.context()});
  *address = value;
  return CUDA_SUCCESS;
}

// `plan_it` fills the plan; what it returns is returned if it is no success.
template <typename Plan>
CUresult add_planned(const NewNode& place, Plan plan_it) {
  Call call;
  CUresult result = check_place(place);
  if (result != CUDA_SUCCESS) return result;
  NodePlan plan;
  result = plan_it(call, &plan);
  return result != CUDA_SUCCESS ? result : add(call, place, plan, nullptr);
}

CUresult add_any(const NewNode& place, CUgraphNodeParams* params) {
  Call call;
  CUresult result = check_place(place);
  if (result != CUDA_SUCCESS) return result;
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  NodePlan plan;
  result = plan_node(call, *params, &plan);
  if (result != CUDA_SUCCESS) return result;
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    result = add(call, place, plan, nullptr);
    return result != CUDA_SUCCESS ? result : list_bodies(call, *place.node, &params->conditional.phGraph_out);
  }
  if (params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return add(call, place, plan, nullptr);
  return add_alloc(call, place, plan, params->alloc.bytesize, &params->alloc.dptr);
}

}  // namespace

CUresult list_bodies(Call& call, CUgraphNode node, CUgraph** graphs) {
  std::vector<std::byte> handles;
  const CUresult result = wire::node_bodies(call, to_wire(node), &handles);
  if (result != CUDA_SUCCESS) return result;
  NodeRecord* const record = node_record(to_wire(node));
  if (!record || handles.size() % sizeof(uint64_t)) return CUDA_ERROR_UNKNOWN;
  std::lock_guard lock(record->mutex);
  record->pointers.clear();
  for (size_t at = 0; at < handles.size(); at += sizeof(uint64_t)) {
    uint64_t handle = 0;
    std::memcpy(&handle, handles.data() + at, sizeof(handle));
    if (!adopt_graph(handle)) return CUDA_ERROR_UNKNOWN;
    record->pointers.push_back(from_wire<CUgraph>(handle));
  }
  *graphs = reinterpret_cast<CUgraph*>(record->pointers.data());
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return params ? plan_kernel(*params, plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return params ? plan_kernel(widen(*params), plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* params, CUcontext context) {
  return add_planned({node, graph, dependencies, count}, [&](Call& call, NodePlan* plan) {
    return params ? plan_copy(call, *params, context, plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS_v1* params, CUcontext context) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return params ? plan_fill(*params, context, plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS_v1* params) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return params ? plan_host(*params, plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  CUgraph child) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return plan_child(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, plan);
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  return add_planned({node, graph, dependencies, count}, [](Call&, NodePlan*) { return CUDA_SUCCESS; });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   CUevent event) {
  return add_planned({node, graph, dependencies, count},
                     [&](Call&, NodePlan* plan) { return plan_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, plan); });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 CUevent event) {
  return add_planned({node, graph, dependencies, count},
                     [&](Call&, NodePlan* plan) { return plan_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, plan); });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  return add_planned({node, graph, dependencies, count}, [&](Call&, NodePlan* plan) {
    return params ? plan_operations(*params, plan) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS_v1* params) {
  Call call;
  const NewNode place{node, graph, dependencies, count};
  CUresult result = check_place(place);
  if (result != CUDA_SUCCESS) return result;
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  NodePlan plan;
  result = plan_alloc(*params, &plan);
  return result != CUDA_SUCCESS ? result : add_alloc(call, place, plan, params->bytesize, &params->dptr);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                               CUdeviceptr address) {
  return add_planned({node, graph, dependencies, count},
                     [&](Call&, NodePlan* plan) { return plan_free(address, plan); });
}

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  const CUresult result = check_edges(edges, count);
  return result != CUDA_SUCCESS ? result : add_any({node, graph, dependencies, count}, params);
}

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUgraphNodeParams* params) {
  return add_any({node, graph, dependencies, count}, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  const CUresult result = params ? check_kernel_context(*params) : CUDA_SUCCESS;
  return result != CUDA_SUCCESS ? result : cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext context,
                                        unsigned initial, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  // Kernels that set it run in the calling thread's context, as all nodes do.
  if (!handle || !find_graph(graph) || (context && wire_context(context) != call.context()))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t made = 0;
  const CUresult result = wire::graph_conditional(call, to_wire(graph), initial, flags, &made);
  if (result == CUDA_SUCCESS) *handle = made;
  return result;
}

}  // extern "C"
