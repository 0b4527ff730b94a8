#include "guest-driver/libcuda/api/graph_payload.h"

#include <cstring>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/copy_shape.h"
#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/launch.h"
#include "guest-driver/libcuda/api/memory_op.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

template <typename T>
void append(const T& value, std::vector<std::byte>* payload) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  payload->insert(payload->end(), bytes.begin(), bytes.end());
}

}  // namespace

NodePlan::~NodePlan() {
  if (!child) return;
  Call call;
  wire::graph_destroy(call, child);
}

CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide{};
  std::memcpy(&wide, &params, sizeof(params));  // the newer structure only has more at its end
  return wide;
}

CUresult plan_kernel(const CUDA_KERNEL_NODE_PARAMS_v2& params, NodePlan* plan) {
  FunctionRecord* const function = params.func ? find_function(params.func) : find_function(params.kern);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_launch launch{};
  launch.function = function->handle;
  const unsigned grid[3] = {params.gridDimX, params.gridDimY, params.gridDimZ};
  const unsigned block[3] = {params.blockDimX, params.blockDimY, params.blockDimZ};
  std::memcpy(launch.grid, grid, sizeof(grid));
  std::memcpy(launch.block, block, sizeof(block));
  launch.shared_bytes = params.sharedMemBytes;
  CUresult result = check_launch(function, launch);
  if (result != CUDA_SUCCESS) return result;
  ParameterBuffer buffer;
  result = pack_parameters(*function, params.kernelParams, params.extra, &buffer);
  if (result != CUDA_SUCCESS) return result;
  plan->type = CU_GRAPH_NODE_TYPE_KERNEL;
  append(launch, &plan->payload);
  plan->payload.insert(plan->payload.end(), buffer.bytes, buffer.bytes + function->parameter_bytes);
  return CUDA_SUCCESS;
}

