// Asking for nodes' parameters and changing them in a graph.
#include <cstring>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/graph_payload.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// The payload of a node that must be of this type.
CUresult get_typed(CUgraphNode node, CUgraphNodeType type, std::vector<std::byte>* payload) {
  Call call;
  uint32_t actual = 0;
  const CUresult result = get_node(call, node, &actual, payload);
  if (result != CUDA_SUCCESS) return result;
  return actual == static_cast<uint32_t>(type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename T>
CUresult get_as(CUgraphNode node, CUgraphNodeType type, T* value) {
  std::vector<std::byte> payload;
  const CUresult result = get_typed(node, type, &payload);
  if (result != CUDA_SUCCESS) return result;
  return read_payload(payload, value) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// The child graph of a staged copy's node stays: the devices put no other one there.
CUresult change_staged(Call& call, CUgraphNode node, const StagedCopy& from, const StagedCopy& to) {
  if (from.to_program() != to.to_program() || from.from_program() != to.from_program()) {
    log_unsupported("changing which end of a copy node is pageable memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint64_t child = 0;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_GRAPH, &child);
  return result == CUDA_SUCCESS ? to.change_graph(call, child) : result;
}

// The node has taken the plan's child graph.
CUresult put_in(Call& call, CUgraphNode node, const NodePlan& plan) {
  uint64_t parent = 0;
  const CUresult result = wire::node_graph(call, to_wire(node), &parent);
  if (result == CUDA_SUCCESS) took_child(plan, adopt_graph(parent));
  return result;
}

template <typename Plan>
CUresult set_planned(CUgraphNode node, CUgraphNodeType type, Plan plan_it) {
  Call call;
  uint32_t actual = 0;
  CUresult result = get_node(call, node, &actual, nullptr);
  if (result != CUDA_SUCCESS) return result;
  const std::shared_ptr<StagedCopy> staged = staged_copy_of(node);
  if ((staged ? CU_GRAPH_NODE_TYPE_MEMCPY : static_cast<CUgraphNodeType>(actual)) != type) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  NodePlan plan;
  result = plan_it(call, &plan);
  if (result != CUDA_SUCCESS) return result;
  if (static_cast<uint32_t>(plan.type) != actual) {
    log_unsupported("changing a copy node between pageable and other memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!plan.staged) {
    result = wire::node_set(call, to_wire(node), plan.payload);
    if (result == CUDA_SUCCESS && plan.inner) return put_in(call, node, plan);
    if (result != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_MEMCPY) return result;
    NodeRecord* const record = node_record(to_wire(node));
    if (!record) return CUDA_ERROR_UNKNOWN;
    std::lock_guard lock(record->mutex);
    record->asked = plan.asked;
    return CUDA_SUCCESS;
  }
  result = change_staged(call, node, *staged, *plan.staged);
  if (result != CUDA_SUCCESS) return result;
  GraphRecord* const graph = find_graph(nodes().find(node)->graph);
  return graph ? remember_copy(graph, to_wire(node), plan.staged, plan.asked) : CUDA_ERROR_INVALID_VALUE;
}

// Parameters for a kernel node's query, in storage that lives until the node changes.
CUresult describe_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  std::vector<std::byte> payload;
  CUresult result = get_typed(node, CU_GRAPH_NODE_TYPE_KERNEL, &payload);
  if (result != CUDA_SUCCESS) return result;
  vgpu_launch launch;
  if (!read_payload(payload, &launch)) return CUDA_ERROR_UNKNOWN;
  FunctionRecord* const function = find_function(launch.function);
  NodeRecord* const record = node_record(to_wire(node));
  if (!function || !record) return CUDA_ERROR_INVALID_VALUE;
  *params = {};
  // The CUDA runtime recognises its kernel by `kern`. A kernel's handle works as a function too.
  params->func = from_wire<CUfunction>(launch.function);
  params->kern = from_wire<CUkernel>(function->kernel);
  if (wire::kind_of(launch.function) == wire::HandleKind::kKernel) params->kern = from_wire<CUkernel>(launch.function);
  params->ctx = to_program(context_of_handle(function->context));
  params->gridDimX = launch.grid[0], params->gridDimY = launch.grid[1], params->gridDimZ = launch.grid[2];
  params->blockDimX = launch.block[0], params->blockDimY = launch.block[1], params->blockDimZ = launch.block[2];
  params->sharedMemBytes = launch.shared_bytes;
  std::lock_guard lock(record->mutex);
  record->parameters.assign(payload.begin() + sizeof(launch), payload.end());
  record->pointers.clear();
  for (const vgpu_parameter& parameter : function->parameters) {
    if (uint64_t{parameter.offset} + parameter.bytes > record->parameters.size()) return CUDA_ERROR_UNKNOWN;
    record->pointers.push_back(record->parameters.data() + parameter.offset);
  }
  params->kernelParams = record->pointers.empty() ? nullptr : record->pointers.data();
  return CUDA_SUCCESS;
}

CUstreamBatchMemOpParams program_operation(const vgpu_memory_op& from) {
  CUstreamBatchMemOpParams made{};
  const bool wide = from.bytes == 8;
  if (from.kind == VGPU_MEMORY_OP_BARRIER) {
    made.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    made.memoryBarrier.flags = from.flags;
  } else if (from.kind == VGPU_MEMORY_OP_WAIT) {
    made.waitValue.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    made.waitValue.address = from.address;
    made.waitValue.value64 = from.value;
    made.waitValue.flags = from.flags;
  } else {
    made.writeValue.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    made.writeValue.address = from.address;
    made.writeValue.value64 = from.value;
    made.writeValue.flags = from.flags;
  }
  return made;
}

// The array lives until the node changes or is asked again.
CUresult describe_operations(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  std::vector<std::byte> payload;
  const CUresult result = get_typed(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &payload);
  if (result != CUDA_SUCCESS) return result;
  NodeRecord* const record = node_record(to_wire(node));
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  const size_t count = payload.size() / sizeof(vgpu_memory_op);
  std::lock_guard lock(record->mutex);
  record->parameters.resize(count * sizeof(CUstreamBatchMemOpParams));
  for (size_t i = 0; i < count; ++i) {
    vgpu_memory_op operation;
    std::memcpy(&operation, payload.data() + i * sizeof(operation), sizeof(operation));
    const CUstreamBatchMemOpParams made = program_operation(operation);
    std::memcpy(record->parameters.data() + i * sizeof(made), &made, sizeof(made));
  }
  *params = {to_program(current_context()), static_cast<unsigned>(count),
             reinterpret_cast<CUstreamBatchMemOpParams*>(record->parameters.data()), 0};
  return CUDA_SUCCESS;
}

template <typename Pointer>
void describe_end(const vgpu_copy_end& end, CUmemorytype* type, Pointer* host, CUdeviceptr* device, CUarray* array) {
  switch (end.kind) {
    case VGPU_MEMORY_ARRAY:
      *type = CU_MEMORYTYPE_ARRAY;
      *array = from_wire<CUarray>(end.address);
      break;
    case VGPU_MEMORY_HOST:
      *type = CU_MEMORYTYPE_HOST;
      *host = reinterpret_cast<Pointer>(end.address);
      break;
    default:
      *type = CU_MEMORYTYPE_DEVICE;
      *device = end.address;
      break;
  }
}

CUresult describe_copy(CUgraphNode node, CUDA_MEMCPY3D* params) {
  if (NodeRecord* const record = nodes().find(node)) {
    std::lock_guard lock(record->mutex);
    if (record->asked) {
      *params = *record->asked;
      return health();
    }
  }
  vgpu_copy_node made;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_MEMCPY, &made);
  if (result != CUDA_SUCCESS) return result;
  const vgpu_copy& copy = made.copy;
  *params = {};
  describe_end(copy.source, &params->srcMemoryType, &params->srcHost, &params->srcDevice, &params->srcArray);
  describe_end(copy.destination, &params->dstMemoryType, &params->dstHost, &params->dstDevice, &params->dstArray);
  params->srcXInBytes = copy.source.x_bytes;
  params->srcY = copy.source.y;
  params->srcZ = copy.source.z;
  params->dstXInBytes = copy.destination.x_bytes;
  params->dstY = copy.destination.y;
  params->dstZ = copy.destination.z;
  params->srcPitch = copy.source.pitch;
  params->srcHeight = copy.source.height;
  params->dstPitch = copy.destination.pitch;
  params->dstHeight = copy.destination.height;
  params->WidthInBytes = copy.width_bytes;
  params->Height = copy.height;
  params->Depth = copy.depth;
  return CUDA_SUCCESS;
}

CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent* event) {
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = get_as(node, type, &handle);
  if (result == CUDA_SUCCESS) *event = from_wire<CUevent>(handle);
  return result;
}

CUresult set_event(CUgraphNode node, CUgraphNodeType type, CUevent event) {
  return set_planned(node, type, [&](Call&, NodePlan* plan) { return plan_event(type, event, plan); });
}

// Attributes of kernel nodes that a launch has; the others are hints and read as zero.
CUresult launch_attribute(const vgpu_launch& launch, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  std::memset(value, 0, sizeof(*value));
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      value->cooperative = launch.flags & VGPU_LAUNCH_COOPERATIVE ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      value->clusterDim.x = launch.cluster[0];
      value->clusterDim.y = launch.cluster[1];
      value->clusterDim.z = launch.cluster[2];
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = launch.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_launch_attribute(CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue& value, vgpu_launch* launch) {
  CUkernelNodeAttrValue now;
  const CUresult known = launch_attribute(*launch, attribute, &now);
  if (known != CUDA_SUCCESS) return known;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    launch->flags = (launch->flags & ~VGPU_LAUNCH_COOPERATIVE) | (value.cooperative ? VGPU_LAUNCH_COOPERATIVE : 0);
  } else if (attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
    launch->cluster[0] = value.clusterDim.x;
    launch->cluster[1] = value.clusterDim.y;
    launch->cluster[2] = value.clusterDim.z;
  } else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    launch->priority = value.priority;
  }
  return CUDA_SUCCESS;
}

template <typename Change>
CUresult change_launch(CUgraphNode node, Change change) {
  std::vector<std::byte> payload;
  CUresult result = get_typed(node, CU_GRAPH_NODE_TYPE_KERNEL, &payload);
  if (result != CUDA_SUCCESS) return result;
  vgpu_launch launch;
  if (!read_payload(payload, &launch)) return CUDA_ERROR_UNKNOWN;
  result = change(&launch);
  if (result != CUDA_SUCCESS) return result;
  std::memcpy(payload.data(), &launch, sizeof(launch));
  Call call;
  return wire::node_set(call, to_wire(node), payload);
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return params ? describe_kernel(node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide;
  const CUresult result = describe_kernel(node, &wide);
  if (result == CUDA_SUCCESS) std::memcpy(params, &wide, sizeof(*params));
  return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(node, CU_GRAPH_NODE_TYPE_KERNEL,
                     [&](Call&, NodePlan* plan) { return plan_kernel(*params, plan); });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(*params);
  return cuGraphKernelNodeSetParams_v2(node, &wide);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
  return params ? describe_copy(node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(node, CU_GRAPH_NODE_TYPE_MEMCPY,
                     [&](Call& call, NodePlan* plan) { return plan_copy(call, *params, nullptr, plan); });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  vgpu_fill_node made;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_MEMSET, &made);
  if (result != CUDA_SUCCESS) return result;
  const vgpu_fill& fill = made.fill;
  *params = {fill.address, fill.pitch, fill.value, fill.element_bytes, fill.width, fill.height};
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(node, CU_GRAPH_NODE_TYPE_MEMSET,
                     [&](Call&, NodePlan* plan) { return plan_fill(*params, nullptr, plan); });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  vgpu_host_node made;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_HOST, &made);
  if (result != CUDA_SUCCESS) return result;
  *params = {reinterpret_cast<CUhostFn>(made.function), reinterpret_cast<void*>(made.data)};
  return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(node, CU_GRAPH_NODE_TYPE_HOST, [&](Call&, NodePlan* plan) { return plan_host(*params, plan); });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  return params ? describe_operations(node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                     [&](Call&, NodePlan* plan) { return plan_operations(*params, plan); });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  if (!graph || staged_copy_of(node)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_GRAPH, &handle);
  if (result != CUDA_SUCCESS) return result;
  *graph = from_wire<CUgraph>(handle);
  return adopt_graph(handle) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  vgpu_alloc_node made;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &made);
  if (result != CUDA_SUCCESS) return result;
  *params = {};
  params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params->bytesize = made.bytes;
  params->dptr = made.address;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  vgpu_alloc_node made;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &made);
  if (result == CUDA_SUCCESS) *address = made.address;
  return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  if (!params || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_planned(node, params->type, [&](Call& call, NodePlan* plan) { return plan_node(call, *params, plan); });
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* params) {
  const CUresult result = params ? check_kernel_context(*params) : CUDA_SUCCESS;
  return result != CUDA_SUCCESS ? result : cuGraphNodeSetParams(node, params);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  vgpu_launch launch;
  const CUresult result = get_as(node, CU_GRAPH_NODE_TYPE_KERNEL, &launch);
  return result != CUDA_SUCCESS ? result : launch_attribute(launch, attribute, value);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return change_launch(node, [&](vgpu_launch* launch) { return set_launch_attribute(attribute, *value, launch); });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode destination, CUgraphNode source) {
  vgpu_launch from;
  const CUresult result = get_as(source, CU_GRAPH_NODE_TYPE_KERNEL, &from);
  if (result != CUDA_SUCCESS) return result;
  return change_launch(destination, [&](vgpu_launch* launch) {
    launch->flags = from.flags;
    launch->priority = from.priority;
    std::memcpy(launch->cluster, from.cluster, sizeof(from.cluster));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
