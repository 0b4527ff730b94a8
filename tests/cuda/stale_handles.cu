// nvcc: -lcuda
// native: no
// Handles of what was destroyed, and numbers that never were handles, are refused wherever they are given. (Bare metal
// follows them as pointers, and may crash.)
#include <cstring>

#include "bad_input.cuh"
#include "parts.cuh"

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .u32 counter;
.visible .entry nothing() { ret; }
)";

template <typename T>
static T bogus(unsigned long long number) {
  return reinterpret_cast<T>(number);
}

static void streams() {
  CHECK(cudaFree(nullptr));
  CUdeviceptr memory, more;
  CUevent event;
  CUstream gone;
  CHECK_DRIVER(cuMemAlloc(&memory, 4096));
  CHECK_DRIVER(cuEventCreate(&event, 0));
  CHECK_DRIVER(cuStreamCreate(&gone, 0));
  CHECK_DRIVER(cuStreamDestroy(gone));
  char byte = 0;
  unsigned flags;
  for (const CUstream bad : {gone, bogus<CUstream>(0x1234), bogus<CUstream>(~0ull), bogus<CUstream>(0x7000deadb000)}) {
    EXPECT_REFUSED(cuStreamDestroy(bad));
    EXPECT_REFUSED(cuStreamSynchronize(bad));
    EXPECT_REFUSED(cuStreamQuery(bad));
    EXPECT_REFUSED(cuStreamGetFlags(bad, &flags));
    EXPECT_REFUSED(cuStreamWaitEvent(bad, event, 0));
    EXPECT_REFUSED(cuStreamBeginCapture(bad, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_REFUSED(cuEventRecord(event, bad));
    EXPECT_REFUSED(cuMemcpyHtoDAsync(memory, &byte, 1, bad));
    EXPECT_REFUSED(cuMemsetD8Async(memory, 0, 1, bad));
    EXPECT_REFUSED(cuMemAllocAsync(&more, 256, bad));
    EXPECT_REFUSED(cuMemFreeAsync(memory, bad));
    EXPECT_REFUSED(cuLaunchHostFunc(bad, [](void*) {}, nullptr));
    EXPECT_REFUSED(cuStreamWriteValue32(bad, memory, 1, 0));
  }
  real_work();
}

static void events() {
  CHECK(cudaFree(nullptr));
  CUevent gone, good;
  CHECK_DRIVER(cuEventCreate(&gone, 0));
  CHECK_DRIVER(cuEventCreate(&good, 0));
  CHECK_DRIVER(cuEventRecord(good, nullptr));
  CHECK_DRIVER(cuEventDestroy(gone));
  float time;
  for (const CUevent bad : {gone, bogus<CUevent>(0), bogus<CUevent>(7), bogus<CUevent>(~0ull)}) {
    EXPECT_REFUSED(cuEventDestroy(bad));
    EXPECT_REFUSED(cuEventRecord(bad, nullptr));
    EXPECT_REFUSED(cuEventQuery(bad));
    EXPECT_REFUSED(cuEventSynchronize(bad));
    EXPECT_REFUSED(cuEventElapsedTime(&time, good, bad));
    EXPECT_REFUSED(cuStreamWaitEvent(nullptr, bad, 0));
  }
  real_work();
}

static void modules() {
  CHECK(cudaFree(nullptr));
  CUmodule module;
  CUfunction function;
  CUdeviceptr counter;
  size_t bytes;
  int value;
  CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
  CHECK_DRIVER(cuModuleGetFunction(&function, module, "nothing"));
  CHECK_DRIVER(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
  CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CHECK_DRIVER(cuModuleUnload(module));
  for (const CUmodule bad : {module, bogus<CUmodule>(0), bogus<CUmodule>(~0ull)}) {
    CUfunction found;
    EXPECT_REFUSED(cuModuleUnload(bad));
    EXPECT_REFUSED(cuModuleGetFunction(&found, bad, "nothing"));
    EXPECT_REFUSED(cuModuleGetGlobal(&counter, &bytes, bad, "counter"));
  }
  for (const CUfunction bad : {function, bogus<CUfunction>(0), bogus<CUfunction>(0x500)}) {
    EXPECT_REFUSED(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    EXPECT_REFUSED(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, bad));
    EXPECT_REFUSED(cuFuncSetAttribute(bad, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    EXPECT_REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, bad, 32, 0));
  }
  unsigned word = 0;
  EXPECT_REFUSED(cuMemcpyHtoD(counter, &word, 4));
  real_work();
}

static void libraries() {
  CHECK(cudaFree(nullptr));
  CUlibrary library;
  CUkernel kernel;
  CUfunction function;
  CHECK_DRIVER(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "nothing"));
  CHECK_DRIVER(cuKernelGetFunction(&function, kernel));
  CHECK_DRIVER(cuLibraryUnload(library));
  EXPECT_REFUSED(cuLibraryUnload(library));
  EXPECT_REFUSED(cuLibraryUnload(nullptr));
  CUkernel found;
  EXPECT_REFUSED(cuLibraryGetKernel(&found, library, "nothing"));
  EXPECT_REFUSED(cuKernelGetFunction(&function, kernel));
  const auto launch = [](void* code) {
    return cuLaunchKernel(static_cast<CUfunction>(code), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  EXPECT_REFUSED(launch(kernel));
  EXPECT_REFUSED(launch(function));
  real_work();
}

static void graphs() {
  CHECK(cudaFree(nullptr));
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  CHECK_DRIVER(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
  CHECK_DRIVER(cuGraphLaunch(exec, nullptr));
  CHECK_DRIVER(cuGraphExecDestroy(exec));
  CHECK_DRIVER(cuGraphDestroy(graph));
  size_t count = 0;
  CUgraphNodeType type;
  for (const CUgraph bad : {graph, bogus<CUgraph>(0), bogus<CUgraph>(~0ull)}) {
    CUgraphNode made;
    EXPECT_REFUSED(cuGraphDestroy(bad));
    EXPECT_REFUSED(cuGraphAddEmptyNode(&made, bad, nullptr, 0));
    EXPECT_REFUSED(cuGraphGetNodes(bad, nullptr, &count));
    EXPECT_REFUSED(cuGraphInstantiate(&exec, bad, 0));
  }
  for (const CUgraphExec bad : {exec, bogus<CUgraphExec>(0), bogus<CUgraphExec>(~0ull)}) {
    EXPECT_REFUSED(cuGraphExecDestroy(bad));
    EXPECT_REFUSED(cuGraphLaunch(bad, nullptr));
    EXPECT_REFUSED(cuGraphUpload(bad, nullptr));
  }
  for (const CUgraphNode bad : {node, bogus<CUgraphNode>(0), bogus<CUgraphNode>(~0ull)}) {
    EXPECT_REFUSED(cuGraphNodeGetType(bad, &type));
    EXPECT_REFUSED(cuGraphDestroyNode(bad));
  }
  real_work();
}

static void contexts() {
  CHECK(cudaFree(nullptr));
  CUcontext primary, gone;
  CUstream stream;
  CUdeviceptr memory;
  char byte = 0;
  CHECK_DRIVER(cuCtxGetCurrent(&primary));
  CHECK_DRIVER(cuCtxCreate(&gone, nullptr, 0, 0));
  CHECK_DRIVER(cuStreamCreate(&stream, 0));
  CHECK_DRIVER(cuMemAlloc(&memory, 1 << 20));
  CHECK_DRIVER(cuCtxDestroy(gone));
  CHECK_DRIVER(cuCtxSetCurrent(primary));
  EXPECT_REFUSED(cuStreamSynchronize(stream));
  EXPECT_REFUSED(cuMemcpyHtoD(memory, &byte, 1));
  EXPECT_REFUSED(cuMemFree(memory));
  unsigned long long id;
  for (const CUcontext bad : {gone, bogus<CUcontext>(0x10), bogus<CUcontext>(~0ull)}) {
    EXPECT_REFUSED(cuCtxDestroy(bad));
    EXPECT_REFUSED(cuCtxGetId(bad, &id));
  }
  EXPECT_REFUSED(cuCtxSetCurrent(bogus<CUcontext>(0x10)));
  EXPECT_REFUSED(cuCtxPushCurrent(bogus<CUcontext>(0x10)));
  CHECK_DRIVER(cuCtxPopCurrent(&primary));
  if (cuCtxPushCurrent(gone) == CUDA_SUCCESS) {  // then it is as good as none
    EXPECT_REFUSED(cuMemAlloc(&memory, 4096));
    EXPECT_REFUSED(cuCtxSynchronize());
    CHECK_DRIVER(cuCtxPopCurrent(nullptr));
  }
  CHECK_DRIVER(cuCtxPushCurrent(primary));
  real_work();
}

// All that the process has goes at once.
static void reset() {
  cudaStream_t stream;
  cudaEvent_t event;
  char *memory, *pinned, *managed, byte = 0;
  CHECK(cudaMalloc(&memory, 1 << 20));
  CHECK(cudaMallocHost(&pinned, 1 << 16));
  CHECK(cudaMallocManaged(&managed, 1 << 16));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaMemsetAsync(memory, 1, 1 << 20, stream));
  CHECK(cudaEventRecord(event, stream));
  real_work();
  CHECK(cudaDeviceReset());
  CHECK(cudaFree(nullptr));
  EXPECT_REFUSED(cudaMemcpy(memory, &byte, 1, cudaMemcpyHostToDevice));
  EXPECT_REFUSED(cudaFree(memory));
  EXPECT_REFUSED(cudaFreeHost(pinned));
  EXPECT_REFUSED(cudaFree(managed));
  EXPECT_REFUSED(cudaStreamSynchronize(stream));
  EXPECT_REFUSED(cudaStreamDestroy(stream));
  EXPECT_REFUSED(cudaEventSynchronize(event));
  EXPECT_REFUSED(cudaEventDestroy(event));
  real_work();
}

static void pools() {
  CHECK(cudaFree(nullptr));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool, standard;
  CUdeviceptr memory, survivor;
  CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&survivor, 4096, pool, nullptr));
  CHECK_DRIVER(cuMemPoolDestroy(pool));
  cuuint64_t value;
  for (const CUmemoryPool bad : {pool, bogus<CUmemoryPool>(0), bogus<CUmemoryPool>(~0ull)}) {
    EXPECT_REFUSED(cuMemPoolDestroy(bad));
    EXPECT_REFUSED(cuMemPoolTrimTo(bad, 0));
    EXPECT_REFUSED(cuMemPoolGetAttribute(bad, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    EXPECT_REFUSED(cuMemAllocFromPoolAsync(&memory, 4096, bad, nullptr));
    EXPECT_REFUSED(cuDeviceSetMemPool(0, bad));
  }
  CHECK_DRIVER(cuMemsetD8(survivor, 1, 4096));  // what came from it stays until it is freed
  CHECK_DRIVER(cuMemFreeAsync(survivor, nullptr));
  EXPECT_REFUSED(cuMemFreeAsync(survivor, nullptr));
  CHECK_DRIVER(cuDeviceGetDefaultMemPool(&standard, 0));
  EXPECT_REFUSED(cuMemPoolDestroy(standard));
  CHECK_DRIVER(cuMemAllocAsync(&memory, 4096, nullptr));
  CHECK_DRIVER(cuMemFreeAsync(memory, nullptr));
  real_work();
}

static void arrays() {
  CHECK(cudaFree(nullptr));
  CUDA_ARRAY_DESCRIPTOR description{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUarray array;
  const CUresult made = cuArrayCreate(&array, &description);
  if (made == CUDA_ERROR_NOT_SUPPORTED) return;  // this device has none
  CHECK_DRIVER(made);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC sampler{};
  CUtexObject texture;
  CUsurfObject surface;
  CHECK_DRIVER(cuTexObjectCreate(&texture, &resource, &sampler, nullptr));
  CHECK_DRIVER(cuTexObjectDestroy(texture));
  CHECK_DRIVER(cuTexObjectDestroy(texture));  // once more: textures.cu says who needs that
  EXPECT_REFUSED(cuTexObjectDestroy(0x12345));
  EXPECT_REFUSED(cuTexObjectGetResourceDesc(&resource, texture));
  EXPECT_REFUSED(cuSurfObjectDestroy(0x12345));
  CHECK_DRIVER(cuArrayDestroy(array));
  float values[64];
  for (const CUarray bad : {array, bogus<CUarray>(0), bogus<CUarray>(~0ull)}) {
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = bad;
    EXPECT_REFUSED(cuArrayDestroy(bad));
    EXPECT_REFUSED(cuArrayGetDescriptor(&description, bad));
    EXPECT_REFUSED(cuMemcpyHtoA(bad, 0, values, sizeof values));
    EXPECT_REFUSED(cuMemcpyAtoH(values, bad, 0, sizeof values));
    EXPECT_REFUSED(cuTexObjectCreate(&texture, &resource, &sampler, nullptr));
    EXPECT_REFUSED(cuSurfObjectCreate(&surface, &resource));
  }
  real_work();
}

int main() {
  return run_parts({{"streams", streams},
                    {"events", events},
                    {"modules", modules},
                    {"libraries", libraries},
                    {"graphs", graphs},
                    {"contexts", contexts},
                    {"reset", reset},
                    {"pools", pools},
                    {"arrays", arrays}});
}
