// nvcc: -lcuda
// CUDA_LAUNCH_BLOCKING: a launch returns when its work is done; launches that are captured stay launches of the graph.
#include <cstdlib>

#include "check.h"

__global__ void work(unsigned long long* out, int rounds) {
  unsigned long long value = 1;
  for (int i = 0; i < rounds; i++) value = value * 6364136223846793005ull + 1442695040888963407ull;
  out[threadIdx.x] = value;
}

int main() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  unsigned long long* out = nullptr;
  CHECK(cudaMalloc(&out, 1024));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 5; i++) {
    work<<<1, 32, 0, stream>>>(out, 300'000);
    CHECK(cudaStreamQuery(stream));
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  work<<<1, 32, 0, stream>>>(out, 300'000);
  work<<<1, 32, 0, stream>>>(out, 300'000);
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  return passed();
}
