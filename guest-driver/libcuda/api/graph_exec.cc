// Executable graphs.
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/graph_payload.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/launch.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

bool any_graph_allocates() {
  return !AddressMap::get().select([](const Range& range) { return range.kind == RangeKind::kGraph; }).empty();
}

GraphRecord* find_exec(CUgraphExec exec) { return execs().find(exec); }

CUresult instantiate(CUgraphExec* exec, CUgraph graph, uint64_t flags, const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!call.require_context()) return call.status();
  GraphRecord* const record = find_free_graph(graph);
  if (!exec || !record) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
    log_unsupported("graphs launched from the device");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (flags & ~kInstantiateFlags) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult allowed = check_unsafe(call)) return allowed;
  auto made = std::make_unique<GraphRecord>();
  made->flags = flags;
  made->may_keep_memory = any_graph_allocates() && !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  const CUresult result = wire::graph_instantiate(call, record->handle, flags, &made->handle);
  if (result != CUDA_SUCCESS) return result;
  keep_copies(record, made.get());
  *exec = from_wire<CUgraphExec>(made->handle);
  return execs().insert(std::move(made)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

template <typename Plan>
CUresult set_planned(CUgraphExec exec, CUgraphNode node, Plan plan_it) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_exec(exec);
  if (!record || !is_node(node)) return CUDA_ERROR_INVALID_VALUE;
  NodePlan plan;
  CUresult result = plan_it(call, &plan);
  if (result != CUDA_SUCCESS) return result;
  if (plan.moved) return CUDA_ERROR_INVALID_VALUE;  // an executable graph owns none
  // CUDA too lets a node's memory change only within its kind.
  if ((plan.staged != nullptr) != (staged_copy_of(node) != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (plan.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || plan.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
    uint32_t type = 0;  // both have the same content
    result = get_node(call, node, &type, nullptr);
    if (result == CUDA_SUCCESS && type != static_cast<uint32_t>(plan.type)) result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) return result;
  }
  result = wire::exec_node_set(call, record->handle, to_wire(node), plan.payload);
  if (result == CUDA_ERROR_INVALID_HANDLE) return CUDA_ERROR_INVALID_VALUE;  // a node of another type
  if (result != CUDA_SUCCESS) return result;
  if (plan.staged) {
    std::lock_guard lock(record->mutex);
    record->copies.insert(plan.staged);
  }
  keep_copies(find_graph(plan.inner), record);
  return CUDA_SUCCESS;
}

CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult* outcome, CUgraphNode* error_node) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_exec(exec);
  GraphRecord* const from = find_free_graph(graph);
  if (!record || !from) return CUDA_ERROR_INVALID_VALUE;
  uint32_t number = CU_GRAPH_EXEC_UPDATE_ERROR;
  uint64_t node = 0;
  const CUresult result = wire::exec_update(call, record->handle, from->handle, &number, &node);
  *outcome = static_cast<CUgraphExecUpdateResult>(number);
  *error_node = from_wire<CUgraphNode>(node);
  if (result == CUDA_SUCCESS && *outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    let_go_behind_launches(call, record);
    keep_copies(from, record);
  }
  if (result != CUDA_SUCCESS) return result;
  return *outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult check_launch_of(Call& call, CUgraphExec exec, CUstream stream, GraphRecord** record, uint64_t* on) {
  *record = find_exec(exec);
  if (!*record) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_work_stream(stream, on);
  return result == CUDA_SUCCESS ? refuse_captured(call, *on) : result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  if (error_node) *error_node = nullptr;
  if (log && log_bytes) *log = 0;
  return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  // Uploading ahead is a matter of speed; there is nothing to upload here.
  const CUresult result = instantiate(exec, graph, params->flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_exec(exec);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::exec_destroy(call, record->handle);
  if (result != CUDA_SUCCESS) return result;
  let_go_behind_launches(call, record);
  forget_graph(record);
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  const GraphRecord* const record = find_exec(exec);
  if (!record || !flags) return CUDA_ERROR_INVALID_VALUE;
  *flags =
      record->flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};  // nor does NVIDIA's driver tell it
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  GraphRecord* record = nullptr;
  uint64_t on = 0;
  CUresult result = check_launch_of(call, exec, stream, &record, &on);
  if (result == CUDA_SUCCESS) {
    const DeviceWork work(call, on, true);
    result = work.status();
    if (result == CUDA_SUCCESS) result = wire::exec_launch(call, record->handle, on);
  }
  if (result == CUDA_SUCCESS) record->launched_on.store(on, std::memory_order_relaxed);
  // Only the device knows whether what the last launch allocated is freed: this call tells it, not a later one.
  if (result == CUDA_SUCCESS && record->may_keep_memory) result = take_late_error(call);
  return result == CUDA_SUCCESS ? after_launch(call, on) : result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  GraphRecord* record = nullptr;
  uint64_t on = 0;
  return check_launch_of(call, exec, stream, &record, &on);  // nothing to upload: graphs live beside the device
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  if (!info) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  return update(exec, graph, &info->result, &info->errorNode);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* outcome) {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_ERROR;
  CUgraphNode node = nullptr;
  const CUresult updated = update(exec, graph, &result, &node);
  if (error_node) *error_node = node;
  if (outcome) *outcome = result;
  return updated;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_exec(exec);
  if (!record || !is_node(node)) return CUDA_ERROR_INVALID_VALUE;
  return wire::exec_node_enable(call, record->handle, to_wire(node), enabled ? 1 : 0);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  Call call;
  if (call.failed()) return call.status();
  GraphRecord* const record = find_exec(exec);
  if (!record || !is_node(node) || !enabled) return CUDA_ERROR_INVALID_VALUE;
  return wire::exec_node_enabled(call, record->handle, to_wire(node), enabled);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call&, NodePlan* plan) { return plan_kernel(*params, plan); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call&, NodePlan* plan) { return plan_kernel(widen(*params), plan); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params,
                                        CUcontext context) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call& call, NodePlan* plan) { return plan_copy(call, *params, context, plan); });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1* params,
                                        CUcontext context) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call&, NodePlan* plan) { return plan_fill(*params, context, plan); });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call&, NodePlan* plan) { return plan_operations(*params, plan); });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return set_planned(exec, node, [&](Call&, NodePlan* plan) { return plan_host(*params, plan); });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return set_planned(
      exec, node, [&](Call&, NodePlan* plan) { return plan_child(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, plan); });
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_planned(exec, node,
                     [&](Call&, NodePlan* plan) { return plan_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, plan); });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_planned(exec, node,
                     [&](Call&, NodePlan* plan) { return plan_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, plan); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  if (!params || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_planned(exec, node, [&](Call& call, NodePlan* plan) { return plan_node(call, *params, plan); });
}

}  // extern "C"
