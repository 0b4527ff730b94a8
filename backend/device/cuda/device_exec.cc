// Executable graphs. A launch is one call of the driver's, whatever the graph holds.
#include "backend/device/cuda/cuda_device.h"
#include "backend/device/cuda/memory_operations.h"

namespace bandsaw::cuda {

CUresult CudaDevice::graph_instantiate(const ContextRef& context, const GraphRef& graph, uint64_t flags,
                                       ExecRef* exec) {
  if (const CUresult result = enter(as(context))) return result;
  CUgraphExec made = nullptr;
  const CUresult result = check(driver_->cuGraphInstantiateWithFlags(&made, as(graph).handle, flags));
  if (result != CUDA_SUCCESS) return result;
  auto wrapped = std::make_shared<CudaExec>(driver_, made, as(context));
  wrapped->keep(std::static_pointer_cast<CudaGraph>(graph));
  wrapped->flags = flags;
  *exec = std::move(wrapped);
  if (config_.replaceable) keep_copy(graph, *exec);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::exec_update(const ExecRef& exec, const GraphRef& graph, CUgraphExecUpdateResult* result,
                                 NodeRef* error_node) {
  if (const CUresult error = enter(as(exec).context)) return error;
  CUgraphExecUpdateResultInfo info{};
  const CUresult updated = driver_->cuGraphExecUpdate(as(exec).handle, as(graph).handle, &info);
  *result = info.result;
  const auto from = std::static_pointer_cast<CudaGraph>(graph);
  if (info.errorNode) *error_node = wrap_node(from, info.errorNode);
  if (updated == CUDA_SUCCESS) as(exec).keep(from);
  if (updated == CUDA_SUCCESS) lose_copy(exec, "an executable graph on a GPU that was updated as a whole");
  return check(updated);
}

CUresult CudaDevice::exec_node_set(const ExecRef& exec, const NodeRef& node, const NodeContent& content) {
  const CUresult result = set_in_exec(exec, node, content);
  if (result == CUDA_SUCCESS) copy_changed(exec, node, content);
  return result;
}

CUresult CudaDevice::set_in_exec(const ExecRef& exec, const NodeRef& node, const NodeContent& content) {
  if (const CUresult result = enter(as(exec).context)) return result;
  const CUgraphExec to = as(exec).handle;
  const CUgraphNode at = as(node).handle;
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      KernelParams kernel;
      const Launch launch = launch_of(content);
      const CUresult result = kernel_params(launch, &kernel);
      return check(result == CUDA_SUCCESS ? driver_->cuGraphExecKernelNodeSetParams(to, at, &kernel.params) : result);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D copy = to_driver(content.copy);
      return check(driver_->cuGraphExecMemcpyNodeSetParams(to, at, &copy, as(exec).context->handle));
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS fill = to_driver(content.fill);
      return check(driver_->cuGraphExecMemsetNodeSetParams(to, at, &fill, as(exec).context->handle));
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      auto host = std::make_shared<HostFunction>(HostFunction{host_, content.host});
      const CUDA_HOST_NODE_PARAMS call{run_host_function, host.get()};
      const CUresult result = check(driver_->cuGraphExecHostNodeSetParams(to, at, &call));
      if (result == CUDA_SUCCESS) as(exec).keep(std::move(host));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const CUresult result = check(driver_->cuGraphExecChildGraphNodeSetParams(to, at, as(content.child).handle));
      if (result == CUDA_SUCCESS) as(exec).keep(std::static_pointer_cast<CudaGraph>(content.child));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return check(driver_->cuGraphExecEventWaitNodeSetEvent(to, at, as(content.event).handle));
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return check(driver_->cuGraphExecEventRecordNodeSetEvent(to, at, as(content.event).handle));
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      MemoryOperations batch(content, as(exec).context->handle);
      return check(driver_->cuGraphExecBatchMemOpNodeSetParams(to, at, batch.params()));
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult CudaDevice::exec_node_enable(const ExecRef& exec, const NodeRef& node, bool enabled) {
  const CUresult result = check(driver_->cuGraphNodeSetEnabled(as(exec).handle, as(node).handle, enabled ? 1 : 0));
  if (result == CUDA_SUCCESS) copy_enabled(exec, node, enabled);
  return result;
}

CUresult CudaDevice::exec_node_enabled(const ExecRef& exec, const NodeRef& node, bool* enabled) {
  unsigned value = 0;
  const CUresult result = driver_->cuGraphNodeGetEnabled(as(exec).handle, as(node).handle, &value);
  *enabled = value != 0;
  return check(result);
}

// The memory of allocation nodes is there, and counts, before the graph is launched: uploading a graph maps it. What
// was mapped stays until it is trimmed.
CUresult CudaDevice::map_graph(CudaExec& exec, CUstream stream) {
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(stream, &error)) return CUDA_SUCCESS;  // it becomes a node
  const auto map = [&] {
    const uint64_t trims = graph_memory_->trims();
    if (exec.mapped_at == trims) return CUDA_SUCCESS;
    const CUresult result = driver_->cuGraphUpload(exec.handle, stream);
    if (result != CUDA_SUCCESS) return result;
    if (!graph_memory_->settle()) return CUDA_ERROR_OUT_OF_MEMORY;
    exec.mapped_at = trims;
    return CUDA_SUCCESS;
  };
  const CUresult result = error == CUDA_SUCCESS ? with_room(map) : error;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) graph_memory_->trim();
  return check(result);
}

// The driver tells when a graph begins and ends, not its nodes. All of that time is the compute engine's, if it has
// work for that; what its copies take on other engines is estimated.
void CudaDevice::measure_graph(const Exec& exec, const StreamRef& stream) {
  unsigned whole = kCompute;
  for (const unsigned engine : {kCopyOut, kCopyIn, kCompute}) {
    if (exec.nodes[engine] != 0) whole = engine;
  }
  measure(whole, stream, exec.bytes[whole]);
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(as(stream).handle, &error)) return;
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    if (engine != whole && exec.bytes[engine] != 0) time_slices_->estimate(engine, exec.bytes[engine]);
  }
}

CUresult CudaDevice::exec_launch(const ExecRef& exec, const StreamRef& stream) {
  if (const CUresult result = enter(stream)) return result;
  measure_graph(*exec, stream);
  const bool allocates = graphs_allocate_;
  if (const CUresult result = allocates ? map_graph(as(exec), as(stream).handle) : CUDA_SUCCESS) return result;
  CUresult result = check(driver_->cuGraphLaunch(as(exec).handle, as(stream).handle));
  work_goes_on(stream);
  if (allocates) graph_memory_->settle();
  auto functions = as(exec).functions();
  if (result == CUDA_SUCCESS && functions)
    result =
        completions_->after(std::static_pointer_cast<CudaStream>(stream), [kept = std::move(functions)](CUresult) {});
  return result;
}

CUresult CudaDevice::graph_memory_get(CUgraphMem_attribute attribute, uint64_t* value) {
  if (const CUresult result = enter()) return result;
  cuuint64_t bytes = 0;
  const CUresult result = driver_->cuDeviceGetGraphMemAttribute(device_, attribute, &bytes);
  *value = bytes;
  return check(result);
}

CUresult CudaDevice::graph_memory_reset(CUgraphMem_attribute attribute) {
  if (const CUresult result = enter()) return result;
  cuuint64_t zero = 0;
  return check(driver_->cuDeviceSetGraphMemAttribute(device_, attribute, &zero));
}

CUresult CudaDevice::graph_memory_trim() {
  if (const CUresult result = enter()) return result;
  if (graphs_allocate_) graph_memory_->trim();
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
