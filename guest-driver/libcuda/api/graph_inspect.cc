// What graphs and nodes are: their numbers, and a node's parameters of whatever type.
#include <cstring>

#include "guest-driver/libcuda/api/graph.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Reads as what a caller gave for a new node; what was left open then is filled in.
CUresult read_kernel(CUgraphNode node, CUgraphNodeParams* params) {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel;
  static_assert(sizeof(kernel) == sizeof(params->kernel));
  const CUresult result = cuGraphKernelNodeGetParams_v2(node, &kernel);
  if (result == CUDA_SUCCESS) std::memcpy(&params->kernel, &kernel, sizeof(kernel));
  return result;
}

CUresult read_fill(CUgraphNode node, CUgraphNodeParams* params) {
  CUDA_MEMSET_NODE_PARAMS_v1 fill;
  const CUresult result = cuGraphMemsetNodeGetParams(node, &fill);
  if (result != CUDA_SUCCESS) return result;
  params->memset = {};
  params->memset.dst = fill.dst;
  params->memset.pitch = fill.pitch;
  params->memset.value = fill.value;
  params->memset.elementSize = fill.elementSize;
  params->memset.width = fill.width;
  params->memset.height = fill.height;
  params->memset.ctx = to_program(current_context());
  return CUDA_SUCCESS;
}

CUresult read_host(CUgraphNode node, CUgraphNodeParams* params) {
  CUDA_HOST_NODE_PARAMS_v1 host;
  const CUresult result = cuGraphHostNodeGetParams(node, &host);
  if (result != CUDA_SUCCESS) return result;
  params->host.fn = host.fn;
  params->host.userData = host.userData;
  return CUDA_SUCCESS;
}

CUresult read_allocation(CUgraphNode node, CUgraphNodeParams* params) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 allocation;
  const CUresult result = cuGraphMemAllocNodeGetParams(node, &allocation);
  if (result != CUDA_SUCCESS) return result;
  params->alloc.poolProps = allocation.poolProps;
  params->alloc.bytesize = allocation.bytesize;
  params->alloc.dptr = allocation.dptr;
  return CUDA_SUCCESS;
}

CUresult read_operations(CUgraphNode node, CUgraphNodeParams* params) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 batch;
  const CUresult result = cuGraphBatchMemOpNodeGetParams(node, &batch);
  if (result != CUDA_SUCCESS) return result;
  params->memOp.ctx = batch.ctx;
  params->memOp.count = batch.count;
  params->memOp.paramArray = batch.paramArray;
  params->memOp.flags = batch.flags;
  return CUDA_SUCCESS;
}

CUresult read_conditional(CUgraphNode node, CUgraphNodeParams* params) {
  Call call;
  uint32_t type = 0;
  std::vector<std::byte> payload;
  CUresult result = get_node(call, node, &type, &payload);
  if (result != CUDA_SUCCESS) return result;
  vgpu_conditional_node conditional;
  if (payload.size() < sizeof(conditional)) return CUDA_ERROR_UNKNOWN;
  std::memcpy(&conditional, payload.data(), sizeof(conditional));
  params->conditional.handle = conditional.handle;
  params->conditional.type = static_cast<CUgraphConditionalNodeType>(conditional.type);
  params->conditional.size = conditional.size;
  params->conditional.ctx = to_program(current_context());
  return list_bodies(call, node, &params->conditional.phGraph_out);
}

CUresult read_params(CUgraphNode node, CUgraphNodeParams* params) {
  constexpr int kNotToBeReused = -1;  // CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID of newer headers
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_kernel(node, params);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      params->memcpy.copyCtx = to_program(current_context());
      return cuGraphMemcpyNodeGetParams(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_fill(node, params);
    case CU_GRAPH_NODE_TYPE_HOST:
      return read_host(node, params);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      std::memcpy(&params->graph.ownership, &kNotToBeReused, sizeof(kNotToBeReused));
      return cuGraphChildGraphNodeGetGraph(node, &params->graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphEventWaitNodeGetEvent(node, &params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphEventRecordNodeGetEvent(node, &params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return read_allocation(node, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphMemFreeNodeGetParams(node, &params->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_operations(node, params);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return read_conditional(node, params);
    default:
      return CUDA_SUCCESS;
  }
}

// The record of the graph that a node is in.
CUresult graph_of(CUgraphNode node, GraphRecord** graph) {
  Call call;
  if (call.failed()) return call.status();
  if (!is_node(node)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = wire::node_graph(call, to_wire(node), &handle);
  if (result != CUDA_SUCCESS) return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
  *graph = adopt_graph(handle);
  return *graph ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

}  // namespace

unsigned next_graph_id() {
  static std::atomic<unsigned> next{1};
  return next.fetch_add(1);
}

CUresult describe_node(CUgraphNode node, CUgraphNodeParams* params) {
  *params = {};
  const CUresult result = cuGraphNodeGetType(node, &params->type);
  return result == CUDA_SUCCESS ? read_params(node, params) : result;
}

unsigned local_id(CUgraphNode node) { return static_cast<unsigned>(to_wire(node)); }

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return params ? describe_node(node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph* graph) {
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  GraphRecord* record = nullptr;
  const CUresult result = graph_of(node, &record);
  if (result == CUDA_SUCCESS) *graph = from_wire<CUgraph>(record->handle);
  return result;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned* id) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  GraphRecord* record = nullptr;
  const CUresult result = graph_of(node, &record);
  if (result == CUDA_SUCCESS) *id = local_id(node);
  return result;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long* id) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  GraphRecord* record = nullptr;
  const CUresult result = graph_of(node, &record);
  if (result == CUDA_SUCCESS) *id = uint64_t{record->id} << 32 | local_id(node);
  return result;
}

CUresult cuGraphGetId(CUgraph graph, unsigned* id) {
  if (const CUresult state = health(); state != CUDA_SUCCESS) return state;
  const GraphRecord* const record = find_graph(graph);
  if (!id || !record) return CUDA_ERROR_INVALID_VALUE;
  *id = record->id;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec exec, unsigned* id) {
  if (const CUresult state = health(); state != CUDA_SUCCESS) return state;
  const GraphRecord* const record = execs().find(exec);
  if (!id || !record) return CUDA_ERROR_INVALID_VALUE;
  *id = record->id;
  return CUDA_SUCCESS;
}

}  // extern "C"
