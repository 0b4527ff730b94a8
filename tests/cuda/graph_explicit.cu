// Graphs built node by node: kernel, memcpy, memset, host, empty and child nodes.
#include <atomic>
#include <vector>

#include "check.h"

__global__ void scale(float* data, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor;
}

// Copies from and to pageable memory that get other parameters in the graph: what was instantiated before stays as it
// was.
void changed_copies() {
  constexpr size_t kBytes = 4096;
  std::vector<char> in(kBytes, 1), in_later(kBytes, 2), out(kBytes), out_later(kBytes);
  char *first, *second;
  CHECK(cudaMalloc(&first, kBytes));
  CHECK(cudaMalloc(&second, kBytes));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t upload, download;
  CHECK(cudaGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, first, in.data(), kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaGraphAddMemcpyNode1D(&download, graph, &upload, 1, out.data(), first, kBytes, cudaMemcpyDeviceToHost));
  cudaGraphExec_t before, after;
  CHECK(cudaGraphInstantiate(&before, graph, 0));
  CHECK(cudaGraphMemcpyNodeSetParams1D(upload, second, in_later.data(), kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaGraphMemcpyNodeSetParams1D(download, out_later.data(), second, kBytes / 2, cudaMemcpyDeviceToHost));
  cudaMemcpy3DParms found{};
  CHECK(cudaGraphMemcpyNodeGetParams(download, &found));
  EXPECT(found.srcPtr.ptr == second && found.dstPtr.ptr == out_later.data() && found.extent.width == kBytes / 2);
  CHECK(cudaGraphInstantiate(&after, graph, 0));
  CHECK(cudaGraphLaunch(after, nullptr));
  CHECK(cudaDeviceSynchronize());
  for (size_t i = 0; i < kBytes; ++i) EXPECT(out[i] == 0 && out_later[i] == (i < kBytes / 2 ? 2 : 0));
  out_later.assign(kBytes, 0);
  CHECK(cudaGraphLaunch(before, nullptr));
  CHECK(cudaDeviceSynchronize());
  for (size_t i = 0; i < kBytes; ++i) EXPECT(out[i] == 1 && out_later[i] == 0);
  CHECK(cudaGraphExecDestroy(before));
  CHECK(cudaGraphExecDestroy(after));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(first));
  CHECK(cudaFree(second));
}

// What a copy node was given, it tells again.
void parameters_as_given() {
  char *device, *pinned;
  CHECK(cudaMalloc(&device, 4096));
  CHECK(cudaMallocHost(&pinned, 4096));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemcpy3DParms given{}, found{};
  given.srcPtr = make_cudaPitchedPtr(pinned, 64, 64, 8);
  given.srcPos = make_cudaPos(3, 1, 0);
  given.dstPtr = make_cudaPitchedPtr(device, 32, 32, 8);
  given.dstPos = make_cudaPos(5, 0, 1);
  given.extent = make_cudaExtent(8, 2, 1);
  given.kind = cudaMemcpyHostToDevice;
  const auto expect = [&](cudaGraphNode_t node) {
    CHECK(cudaGraphMemcpyNodeGetParams(node, &found));
    EXPECT(found.srcPtr.ptr == pinned && found.srcPtr.pitch == 64 && found.srcPos.x == given.srcPos.x);
    EXPECT(found.dstPtr.ptr == device && found.dstPtr.pitch == 32 && found.dstPos.x == 5 && found.dstPos.z == 1);
  };
  cudaGraphNode_t node, twin;
  CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &given));
  expect(node);
  given.srcPos.x = 4;
  CHECK(cudaGraphMemcpyNodeSetParams(node, &given));
  expect(node);
  cudaGraph_t clone;
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphNodeFindInClone(&twin, node, clone));
  expect(twin);
  CHECK(cudaGraphDestroy(clone));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(pinned));
}

int main() {
  changed_copies();
  parameters_as_given();
  constexpr int kCount = 5000;
  std::vector<float> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = i;
  float *device, *other;
  CHECK(cudaMalloc(&device, kCount * 4));
  CHECK(cudaMalloc(&other, kCount * 4));

  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t upload, clear, kernel, host, empty, download;
  CHECK(cudaGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, device, in.data(), kCount * 4, cudaMemcpyHostToDevice));
  cudaMemsetParams memset{};
  memset.dst = other;
  memset.value = 0;
  memset.elementSize = 4;
  memset.width = kCount;
  memset.height = 1;
  CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset));
  float factor = 3;
  int count = kCount;
  void* arguments[] = {&device, &factor, &count};
  cudaKernelNodeParams launch{};
  launch.func = reinterpret_cast<void*>(scale);
  launch.gridDim = dim3((kCount + 255) / 256);
  launch.blockDim = dim3(256);
  launch.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, &upload, 1, &launch));
  std::atomic<int> calls{0};
  cudaHostNodeParams function{[](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls};
  CHECK(cudaGraphAddHostNode(&host, graph, &kernel, 1, &function));
  const cudaGraphNode_t both[] = {host, clear};
  CHECK(cudaGraphAddEmptyNode(&empty, graph, both, 2));
  CHECK(cudaGraphAddMemcpyNode1D(&download, graph, &empty, 1, out.data(), device, kCount * 4, cudaMemcpyDeviceToHost));

  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(kernel, &type));
  EXPECT(type == cudaGraphNodeTypeKernel);
  CHECK(cudaGraphNodeGetType(empty, &type));
  EXPECT(type == cudaGraphNodeTypeEmpty);
  size_t dependencies = 0;
  CHECK(cudaGraphNodeGetDependencies(empty, nullptr, nullptr, &dependencies));
  EXPECT_EQ(dependencies, 2u);

  cudaGraphExec_t exec;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 3.0f * i);
  EXPECT_EQ(calls.load(), 1);

  factor = 5;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 5.0f * i);
  cudaKernelNodeParams read{};
  CHECK(cudaGraphKernelNodeGetParams(kernel, &read));
  EXPECT_EQ(*static_cast<float*>(read.kernelParams[1]), 3.0f);  // the graph itself is as it was

  cudaGraph_t clone, parent;
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphCreate(&parent, 0));
  cudaGraphNode_t child;
  CHECK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, clone));
  cudaGraphExec_t nested;
  CHECK(cudaGraphInstantiate(&nested, parent, 0));
  CHECK(cudaGraphLaunch(nested, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 3.0f * i);
  EXPECT_EQ(calls.load(), 3);

  // A cycle is refused.
  cudaGraphNode_t from = download, to = upload;
  EXPECT(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1) != cudaSuccess ||
         cudaGraphInstantiate(&nested, graph, 0) != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaGraphDestroyNode(download));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(parent));
  CHECK(cudaGraphDestroy(graph));
  return passed();
}
