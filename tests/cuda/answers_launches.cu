// What the driver and the runtime answer of launches, and what they refuse.
// nvcc: -lcuda
// same: yes
#include <string>

#include "answers.h"
#include "answers_code.cuh"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static void launches() {
  std::string ptx = kPtx;
  ptx.resize(ptx.find(".visible .entry clustered"));
  CUmodule module, newer;
  NEED(cuModuleLoadData(&module, ptx.c_str()));
  NEED(cuModuleLoadData(&newer, kSm90));
  CUfunction nothing, limited, fixed, shares, clustered, dynamic;
  NEED(cuModuleGetFunction(&nothing, module, "nothing"));
  NEED(cuModuleGetFunction(&limited, module, "limited"));
  NEED(cuModuleGetFunction(&fixed, module, "fixed"));
  NEED(cuModuleGetFunction(&shares, module, "shares"));
  NEED(cuModuleGetFunction(&clustered, newer, "clustered"));
  NEED(cuModuleGetFunction(&dynamic, newer, "dynamic"));
  CUdeviceptr memory;
  NEED(cuMemAlloc(&memory, 4096));
  unsigned value = 5;
  char more[24] = {};
  void* arguments[] = {&memory, &value, more};
  const struct {
    const char* name;
    CUfunction of;
  } all[] = {{"nothing", nothing}, {"limited", limited},     {"fixed", fixed},
             {"shares", shares},   {"clustered", clustered}, {"dynamic", dynamic}};
  const unsigned grids[][3] = {{1, 1, 1},     {0, 1, 1}, {1, 0, 1}, {1, 65536, 1},
                               {1, 1, 65536}, {2, 2, 2}, {3, 1, 1}, {0x80000000u, 1, 1}};
  const unsigned blocks[][3] = {{1, 1, 1},    {64, 2, 1}, {128, 1, 1}, {129, 1, 1}, {1024, 1, 1},
                                {1025, 1, 1}, {0, 1, 1},  {1, 1, 65},  {1, 1, 64},  {32, 32, 2}};
  for (const auto& each : all) {
    const bool is_dynamic = each.of == dynamic;
    unsigned zero = 0;
    void* one[] = {&zero};
    for (const auto& g : grids)
      for (const auto& b : blocks)
        for (unsigned shared : {0u, 1024u, 47u * 1024, 49u * 1024, 230u * 1024}) {
          if (is_dynamic && shared == 0) continue;
          note("%s, grid %u %u %u, block %u %u %u, %u", each.name, g[0], g[1], g[2], b[0], b[1], b[2], shared);
          ASK(cuLaunchKernel(each.of, g[0], g[1], g[2], b[0], b[1], b[2], shared, nullptr, is_dynamic ? one : arguments,
                             nullptr));
        }
    note("%s", each.name);
    ASK(cuCtxSynchronize());
    for (unsigned grid : {1u, 16u, 2000000u}) {
      note("%s, cooperative, %u", each.name, grid);
      ASK(cuLaunchCooperativeKernel(each.of, grid, 1, 1, 64, 2, 1, is_dynamic ? 16 : 0, nullptr,
                                    is_dynamic ? one : arguments));
    }
    note("%s", each.name);
    ASK(cuCtxSynchronize());
  }
  note("");
  ASK(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ASK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ASK(cuLaunchKernel(limited, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  struct {
    CUdeviceptr to;
    unsigned value, pad;
    char more[24];
  } packed{memory, 6, 0, {}};
  for (size_t bytes :
       {size_t{0}, size_t{8}, size_t{12}, size_t{16}, size_t{39}, size_t{40}, size_t{48}, size_t{5000}}) {
    size_t size = bytes;
    static char buffer[5000];
    std::memcpy(buffer, &packed, sizeof packed);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    note("a buffer of %zu bytes", bytes);
    ASK(cuLaunchKernel(limited, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    ASK(cuLaunchKernel(limited, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, extra));
    ASK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  }
  note("");
  ASK(cuCtxSynchronize());
  for (int id = 0; id < 20; ++id) {
    for (int v : {0, 1, 2, 3, 9}) {
      if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
          id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT || id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
        continue;
      CUlaunchConfig config{};
      CUlaunchAttribute attribute{};
      config.gridDimX = 6, config.gridDimY = config.gridDimZ = 1;
      config.blockDimX = 64, config.blockDimY = 2, config.blockDimZ = 1;
      attribute.id = static_cast<CUlaunchAttributeID>(id);
      std::memset(&attribute.value, 0, sizeof attribute.value);
      attribute.value.cooperative = v;
      if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) attribute.value.clusterDim = {static_cast<unsigned>(v), 1, 1};
      config.attrs = &attribute;
      config.numAttrs = 1;
      note("launch attribute %d, %d", id, v);
      ASK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr));
      ASK(cuLaunchKernelEx(&config, clustered, nullptr, nullptr));
    }
  }
  note("");
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.numAttrs = 1;
  ASK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr));
  ASK(cuLaunchKernelEx(nullptr, nothing, nullptr, nullptr));
  ASK(cuFuncSetBlockShape(limited, 8, 1, 1));
  ASK(cuFuncSetBlockShape(limited, 129, 1, 1));
  ASK(cuFuncSetSharedSize(limited, 100));
  ASK(cuParamSetSize(limited, 40));
  ASK(cuParamSetSize(limited, 5000));
  ASK(cuParamSetv(limited, 0, &memory, 8));
  ASK(cuParamSeti(limited, 8, 3));
  ASK(cuParamSetf(limited, 20, 1.0f));
  ASK(cuLaunch(limited));
  ASK(cuLaunchGrid(limited, 2, 2));
  ASK(cuLaunchGrid(limited, 0, 2));
  ASK(cuLaunchGridAsync(limited, 2, 2, nullptr));
  ASK(cuMemFree(memory));
  ASK(cuModuleUnload(module));
  ASK(cuModuleUnload(newer));
  done("launches");
}

