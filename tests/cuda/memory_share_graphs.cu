// Graphs that allocate: a launch takes its memory or is refused, and the program goes on.
// alone: yes
#include <vector>

#include "check.h"

struct Allocating {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaError_t made = cudaSuccess;

  Allocating(size_t bytes, int nodes) {
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t last = nullptr;
    std::vector<void*> memory;
    for (int i = 0; i < nodes; ++i) {
      cudaMemAllocNodeParams asked{};
      asked.poolProps.allocType = cudaMemAllocationTypePinned;
      asked.poolProps.location = {cudaMemLocationTypeDevice, 0};
      asked.bytesize = bytes;
      cudaGraphNode_t node;
      CHECK(cudaGraphAddMemAllocNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &asked));
      last = node;
      memory.push_back(asked.dptr);
    }
    for (void* each : memory) {
      cudaMemsetParams fill{};
      fill.dst = each;
      fill.value = 3;
      fill.elementSize = 1;
      fill.width = 4096;
      fill.height = 1;
      cudaGraphNode_t node;
      CHECK(cudaGraphAddMemsetNode(&node, graph, &last, 1, &fill));
      CHECK(cudaGraphAddMemFreeNode(&last, graph, &node, 1, each));
    }
    made = cudaGraphInstantiate(&exec, graph, 0);
  }
  ~Allocating() {
    if (exec) CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
  // The memory may be missing when the graph is instantiated or launched; a launch's error may come with the next wait.
  cudaError_t launch(cudaStream_t stream) const { return made ? made : cudaGraphLaunch(exec, stream); }
  cudaError_t run(cudaStream_t stream) const {
    const cudaError_t error = launch(stream), later = cudaStreamSynchronize(stream);
    return error ? error : later;
  }
};

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  size_t before = 0, share = 0, after = 0;
  {
    const Allocating warm(1 << 20, 1);
    CHECK(warm.run(stream));
  }
  CHECK(cudaMemGetInfo(&before, &share));
  for (int round = 0; round < 2; ++round) {
    EXPECT_CODE(cudaErrorMemoryAllocation, Allocating(share / 3, 4).run(stream));
    cudaGetLastError();
    const Allocating fits(share < (size_t{64} << 30) ? before / 4 : 64 << 20, 2);
    for (int i = 0; i < 20; ++i) CHECK(fits.launch(stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  // What graphs keep for later is there for whoever needs it.
  void* memory = nullptr;
  if (share < (size_t{64} << 30)) {
    CHECK(cudaMalloc(&memory, before - before / 8));
    CHECK(cudaFree(memory));
    CHECK(cudaMemGetInfo(&after, &share));
    EXPECT(after >= before);  // and more, if the first graph's memory had to go as well
  }
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
