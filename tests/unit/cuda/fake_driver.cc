#include "tests/unit/cuda/fake_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace bandsaw::cuda {

FakeGpu& fake_gpu() {
  static FakeGpu gpu;
  return gpu;
}

}  // namespace bandsaw::cuda

using bandsaw::cuda::fake_gpu;

namespace {

uint64_t next_handle = 0x1000;

template <typename Handle>
CUresult make(Handle* handle) {
  return *handle = reinterpret_cast<Handle>(next_handle += 0x10), CUDA_SUCCESS;
}

constexpr uint64_t kStreams = 0x100000;

// What lies there: of the beginning of a mapping, whose content stands for all of it, or of a variable.
int* content_at(CUdeviceptr address) {
  auto& gpu = fake_gpu();
  if (const auto found = gpu.mapped.find(address); found != gpu.mapped.end()) {
    return &gpu.memory.at(found->second).content;
  }
  for (auto& [name, variable] : gpu.variables) {
    if (variable.address == address) return &variable.content;
  }
  return nullptr;
}

CUresult put(const char* what, CUstream stream) {
  const auto number = reinterpret_cast<uint64_t>(stream);
  const char name = stream == CU_STREAM_LEGACY ? 'L' : static_cast<char>('a' + number - kStreams);
  return fake_gpu().calls.push_back(std::string(what) + " " + name), CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "NAME", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "text", CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT             ? 10
           : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR ? 2048
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR       ? 9
           : which == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS         ? fake_gpu().reaches_all
                                                                         : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return ++fake_gpu().primaries, make(context); }
CUresult cuDevicePrimaryCtxReset(CUdevice) { return fake_gpu().greens ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return --fake_gpu().primaries, CUDA_SUCCESS; }
CUresult cuDeviceGetDevResource(CUdevice, CUdevResource* all, CUdevResourceType type) {
  if (fake_gpu().sms == 0) return CUDA_ERROR_NOT_SUPPORTED;
  *all = {};
  all->type = type;
  all->sm.smCount = fake_gpu().sms;
  return CUDA_SUCCESS;
}
CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count, const CUdevResource* all,
                                     CUdevResource* rest, unsigned, unsigned least) {
  const unsigned possible = all->sm.smCount / least;
  *count = groups ? std::min(*count, possible) : possible;
  for (unsigned i = 0; groups && i < *count; ++i) {
    groups[i] = *all;
    groups[i].sm.smCount = least;
  }
  if (!rest) return CUDA_SUCCESS;
  *rest = *all;
  rest->sm.smCount = all->sm.smCount - *count * least;
  if (rest->sm.smCount == 0) rest->type = CU_DEV_RESOURCE_TYPE_INVALID;
  return CUDA_SUCCESS;
}
// A description is the number of its SMs.
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* parts, unsigned count) {
  uint64_t sms = 0;
  for (unsigned i = 0; i < count; ++i) sms += parts[i].sm.smCount;
  return *description = reinterpret_cast<CUdevResourceDesc>(sms), CUDA_SUCCESS;
}
CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc description, CUdevice, unsigned flags) {
  auto& gpu = fake_gpu();
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM || gpu.primaries == 0) return CUDA_ERROR_INVALID_VALUE;
  if (gpu.failures > 0) return --gpu.failures, CUDA_ERROR_OUT_OF_MEMORY;
  ++gpu.greens;
  gpu.green_sms = static_cast<uint32_t>(reinterpret_cast<uint64_t>(description));
  return make(green);
}
CUresult cuGreenCtxDestroy(CUgreenCtx) { return --fake_gpu().greens, CUDA_SUCCESS; }
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx) { return make(context); }
CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice) {
  ++fake_gpu().contexts;
  return make(context);
}
CUresult cuCtxDestroy(CUcontext) { return --fake_gpu().contexts, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
// A wait for all that a context has ends what captures there.
CUresult cuCtxSynchronize() {
  ++fake_gpu().waits;
  return fake_gpu().capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t* value, CUlimit limit) { return *value = fake_gpu().limits[limit], CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return fake_gpu().limits[limit] = value, CUDA_SUCCESS; }
CUresult cuMemGetInfo(size_t* free, size_t* total) { return *free = *total = size_t{1} << 40, CUDA_SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return *bytes = 2u << 20, CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* at, size_t, size_t, CUdeviceptr wanted, unsigned long long) {
  return *at = wanted, CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long) {
  const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (on_device && fake_gpu().no_device_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle += 0x10;
  fake_gpu().host_memory_made += on_device ? 0 : 1;
  fake_gpu().memory[*handle] = {bytes, on_device, 0};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return fake_gpu().memory.erase(handle), CUDA_SUCCESS; }
CUresult cuMemMap(CUdeviceptr address, size_t, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  if (fake_gpu().map_failures > 0 && --fake_gpu().map_failures == 0) return CUDA_ERROR_UNKNOWN;
  return fake_gpu().mapped.emplace(address, handle).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// What was mapped before a test has begun the GPU anew is not known.
CUresult cuMemUnmap(CUdeviceptr address, size_t) { return fake_gpu().mapped.erase(address), CUDA_SUCCESS; }
// Of whole mappings.
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t, CUstream) {
  auto& gpu = fake_gpu();
  if (!gpu.mapped.contains(to) || !gpu.mapped.contains(from)) return CUDA_ERROR_NOT_SUPPORTED;
  gpu.memory[gpu.mapped[to]].content = gpu.memory[gpu.mapped[from]].content;
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void*, size_t, unsigned) {
  if (!fake_gpu().registers) return CUDA_ERROR_NOT_SUPPORTED;
  std::atomic_ref(fake_gpu().registered).fetch_add(1);
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }
// By several threads.
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t, CUstream) {
  if (const int* const content = content_at(from)) std::memcpy(to, content, sizeof(int));
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t, CUstream) {
  if (int* const content = content_at(to)) std::memcpy(content, from, sizeof(int));
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle) {
  return std::memset(prop, 0, sizeof *prop), CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) { return make(pool); }
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) { return make(pool); }
CUresult cuMemPoolDestroy(CUmemoryPool) { return CUDA_SUCCESS; }
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*) { return CUDA_SUCCESS; }
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute which, void* value) {
  const auto& gpu = fake_gpu();
  *static_cast<cuuint64_t*>(value) = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? gpu.pool_reserved : gpu.pool_used;
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t) { return fake_gpu().pool_reserved = fake_gpu().pool_used, CUDA_SUCCESS; }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool, CUstream) {
  auto& gpu = fake_gpu();
  gpu.pool_used += bytes;
  if (gpu.pool_reserved < gpu.pool_used) gpu.pool_reserved = gpu.pool_used;
  return *address = 0x7f0000000000, CUDA_SUCCESS;
}
CUresult cuMemFreeAsync(CUdeviceptr, CUstream) { return fake_gpu().pool_used = 0, CUDA_SUCCESS; }

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  return *stream = reinterpret_cast<CUstream>(kStreams + static_cast<uint64_t>(fake_gpu().streams++)), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream) {
  ++fake_gpu().asked;
  return fake_gpu().ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream) { return ++fake_gpu().asked, CUDA_SUCCESS; }
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr, cuuint32_t, unsigned) { return put("write", stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent, unsigned) { return put("wait", stream); }
CUresult cuEventCreate(CUevent* event, unsigned) { return make(event); }
CUresult cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecordWithFlags(CUevent, CUstream stream, unsigned) { return put("record", stream); }
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const bool captures = stream && stream == fake_gpu().capturing;
  return *status = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  return fake_gpu().capturing = stream, CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult cuGraphCreate(CUgraph* graph, unsigned) { return ++fake_gpu().graphs, make(graph); }
CUresult cuGraphClone(CUgraph* clone, CUgraph) { return ++fake_gpu().graphs, make(clone); }
// Those within it are nobody's to destroy.
CUresult cuGraphDestroy(CUgraph graph) {
  for (const auto& [node, graphs] : fake_gpu().inner) {
    if (std::find(graphs.begin(), graphs.end(), graph) != graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  }
  return --fake_gpu().graphs, CUDA_SUCCESS;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph, const CUgraphNode*, size_t, CUgraph) {
  make(node);
  return make(&fake_gpu().inner[*node].emplace_back());
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t,
                        CUgraphNodeParams* params) {
  make(node);
  auto& graphs = fake_gpu().inner[*node];
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {  // moved
    --fake_gpu().graphs;
    return graphs.push_back(params->graph.graph), CUDA_SUCCESS;
  }
  graphs.resize(params->conditional.size);
  for (CUgraph& graph : graphs) make(&graph);
  return params->conditional.phGraph_out = graphs.data(), CUDA_SUCCESS;
}
CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph, const CUgraphNode*, size_t, const CUDA_HOST_NODE_PARAMS*) {
  return make(node);
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph, CUcontext, unsigned, unsigned) {
  return *handle = next_handle += 0x10, CUDA_SUCCESS;
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return *graph = fake_gpu().inner.at(node).front(), CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = fake_gpu().inner.contains(node) ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_HOST;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroyNode(CUgraphNode node) { return fake_gpu().inner.erase(node), CUDA_SUCCESS; }
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  params->dptr = 0x7f1000000000;
  return make(node);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long) { return make(exec); }
CUresult cuGraphExecDestroy(CUgraphExec) { return CUDA_SUCCESS; }
CUresult cuGraphUpload(CUgraphExec, CUstream) {
  ++fake_gpu().uploads;
  return fake_gpu().graph_reserved = fake_gpu().graph_needs, CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) { return ++fake_gpu().graph_launches, CUDA_SUCCESS; }
CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void* value) {
  return *static_cast<cuuint64_t*>(value) = fake_gpu().graph_reserved, CUDA_SUCCESS;
}
CUresult cuDeviceGraphMemTrim(CUdevice) { return fake_gpu().graph_reserved = 0, CUDA_SUCCESS; }

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return ++fake_gpu().modules, make(module);
}
CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
  const auto found = fake_gpu().variables.find(name);
  if (found == fake_gpu().variables.end()) return CUDA_ERROR_NOT_FOUND;
  return *address = found->second.address, *bytes = sizeof(int), CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return --fake_gpu().modules, CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) { return make(function); }
CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t*, size_t*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
  return *value = which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? fake_gpu().local_bytes : 0, CUDA_SUCCESS;
}

}  // extern "C"