__global__ void runtime_kernel(int* to) {
  extern __shared__ int outer[];
  if (to) *to = outer[0];
}
__device__ int runtime_word[7];
__constant__ int runtime_constant[3];
__managed__ int runtime_managed[2];

static void runtime() {
  cudaDeviceProp p{};
  if (!ASK(cudaGetDeviceProperties(&p, 0))) {
    note("properties");
    ASK(0, p.sharedMemPerBlock, p.regsPerBlock, p.warpSize, p.memPitch, p.maxThreadsPerBlock, p.maxThreadsDim[2],
        p.maxGridSize[0], p.totalConstMem, p.major, p.minor, p.textureAlignment, p.texturePitchAlignment, p.integrated,
        p.canMapHostMemory, p.maxTexture1D, p.maxTexture1DMipmap, p.maxTexture2D[0], p.maxTexture2DMipmap[1],
        p.maxTexture2DLinear[2], p.maxTexture2DGather[0], p.maxTexture3D[0], p.maxTexture3DAlt[2], p.maxTextureCubemap,
        p.maxTexture1DLayered[1], p.maxTexture2DLayered[2], p.maxTextureCubemapLayered[1], p.maxSurface1D,
        p.maxSurface2D[1], p.maxSurface3D[2], p.maxSurface1DLayered[1], p.maxSurface2DLayered[2], p.maxSurfaceCubemap,
        p.maxSurfaceCubemapLayered[1], p.surfaceAlignment, p.concurrentKernels, p.ECCEnabled, p.tccDriver,
        p.asyncEngineCount, p.unifiedAddressing, p.memoryBusWidth, p.maxThreadsPerMultiProcessor,
        p.streamPrioritiesSupported, p.globalL1CacheSupported, p.localL1CacheSupported, p.sharedMemPerMultiprocessor,
        p.regsPerMultiprocessor, p.managedMemory, p.isMultiGpuBoard, p.hostNativeAtomicSupported,
        p.pageableMemoryAccess, p.concurrentManagedAccess, p.computePreemptionSupported,
        p.canUseHostPointerForRegisteredMem, p.cooperativeLaunch, p.sharedMemPerBlockOptin,
        p.pageableMemoryAccessUsesHostPageTables, p.directManagedMemAccessFromHost, p.maxBlocksPerMultiProcessor,
        p.reservedSharedMemPerBlock, p.hostRegisterSupported, p.sparseCudaArraySupported,
        p.hostRegisterReadOnlySupported, p.timelineSemaphoreInteropSupported, p.memoryPoolsSupported,
        p.gpuDirectRDMASupported, p.gpuDirectRDMAFlushWritesOptions, p.gpuDirectRDMAWritesOrdering,
        p.memoryPoolSupportedHandleTypes, p.deferredMappingCudaArraySupported, p.ipcEventSupported, p.clusterLaunch,
        p.unifiedFunctionPointers);
  }
  note("");
  ASK(cudaGetDeviceProperties(&p, 99));
  ASK(cudaGetLastError());
  int now = -1;
  ASK(cudaSetDevice(99));
  ASK(cudaPeekAtLastError());
  ASK(cudaGetLastError());
  ASK(cudaGetLastError());
  ASK(cudaGetDevice(&now), now);
  for (unsigned flags : {0u, 1u, 2u, 4u, 8u, 3u, 64u}) {
    unsigned back = 99;
    note("device flags %u", flags);
    ASK(cudaSetDeviceFlags(flags));
    ASK(cudaGetDeviceFlags(&back), back);
    cudaGetLastError();
  }
  note("");
  cudaFuncAttributes a{};
  if (!ASK(cudaFuncGetAttributes(&a, runtime_kernel), a.sharedSizeBytes, a.constSizeBytes, a.maxThreadsPerBlock,
           a.maxDynamicSharedSizeBytes, a.preferredShmemCarveout, a.clusterDimMustBeSet)) {
  }
  for (int v : {0, 1000, 49152, 49153, 100000, 232448, 232449, -1}) {
    note("dynamic shared memory %d", v);
    ASK(cudaFuncSetAttribute(runtime_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v));
    cudaGetLastError();
    for (size_t shared : {size_t{0}, size_t{49152}, size_t{49153}, size_t{100000}, size_t{232448}, size_t{232449}}) {
      note("dynamic shared memory %d, %zu", v, shared);
      runtime_kernel<<<1, 1, shared>>>(nullptr);
      ASK(cudaGetLastError());
      int blocks = -1;
      ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, runtime_kernel, 64, shared), blocks);
      cudaGetLastError();
    }
  }
  note("");
  runtime_kernel<<<0, 1>>>(nullptr);
  ASK(cudaGetLastError());
  runtime_kernel<<<1, 2000>>>(nullptr);
  ASK(cudaPeekAtLastError());
  ASK(cudaGetLastError());
  ASK(cudaDeviceSynchronize());
  void* at = nullptr;
  size_t bytes = 0;
  ASK(cudaGetSymbolAddress(&at, runtime_word), at != nullptr);
  ASK(cudaGetSymbolSize(&bytes, runtime_word), bytes);
  ASK(cudaGetSymbolSize(&bytes, runtime_constant), bytes);
  ASK(cudaGetSymbolSize(&bytes, runtime_managed), bytes);
  int words[7] = {1, 2, 3, 4, 5, 6, 7}, back[7] = {};
  ASK(cudaMemcpyToSymbol(runtime_word, words, 28));
  ASK(cudaMemcpyToSymbol(runtime_word, words, 28, 4));
  ASK(cudaMemcpyToSymbol(runtime_word, words, 4, 24));
  ASK(cudaMemcpyFromSymbol(back, runtime_word, 28), back[0], back[6]);
  ASK(cudaMemcpyFromSymbol(back, runtime_word, 29));
  ASK(cudaMemcpyToSymbol(runtime_constant, words, 12));
  ASK(cudaMemcpyFromSymbol(back, runtime_constant, 12), back[2]);
  ASK(cudaMemcpyToSymbol(runtime_word, words, 4, 0, cudaMemcpyDeviceToHost));
  ASK(cudaGetSymbolAddress(&at, words));
  cudaGetLastError();
  for (int i = 0; i <= 10; ++i) {
    size_t limit = 0;
    note("limit %d", i);
    if (i != 2) ASK(cudaDeviceGetLimit(&limit, static_cast<cudaLimit>(i)), limit);
  }
  note("");
  for (int i = 0; i < 160; ++i) {
    int value = -1;
    note("runtime attribute %d", i);
    ASK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(i), 0));
  }
  note("");
  cudaGetLastError();
  int least, greatest;
  ASK(cudaDeviceGetStreamPriorityRange(&least, &greatest), least, greatest);
  cudaFunction_t function;
  ASK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(runtime_kernel)));
  ASK(cudaGetFuncBySymbol(&function, words));
  ASK(cudaGetLastError());
  cudaDeviceProp wanted{};
  wanted.major = 9;
  ASK(cudaChooseDevice(&now, &wanted), now);
  int valid[] = {0};
  ASK(cudaSetValidDevices(valid, 1));
  valid[0] = 99;
  ASK(cudaSetValidDevices(valid, 1));
  ASK(cudaGetLastError());
  ASK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  ASK(cudaFuncSetCacheConfig(runtime_kernel, cudaFuncCachePreferShared));
  ASK(cudaCtxResetPersistingL2Cache());
  ASK(cudaDeviceReset());
  ASK(cudaFree(nullptr));
  ASK(cudaMemcpyFromSymbol(back, runtime_word, 28), back[0]);
}

int main() {
  answers::begin();
  launches();
  runtime();
  return answers::passed();
}
