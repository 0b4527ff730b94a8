// nvcc: -lcuda
// The memory of graphs' allocation nodes: current, high-water marks, trimming; parts of the device.
#include "check.h"

cuuint64_t attribute(CUgraphMem_attribute which) {
  cuuint64_t value = ~cuuint64_t{0};
  CHECK_DRIVER(cuDeviceGetGraphMemAttribute(0, which, &value));
  return value;
}

void graph_memory() {
  constexpr size_t kBytes = 8 << 20;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0u);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* memory = nullptr;
  CHECK(cudaMallocAsync(&memory, kBytes, stream));
  CHECK(cudaMemsetAsync(memory, 1, kBytes, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= kBytes);
  EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= kBytes);
  CHECK(cudaFreeAsync(memory, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= kBytes);
  CHECK(cudaDeviceGraphMemTrim(0));  // a driver may count it as used until then
  EXPECT_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0u);
  cuuint64_t zero = 0, some = 1;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &some));
  CHECK_DRIVER(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0u);
  EXPECT_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

void parts() {
  CUdevResource resource;
  CHECK_DRIVER(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  int sms = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(resource.sm.smCount, static_cast<unsigned>(sms));
  CUcontext context;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  CHECK_DRIVER(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(resource.sm.smCount, static_cast<unsigned>(sms));
}

int main() {
  CHECK(cudaFree(nullptr));
  graph_memory();
  parts();
  return passed();
}
