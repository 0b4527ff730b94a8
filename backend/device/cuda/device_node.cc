// What graph nodes hold: from NodeContent to the driver's structures and back.
#include <algorithm>
#include <cstring>

#include "backend/device/cuda/cuda_device.h"
#include "backend/device/cuda/memory_operations.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

vgpu_fill from_driver(const CUDA_MEMSET_NODE_PARAMS& params) {
  vgpu_fill fill{};
  fill.address = params.dst;
  fill.pitch = params.pitch;
  fill.width = params.width;
  fill.height = params.height;
  fill.element_bytes = params.elementSize;
  fill.value = params.value;
  return fill;
}

CUDA_MEM_ALLOC_NODE_PARAMS allocation(CUdevice device, uint64_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = device;
  params.bytesize = bytes;
  return params;
}

CUgraphNodeParams child_params(const NodeContent& content) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = as(content.child).handle;
  params.graph.ownership = content.moved ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  return params;
}

// A node tells its parameters either as pointers or as the packed buffer that its launch gave.
bool read_parameters(const CUDA_KERNEL_NODE_PARAMS& params, const Parameters& list, std::vector<std::byte>* bytes) {
  size_t end = 0;
  for (const vgpu_parameter& parameter : list) end = std::max<size_t>(end, parameter.offset + parameter.bytes);
  bytes->assign(end, std::byte{0});
  if (params.kernelParams) {
    for (size_t i = 0; i < list.size(); ++i) {
      std::memcpy(bytes->data() + list[i].offset, params.kernelParams[i], list[i].bytes);
    }
    return true;
  }
  const void* buffer = nullptr;
  size_t size = 0;
  for (void** at = params.extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (at[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
    if (at[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const size_t*>(at[1]);
  }
  if (buffer) std::memcpy(bytes->data(), buffer, std::min(size, end));
  return buffer || end == 0;
}

}  // namespace

CUDA_MEMSET_NODE_PARAMS to_driver(const vgpu_fill& fill) {
  CUDA_MEMSET_NODE_PARAMS made{};
  made.dst = fill.address;
  made.pitch = fill.pitch;
  made.value = fill.value;
  made.elementSize = fill.element_bytes;
  made.width = fill.width;
  made.height = fill.height ? fill.height : 1;
  return made;
}

CUresult CudaDevice::kernel_params(const Launch& launch, KernelParams* out) {
  CUDA_KERNEL_NODE_PARAMS& params = out->params;
  if (launch.code.kernel) {
    params.kern = as(launch.code.kernel).handle;
  } else {
    params.func = as(launch.code.function).handle;
  }
  params.gridDimX = launch.grid[0];
  params.gridDimY = launch.grid[1];
  params.gridDimZ = launch.grid[2];
  params.blockDimX = launch.block[0];
  params.blockDimY = launch.block[1];
  params.blockDimZ = launch.block[2];
  params.sharedMemBytes = launch.shared_bytes;
  for (const vgpu_parameter& parameter : code_parameters(launch.code)) {
    if (parameter.bytes > launch.parameters.size() || parameter.offset > launch.parameters.size() - parameter.bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    out->pointers.push_back(const_cast<std::byte*>(launch.parameters.data()) + parameter.offset);
  }
  params.kernelParams = out->pointers.empty() ? nullptr : out->pointers.data();
  return CUDA_SUCCESS;
}

CUresult CudaDevice::set_kernel_attributes(CUgraphNode node, const Launch& launch) {
  CUlaunchAttributeValue value{};
  if (launch.cooperative) {
    keep_no_more();
    value.cooperative = 1;
    if (const CUresult result = driver_->cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value)) {
      return result;
    }
  }
  if (launch.cluster[0] != 0) {
    value = {};
    value.clusterDim = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
    return driver_->cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
  }
  return CUDA_SUCCESS;
}

CUresult CudaDevice::add_kernel(CUgraph graph, const std::vector<CUgraphNode>& after, const Launch& launch,
                                CUgraphNode* node) {
  KernelParams kernel;
  CUresult result = kernel_params(launch, &kernel);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuGraphAddKernelNode(node, graph, after.data(), after.size(), &kernel.params);
  }
  return result == CUDA_SUCCESS ? set_kernel_attributes(*node, launch) : result;
}

// A node of any kind; `value` gets what the driver chose, which only allocations have.
CUresult CudaDevice::add_content(CUgraph graph, const std::vector<CUgraphNode>& after, const NodeContent& content,
                                 HostFunction* host, CUgraphNode* node, uint64_t* value) {
  const Driver& driver = *driver_;
  const CUgraphNode* const first = after.data();
  const size_t count = after.size();
  const CUcontext context = own_context()->handle;
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add_kernel(graph, after, launch_of(content), node);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D copy = to_driver(content.copy);
      return driver.cuGraphAddMemcpyNode(node, graph, first, count, &copy, context);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS fill = to_driver(content.fill);
      return driver.cuGraphAddMemsetNode(node, graph, first, count, &fill, context);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS call{run_host_function, host};
      return driver.cuGraphAddHostNode(node, graph, first, count, &call);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      if (!content.moved) {
        return driver.cuGraphAddChildGraphNode(node, graph, first, count, as(content.child).handle);
      }
      CUgraphNodeParams params = child_params(content);
      return driver.cuGraphAddNode(node, graph, first, nullptr, count, &params);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return driver.cuGraphAddEmptyNode(node, graph, first, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return driver.cuGraphAddEventWaitNode(node, graph, first, count, as(content.event).handle);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      graph_records_ = true;
      return driver.cuGraphAddEventRecordNode(node, graph, first, count, as(content.event).handle);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      if (guarded_) return CUDA_ERROR_NOT_SUPPORTED;  // the driver chooses its address
      CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(device_, content.bytes);
      graphs_allocate_ = true;
      const CUresult result = driver.cuGraphAddMemAllocNode(node, graph, first, count, &params);
      *value = params.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      MemoryOperations batch(content, context);
      return driver.cuGraphAddBatchMemOpNode(node, graph, first, count, batch.params());
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return driver.cuGraphAddMemFreeNode(node, graph, first, count, content.address);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

Launch CudaDevice::launch_of(const NodeContent& content) {
  Launch launch = content.launch;
  launch.parameters = content.parameter_bytes;
  return launch;
}

CUresult CudaDevice::get_kernel(CUgraphNode node, NodeContent* content) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (const CUresult result = driver_->cuGraphKernelNodeGetParams(node, &params)) return result;
  Launch& launch = content->launch;
  launch.code = code_of(params.func, params.kern);
  if (!launch.code.kernel && !launch.code.function) {
    log::warn("a graph node runs a kernel that nobody loaded here");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const uint32_t grid[] = {params.gridDimX, params.gridDimY, params.gridDimZ};
  const uint32_t block[] = {params.blockDimX, params.blockDimY, params.blockDimZ};
  std::copy_n(grid, 3, launch.grid);
  std::copy_n(block, 3, launch.block);
  launch.shared_bytes = params.sharedMemBytes;
  if (!read_parameters(params, code_parameters(launch.code), &content->parameter_bytes)) {
    log::warn("a graph node's kernel does not tell its parameters");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  launch.parameters = content->parameter_bytes;
  CUlaunchAttributeValue value{};
  if (driver_->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS) {
    launch.cooperative = value.cooperative != 0;
  }
  value = {};
  if (driver_->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) == CUDA_SUCCESS) {
    launch.cluster[0] = value.clusterDim.x;
    launch.cluster[1] = value.clusterDim.y;
    launch.cluster[2] = value.clusterDim.z;
  }
  return CUDA_SUCCESS;
}

CUresult CudaDevice::get_host(CudaNode& node, NodeContent* content) {
  CUDA_HOST_NODE_PARAMS params{};
  if (const CUresult result = driver_->cuGraphHostNodeGetParams(node.handle, &params)) return result;
  if (params.fn != run_host_function) return CUDA_ERROR_NOT_SUPPORTED;
  content->host = static_cast<const HostFunction*>(params.userData)->callback;
  return CUDA_SUCCESS;
}

// What the node had before has gone with the driver's call.
void CudaDevice::took_child(const CudaGraphRef& graph, CudaNode& node, const NodeContent& content) {
  forget_inner(node);
  node.child = nullptr;
  if (!content.moved) return graph->keep_functions_of(as(content.child));
  node.child = as(content.child).handle;
  std::lock_guard lock(graphs_mutex_);
  graphs_[node.child] = CudaGraph::within(graph, std::static_pointer_cast<CudaGraph>(content.child));
}

CUresult CudaDevice::get_child(CudaNode& node, NodeContent* content) {
  CUgraph child = nullptr;
  if (const CUresult result = driver_->cuGraphChildGraphNodeGetGraph(node.handle, &child)) return result;
  const CudaGraphRef graph = node.graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  node.child = child;
  content->child = wrap_inner(graph, child);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::get_allocation(CudaNode& node, CUgraphNodeType type, NodeContent* content) {
  content->pool = node.pool;
  if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    CUdeviceptr address = 0;
    const CUresult result = driver_->cuGraphMemFreeNodeGetParams(node.handle, &address);
    content->address = address;
    return result;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  const CUresult result = driver_->cuGraphMemAllocNodeGetParams(node.handle, &params);
  content->bytes = params.bytesize;
  content->address = params.dptr;
  return result;
}

CUresult CudaDevice::get_content(CudaNode& node, CUgraphNodeType type, NodeContent* content) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return get_kernel(node.handle, content);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D copy{};
      const CUresult result = driver_->cuGraphMemcpyNodeGetParams(node.handle, &copy);
      content->copy = copy_of(copy);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      const CUresult result = driver_->cuGraphMemsetNodeGetParams(node.handle, &fill);
      content->fill = from_driver(fill);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return get_host(node, content);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return get_child(node, content);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      content->event = node.event;  // none: a captured one, whose event the guest knows better
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return get_allocation(node, type, content);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
      const CUresult result = driver_->cuGraphBatchMemOpNodeGetParams(node.handle, &params);
      if (result == CUDA_SUCCESS) content->operations = operations_of(params);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      content->conditional = node.conditional;
      if (!node.bodies.empty()) return CUDA_SUCCESS;
      log::warn("a conditional node of a cloned graph does not tell what it is");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_SUCCESS;
  }
}

CUresult CudaDevice::node_get(const NodeRef& node, NodeContent* content) {
  if (const CUresult result = enter()) return result;
  CudaNode& from = as(node);
  if (!from.graph.lock()) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = driver_->cuGraphNodeGetType(from.handle, &content->type);
  if (result == CUDA_SUCCESS) result = get_content(from, content->type, content);
  return check(result);
}

CUresult CudaDevice::node_set(const NodeRef& node, const NodeContent& content) {
  if (const CUresult result = enter()) return result;
  CudaNode& to = as(node);
  const CudaGraphRef graph = to.graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      KernelParams kernel;
      const Launch launch = launch_of(content);
      CUresult result = kernel_params(launch, &kernel);
      if (result == CUDA_SUCCESS) result = driver_->cuGraphKernelNodeSetParams(to.handle, &kernel.params);
      return check(result == CUDA_SUCCESS ? set_kernel_attributes(to.handle, launch) : result);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D copy = to_driver(content.copy);
      return check(driver_->cuGraphMemcpyNodeSetParams(to.handle, &copy));
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS fill = to_driver(content.fill);
      return check(driver_->cuGraphMemsetNodeSetParams(to.handle, &fill));
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      auto host = std::make_shared<HostFunction>(HostFunction{host_, content.host});
      const CUDA_HOST_NODE_PARAMS call{run_host_function, host.get()};
      const CUresult result = check(driver_->cuGraphHostNodeSetParams(to.handle, &call));
      if (result == CUDA_SUCCESS) graph->keep(std::move(host));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      CUgraphNodeParams params = child_params(content);
      const CUresult result = check(driver_->cuGraphNodeSetParams(to.handle, &params));
      if (result == CUDA_SUCCESS) took_child(graph, to, content);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      graph_records_ = graph_records_ || content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
      const CUevent event = as(content.event).handle;
      const CUresult result = content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT
                                  ? driver_->cuGraphEventWaitNodeSetEvent(to.handle, event)
                                  : driver_->cuGraphEventRecordNodeSetEvent(to.handle, event);
      if (result == CUDA_SUCCESS) to.event = content.event;
      return check(result);
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      MemoryOperations batch(content, own_context()->handle);
      return check(driver_->cuGraphBatchMemOpNodeSetParams(to.handle, batch.params()));
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace bandsaw::cuda