CUresult check_kernel_context(const CUgraphNodeParams& params) {
  if (params.type != CU_GRAPH_NODE_TYPE_KERNEL || !params.kernel.func || !params.kernel.ctx) return CUDA_SUCCESS;
  const FunctionRecord* const function = find_function(params.kernel.func);
  if (!function || !function->context) return CUDA_SUCCESS;
  return wire_context(params.kernel.ctx) == function->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult plan_copy(Call& call, const CUDA_MEMCPY3D& params, CUcontext context, NodePlan* plan) {
  ShapedCopy shaped;
  CUresult result = shape_of(params, &shaped);
  if (result != CUDA_SUCCESS) return result;
  CopyPayload made;
  result = copy_payload(call, shaped.copy, shaped.destination, shaped.source, context, &made);
  if (result != CUDA_SUCCESS) return result;
  plan->type = made.type;
  plan->payload = std::move(made.payload);
  plan->staged = std::move(made.staged);
  plan->child = made.child;
  plan->asked = params;
  return CUDA_SUCCESS;
}

CUresult plan_fill(const CUDA_MEMSET_NODE_PARAMS_v1& params, CUcontext context, NodePlan* plan) {
  const uint32_t element = params.elementSize;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!params.dst || params.dst % element || !params.width || !params.height) return CUDA_ERROR_INVALID_VALUE;
  uint64_t row = 0, span = 0;
  if (__builtin_mul_overflow(params.width, element, &row) ||
      __builtin_mul_overflow(params.height - 1, params.pitch, &span) || __builtin_add_overflow(span, row, &span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params.height > 1 && (params.pitch < row || params.pitch % element)) return CUDA_ERROR_INVALID_VALUE;
  const vgpu_fill fill{params.dst,  params.height > 1 ? params.pitch : 0, params.width, params.height, element,
                       params.value};
  const auto range = range_around(params.dst);
  if (!range || !AddressMap::get().covers(*range, params.dst, span)) return CUDA_ERROR_INVALID_VALUE;
  plan->type = CU_GRAPH_NODE_TYPE_MEMSET;
  append(vgpu_fill_node{fill, wire_context(context)}, &plan->payload);
  return CUDA_SUCCESS;
}

CUresult plan_host(const CUDA_HOST_NODE_PARAMS_v1& params, NodePlan* plan) {
  if (!params.fn) return CUDA_ERROR_INVALID_VALUE;
  plan->type = CU_GRAPH_NODE_TYPE_HOST;
  append(vgpu_host_node{reinterpret_cast<uint64_t>(params.fn), to_wire(params.userData)}, &plan->payload);
  return start_callback_thread(current_gpu());
}

CUresult plan_child(CUgraph child, CUgraphChildGraphNodeOwnership ownership, NodePlan* plan) {
  const bool moved = ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (!find_free_graph(child) || (!moved && ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plan->inner = to_wire(child);
  plan->moved = moved;
  plan->type = CU_GRAPH_NODE_TYPE_GRAPH;
  append(to_wire(child), &plan->payload);
  if (moved) append(uint64_t{0}, &plan->payload);  // vgpu_moved_child_node
  return CUDA_SUCCESS;
}

void took_child(const NodePlan& plan, GraphRecord* to) {
  GraphRecord* const child = find_graph(plan.inner);
  keep_copies(child, to);
  if (!child || !plan.moved) return;
  std::lock_guard lock(child->mutex);
  child->moved = true;
  child->kept.clear();  // its user objects go with `to`
}

CUresult plan_event(CUgraphNodeType type, CUevent event, NodePlan* plan) {
  if (!events().find(event)) return CUDA_ERROR_INVALID_VALUE;
  plan->type = type;
  append(to_wire(event), &plan->payload);
  return CUDA_SUCCESS;
}

CUresult plan_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v1& params, NodePlan* plan) {
  const CUmemPoolProps& props = params.poolProps;
  if (!params.bytesize || props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || props.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      props.location.id != 0 || (params.accessDescCount && !params.accessDescs)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plan->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  append(vgpu_alloc_node{0, params.bytesize, 0}, &plan->payload);
  return CUDA_SUCCESS;
}

CUresult plan_free(CUdeviceptr address, NodePlan* plan) {
  const auto range = AddressMap::get().find(address);
  if (!range || range->base != address || range->kind != RangeKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  plan->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  append(vgpu_alloc_node{0, 0, address}, &plan->payload);
  return CUDA_SUCCESS;
}

namespace {

CUresult plan_operation(const CUstreamBatchMemOpParams& from, vgpu_memory_op* made) {
  constexpr unsigned kComparisons = CU_STREAM_WAIT_VALUE_NOR;
  if (const CUresult result = wire_operation(from, made); result != CUDA_SUCCESS) return result;
  if (made->kind == VGPU_MEMORY_OP_BARRIER) return CUDA_SUCCESS;
  if (made->kind == VGPU_MEMORY_OP_WAIT && made->flags > kComparisons) return CUDA_ERROR_NOT_SUPPORTED;  // FLUSH
  return check_word(made->address, made->bytes);
}

}  // namespace

CUresult plan_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params, NodePlan* plan) {
  if (!params.paramArray || !params.count || params.count > VGPU_MEMORY_OPS_MAX || params.flags) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plan->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  for (unsigned i = 0; i < params.count; ++i) {
    vgpu_memory_op operation{};
    const CUresult result = plan_operation(params.paramArray[i], &operation);
    if (result != CUDA_SUCCESS) return result;
    append(operation, &plan->payload);
  }
  return CUDA_SUCCESS;
}

CUresult plan_node(Call& call, const CUgraphNodeParams& params, NodePlan* plan) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS_v2 kernel;
      static_assert(sizeof(kernel) == sizeof(params.kernel));
      std::memcpy(&kernel, &params.kernel, sizeof(kernel));
      return plan_kernel(kernel, plan);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags || params.memcpy.reserved) return CUDA_ERROR_INVALID_VALUE;
      return plan_copy(call, params.memcpy.copyParams, params.memcpy.copyCtx, plan);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& fill = params.memset;
      return plan_fill({fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height}, fill.ctx, plan);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return plan_host({params.host.fn, params.host.userData}, plan);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return plan_child(params.graph.graph, params.graph.ownership, plan);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      plan->type = CU_GRAPH_NODE_TYPE_EMPTY;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return plan_event(params.type, params.eventWait.event, plan);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return plan_event(params.type, params.eventRecord.event, plan);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      const auto& alloc = params.alloc;
      return plan_alloc({alloc.poolProps, alloc.accessDescs, alloc.accessDescCount, alloc.bytesize, alloc.dptr}, plan);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return plan_free(params.free.dptr, plan);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const auto& batch = params.memOp;
      return plan_operations({batch.ctx, batch.count, batch.paramArray, batch.flags}, plan);
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      const auto& conditional = params.conditional;
      if (!conditional.size || conditional.size > VGPU_CONDITIONAL_BODIES_MAX) return CUDA_ERROR_INVALID_VALUE;
      plan->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
      append(vgpu_conditional_node{conditional.handle, static_cast<uint32_t>(conditional.type), conditional.size},
             &plan->payload);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      log_unsupported("graph nodes for external semaphores");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace bandsaw::libcuda
