// nvcc: -lcuda
// Graph nodes that write words of memory and wait for them.
#include <chrono>
#include <thread>

#include "check.h"

CUstreamBatchMemOpParams write32(CUdeviceptr address, unsigned value) {
  CUstreamBatchMemOpParams made{};
  made.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  made.writeValue.address = address;
  made.writeValue.value = value;
  return made;
}

CUstreamBatchMemOpParams write64(CUdeviceptr address, unsigned long long value) {
  CUstreamBatchMemOpParams made{};
  made.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  made.writeValue.address = address;
  made.writeValue.value64 = value;
  return made;
}

CUstreamBatchMemOpParams wait32(CUdeviceptr address, unsigned value) {
  CUstreamBatchMemOpParams made{};
  made.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  made.waitValue.address = address;
  made.waitValue.value = value;
  made.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return made;
}

int main() {
  CHECK(cudaFree(nullptr));
  CUcontext context;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  unsigned long long* words = nullptr;
  CHECK(cudaMalloc(&words, 3 * sizeof(*words)));
  CHECK(cudaMemset(words, 0, 3 * sizeof(*words)));
  const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(words);
  volatile unsigned* gate = nullptr;
  CHECK(cudaHostAlloc(const_cast<unsigned**>(&gate), sizeof(unsigned), cudaHostAllocMapped));
  *gate = 0;
  void* gate_on_device = nullptr;
  CHECK(cudaHostGetDevicePointer(&gate_on_device, const_cast<unsigned*>(gate), 0));

  CUgraph graph;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams first[] = {write32(at, 5), write64(at + 8, 0x1234567890abcdefull)};
  CUstreamBatchMemOpParams second[] = {wait32(reinterpret_cast<CUdeviceptr>(gate_on_device), 1), wait32(at, 5),
                                       write32(at + 16, 7)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{context, 2, first, 0};
  CUgraphNode writes, waits;
  CHECK_DRIVER(cuGraphAddBatchMemOpNode(&writes, graph, nullptr, 0, &params));
  params = {context, 3, second, 0};
  CHECK_DRIVER(cuGraphAddBatchMemOpNode(&waits, graph, &writes, 1, &params));
  CUgraphNodeType type;
  CHECK_DRIVER(cuGraphNodeGetType(waits, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  CUDA_BATCH_MEM_OP_NODE_PARAMS got{};
  CHECK_DRIVER(cuGraphBatchMemOpNodeGetParams(waits, &got));
  EXPECT_EQ(got.count, 3u);
  EXPECT_EQ(got.paramArray[2].writeValue.value, 7u);
  EXPECT_EQ(got.paramArray[1].waitValue.address, at);

  CUgraphExec exec;
  CUstream stream;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
  CHECK_DRIVER(cuGraphLaunch(exec, stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_CODE(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  *gate = 1;
  CHECK_DRIVER(cuStreamSynchronize(stream));
  unsigned long long seen[3];
  CHECK(cudaMemcpy(seen, words, sizeof(seen), cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen[0], 5u);
  EXPECT(seen[1] == 0x1234567890abcdefull);
  EXPECT_EQ(seen[2], 7u);

  // Other words in the executable graph.
  first[0] = write32(at, 6);
  params = {context, 2, first, 0};
  CHECK_DRIVER(cuGraphExecBatchMemOpNodeSetParams(exec, writes, &params));
  CHECK_DRIVER(cuGraphLaunch(exec, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  CHECK(cudaMemcpy(seen, words, sizeof(seen), cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen[0], 6u);
  params.count = 0;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeSetParams(writes, &params));
  return passed();
}
