// nvcc: -lcuda
// Addresses that are none, given to whatever is no copy: words that streams write and wait for, graph nodes, advice,
// textures, questions about pointers. Refused by the call itself, and nothing is left behind.
#include <vector>

#include "bad_input.cuh"

static void words(CUstream stream, CUdeviceptr bad) {
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(stream, bad, 1, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, bad, 1, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(stream, bad, 0, CU_STREAM_WAIT_VALUE_GEQ));
  CUstreamBatchMemOpParams operation{};
  operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = bad;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 1, &operation, 0));
  CHECK_DRIVER(cuStreamSynchronize(stream));
}

static void nodes(CUcontext context, CUdeviceptr good, CUdeviceptr bad) {
  CUgraph graph;
  CUgraphNode node;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = bad;
  fill.elementSize = 4;
  fill.width = 64;
  fill.height = 1;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = bad;
  copy.dstDevice = good;
  copy.WidthInBytes = 256;
  copy.Height = copy.Depth = 1;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  copy.srcDevice = good;
  copy.dstDevice = bad;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, graph, nullptr, 0, bad));
  size_t count = 1;
  CHECK_DRIVER(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 0u);
  CHECK_DRIVER(cuGraphDestroy(graph));
}

static void questions(CUdeviceptr bad) {
  CUmemorytype type;
  CUdeviceptr base;
  size_t bytes;
  void* pointer = reinterpret_cast<void*>(bad);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, bad));
  EXPECT_ONE_OF(cuMemGetAddressRange(&base, &bytes, bad), CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&base, pointer, 0));
  unsigned flags;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, pointer));
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(bad, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(bad, 4096, here, 0, nullptr));
  EXPECT_REFUSED(cuStreamAttachMemAsync(nullptr, bad, 0, CU_MEM_ATTACH_GLOBAL));
  CUipcMemHandle handle;
  EXPECT_REFUSED(cuIpcGetMemHandle(&handle, bad));
  EXPECT_REFUSED(cuIpcCloseMemHandle(bad));
}

static void textures(CUdeviceptr bad) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {bad, CU_AD_FORMAT_FLOAT, 1, 4096};
  CUDA_TEXTURE_DESC sampler{};
  CUtexObject texture;
  // Some drivers look at the address only when the texture is used.
  if (cuTexObjectCreate(&texture, &resource, &sampler, nullptr) == CUDA_SUCCESS) {
    CHECK_DRIVER(cuTexObjectDestroy(texture));
  }
}

int main() {
  CHECK(cudaFree(nullptr));
  CUcontext context;
  CUstream stream;
  CUdeviceptr good, freed;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuMemAlloc(&good, 4 << 20));
  CHECK_DRIVER(cuMemAlloc(&freed, 4 << 20));
  CHECK_DRIVER(cuMemFree(freed));
  for (const CUdeviceptr bad : {kWild, good + (CUdeviceptr{1} << 33), freed}) {
    words(stream, bad);
    nodes(context, good, bad);
    questions(bad);
    textures(bad);
    CHECK_DRIVER(cuCtxSynchronize());
  }
  CUdeviceptr managed, pooled;
  CHECK_DRIVER(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  CHECK_DRIVER(cuMemAllocAsync(&pooled, 4096, stream));
  for (const CUdeviceptr memory : {managed, pooled}) words(stream, memory);  // of kinds that words cannot be in
  CHECK_DRIVER(cuMemFreeAsync(pooled, stream));
  CHECK_DRIVER(cuMemFree(managed));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(stream, good + 2, 1, 0));  // not aligned
  CHECK_DRIVER(cuStreamWriteValue32(stream, good, 1, 0));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  CHECK_DRIVER(cuMemFree(good));
  CHECK_DRIVER(cuStreamDestroy(stream));
  real_work();
  return passed();
}
