// nvcc: -arch=sm_90 -lcuda
// Kernels in graphs that may begin before the ones ahead of them have ended, and wait for their results themselves.
#include <vector>

#include "check.h"

constexpr int kSize = 1 << 16, kBlock = 256, kLength = 6, kTimes = 50;

__global__ void step(const int* from, int* to) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  const int i = blockIdx.x * kBlock + threadIdx.x;
  to[i] = 3 * from[(i + 1) % kSize] + 1;
}

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t* after, const cudaGraphEdgeData* edge,
                           const int* from, int* to) {
  void* arguments[] = {&from, &to};
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = reinterpret_cast<void*>(step);
  params.kernel.gridDim = dim3(kSize / kBlock);
  params.kernel.blockDim = dim3(kBlock);
  params.kernel.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, after, edge, after ? 1 : 0, &params));
  return node;
}

int main() {
  int *one, *other;
  CHECK(cudaMalloc(&one, kSize * sizeof(int)));
  CHECK(cudaMalloc(&other, kSize * sizeof(int)));
  std::vector<int> values(kSize), wanted(kSize);
  for (int i = 0; i < kSize; ++i) values[i] = wanted[i] = i;
  CHECK(cudaMemcpy(one, values.data(), kSize * sizeof(int), cudaMemcpyHostToDevice));

  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  const cudaGraphEdgeData plain{}, early{cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic};
  cudaGraphNode_t nodes[kLength];
  for (int i = 0; i < kLength; ++i) {
    int* const from = i % 2 ? other : one;
    const bool apart = i == 3;  // its edge is added by itself
    nodes[i] = add(graph, i && !apart ? &nodes[i - 1] : nullptr, i % 4 ? &early : &plain, from, i % 2 ? one : other);
    if (apart) CHECK(cudaGraphAddDependencies(graph, &nodes[i - 1], &nodes[i], &early, 1));
  }
  size_t edges = 0;
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, size_t{kLength - 1});

  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < kTimes; ++i) CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaMemcpy(values.data(), one, kSize * sizeof(int), cudaMemcpyDeviceToHost));
  for (int times = 0; times < kTimes * kLength; ++times) {
    std::vector<int> before = wanted;
    for (int i = 0; i < kSize; ++i) {
      wanted[i] = static_cast<int>(3u * static_cast<unsigned>(before[(i + 1) % kSize]) + 1u);
    }
  }
  EXPECT(values == wanted);

  // There are no such edges.
  const cudaGraphEdgeData bad[] = {{0, 0, cudaGraphDependencyTypeProgrammatic},
                                   {cudaGraphKernelNodePortProgrammatic, 0, 0},
                                   {cudaGraphKernelNodePortProgrammatic, 1, cudaGraphDependencyTypeProgrammatic},
                                   {9, 0, cudaGraphDependencyTypeProgrammatic},
                                   {1, 0, 7}};
  for (const cudaGraphEdgeData& edge : bad)
    EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddDependencies(graph, &nodes[0], &nodes[2], &edge, 1));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return passed();
}
