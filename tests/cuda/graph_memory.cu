// Memory that a graph allocates and the program frees: each launch brings it back at its address, where kernels, copies
// and fills find it.
#include <vector>

#include "check.h"

constexpr int kCount = 1 << 16;

__global__ void count_up(int* data, int from) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] = from + i;
}

// Launches the graph, uses what it allocated, frees it; several times.
static void use(cudaGraph_t graph, int* data, cudaStream_t stream) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<int> back(kCount);
  for (int round = 0; round < 4; ++round) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(back.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(back[i], 5 + i);
    CHECK(cudaMemsetAsync(data, 0, 1024, stream));
    CHECK(cudaMemcpyAsync(data + 256, back.data(), 1024, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpyAsync(back.data(), data, 2048, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 256; ++i) EXPECT(back[i] == 0 && back[256 + i] == 5 + i);
    CHECK(round % 2 ? cudaFreeAsync(data, stream) : cudaFree(data));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// The graph is gone after its launch, and what it allocated is still the program's.
static void outlive(cudaGraph_t graph, int* data, cudaStream_t stream) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphExecDestroy(exec));
  std::vector<int> back(kCount);
  CHECK(cudaMemcpyAsync(back.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(back[i], 5 + i);
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
}

static cudaGraph_t capture(cudaStream_t stream, int** data) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(data, kCount * sizeof(int), stream));
  count_up<<<kCount / 256, 256, 0, stream>>>(*data, 5);
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

// Memory of a graph that never ran is not there: that is an error of the call, and of no later one.
static void free_too_late(cudaGraph_t graph, int* data, cudaStream_t stream) {
  CHECK(cudaGraphDestroy(graph));
  EXPECT(cudaFreeAsync(data, stream) == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaDeviceSynchronize());
}

// A launch while the last one's memory is not freed fails, unless the graph was made to free it then.
static void launch_again(cudaStream_t stream) {
  int* data;
  cudaGraph_t graph = capture(stream, &data);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphLaunch(exec, stream));
  cudaGetLastError();
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int round = 0; round < 3; ++round) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// A graph frees what a graph has allocated, and that once.
static void refusals() {
  cudaGraph_t graph;
  cudaGraphNode_t allocated, freed, again;
  void* plain;
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, 0};
  params.bytesize = 1000;
  CHECK(cudaMalloc(&plain, 1000));
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &params));
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&freed, graph, nullptr, 0, plain));
  CHECK(cudaGraphAddMemFreeNode(&freed, graph, &allocated, 1, params.dptr));
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&again, graph, &allocated, 1, params.dptr));
  cudaGetLastError();
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(plain));
}

int main() {
  refusals();
  cudaStream_t stream;
  cudaGraph_t made;
  int* data;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t captured = capture(stream, &data);
  use(captured, data, stream);
  captured = capture(stream, &data);
  outlive(captured, data, stream);
  captured = capture(stream, &data);
  free_too_late(captured, data, stream);
  launch_again(stream);

  cudaGraphNode_t allocation, kernel;
  cudaMemAllocNodeParams memory{};
  memory.poolProps.allocType = cudaMemAllocationTypePinned;
  memory.poolProps.location = {cudaMemLocationTypeDevice, 0};
  memory.bytesize = kCount * sizeof(int);
  CHECK(cudaGraphCreate(&made, 0));
  CHECK(cudaGraphAddMemAllocNode(&allocation, made, nullptr, 0, &memory));
  data = static_cast<int*>(memory.dptr);
  int from = 5;
  void* arguments[] = {&data, &from};
  cudaKernelNodeParams launch{};
  launch.func = reinterpret_cast<void*>(count_up);
  launch.gridDim = dim3(kCount / 256);
  launch.blockDim = dim3(256);
  launch.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&kernel, made, &allocation, 1, &launch));
  use(made, data, stream);
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
