// nvcc: -lcuda
// Child graphs: other ones in nodes and executable graphs, and those that move into their parent.
#include <vector>

#include "check.h"

constexpr int kCount = 1000;

__global__ void add(int* data, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] += value;
}

// Kernels one after the other, each of which adds `value`.
static cudaGraph_t chain(int* data, int kernels, int value) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  void* arguments[] = {&data, &value};
  cudaKernelNodeParams launch{};
  launch.func = reinterpret_cast<void*>(add);
  launch.gridDim = dim3((kCount + 127) / 128);
  launch.blockDim = dim3(128);
  launch.kernelParams = arguments;
  cudaGraphNode_t last = nullptr;
  for (int i = 0; i < kernels; ++i) {
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, &last, last ? 1 : 0, &launch));
    last = node;
  }
  return graph;
}

// What a launch adds.
static int added(cudaGraphExec_t exec, int* data) {
  std::vector<int> values(kCount);
  CHECK(cudaMemset(data, 0, kCount * sizeof(int)));
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaMemcpy(values.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (const int value : values) EXPECT_EQ(value, values[0]);
  return values[0];
}

static CUgraphNodeParams child_params(cudaGraph_t graph, CUgraphChildGraphNodeOwnership ownership) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = graph;
  params.graph.ownership = ownership;
  return params;
}

// A node takes a graph of another shape; what was instantiated before stays as it was.
static void other_child(int* data) {
  cudaGraph_t one = chain(data, 1, 5), three = chain(data, 3, 7), parent, inner;
  CHECK(cudaGraphCreate(&parent, 0));
  cudaGraphNode_t node;
  CHECK(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, one));
  CHECK(cudaGraphChildGraphNodeGetGraph(node, &inner));
  cudaGraphExec_t before, after;
  CHECK(cudaGraphInstantiate(&before, parent, 0));
  CUgraphNodeParams params = child_params(three, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  CHECK_DRIVER(cuGraphNodeSetParams(node, &params));
  CHECK(cudaGraphDestroy(three));
  CHECK(cudaGraphInstantiate(&after, parent, 0));
  EXPECT_EQ(added(before, data), 5);
  EXPECT_EQ(added(after, data), 21);
  size_t nodes = 0;
  CHECK(cudaGraphChildGraphNodeGetGraph(node, &inner));
  CHECK(cudaGraphGetNodes(inner, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  CHECK(cudaGraphExecDestroy(before));
  CHECK(cudaGraphExecDestroy(after));
  CHECK(cudaGraphDestroy(parent));
  CHECK(cudaGraphDestroy(one));
}

// An executable graph takes another child of the same shape, for one node or with its whole graph.
static void other_child_in_exec(int* data) {
  cudaGraph_t first = chain(data, 2, 1), second = chain(data, 2, 10), longer = chain(data, 3, 1), parent, other;
  cudaGraphNode_t node, other_node;
  CHECK(cudaGraphCreate(&parent, 0));
  CHECK(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, first));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, parent, 0));
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, second));
  EXPECT_EQ(added(exec, data), 20);
  EXPECT(cudaGraphExecChildGraphNodeSetParams(exec, node, longer) != cudaSuccess);
  EXPECT_EQ(added(exec, data), 20);
  CHECK(cudaGraphCreate(&other, 0));
  CHECK(cudaGraphAddChildGraphNode(&other_node, other, nullptr, 0, first));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, other, &info));
  EXPECT_EQ(added(exec, data), 2);
  cudaGetLastError();
  for (cudaGraph_t graph : {first, second, longer, parent, other}) CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphExecDestroy(exec));
}

// A graph that allocates memory can only move. It is its parent's then.
static void moved(int* data) {
  cudaGraph_t child, parent, other;
  CHECK(cudaGraphCreate(&child, 0));
  CHECK(cudaGraphCreate(&parent, 0));
  CHECK(cudaGraphCreate(&other, 0));
  cudaMemAllocNodeParams allocation{};
  allocation.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.poolProps.location.type = cudaMemLocationTypeDevice;
  allocation.bytesize = kCount * sizeof(int);
  cudaGraphNode_t alloc, fill, copy, free, node;
  CHECK(cudaGraphAddMemAllocNode(&alloc, child, nullptr, 0, &allocation));
  cudaMemsetParams memset{};
  memset.dst = allocation.dptr;
  memset.value = 3;
  memset.elementSize = 4;
  memset.width = kCount;
  memset.height = 1;
  CHECK(cudaGraphAddMemsetNode(&fill, child, &alloc, 1, &memset));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, child, &fill, 1, data, allocation.dptr, kCount * sizeof(int),
                                 cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddMemFreeNode(&free, child, &copy, 1, allocation.dptr));

  CUgraphNodeParams params = child_params(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  EXPECT(cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &params) != CUDA_SUCCESS);
  params = child_params(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  CHECK_DRIVER(cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &params));
  cudaGraph_t inner;
  CHECK(cudaGraphChildGraphNodeGetGraph(node, &inner));
  EXPECT(inner == child);

  cudaGraphExec_t exec;
  EXPECT(cudaGraphInstantiate(&exec, child, 0) != cudaSuccess);
  EXPECT(cudaGraphDestroy(child) != cudaSuccess);
  params = child_params(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  cudaGraphNode_t twice;
  EXPECT(cuGraphAddNode(&twice, other, nullptr, nullptr, 0, &params) != CUDA_SUCCESS);
  cudaGetLastError();
  CHECK(cudaGraphInstantiate(&exec, parent, 0));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(added(exec, data), 3);
  CHECK(cudaGraphDestroy(parent));
  EXPECT_EQ(added(exec, data), 3);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(other));
}

int main() {
  int* data;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  other_child(data);
  other_child_in_exec(data);
  moved(data);
  CHECK(cudaFree(data));
  return passed();
}
