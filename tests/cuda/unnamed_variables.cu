// nvcc: -lcuda
// Variables that the program cannot ask for by a name, texts and static arrays of kernels, are device memory like
// others.
#include <cuda.h>

#include <cstring>

#include "check.h"

struct Places {
  const char* text;
  int* hidden;
};

static __device__ int table[100] = {1, 2, 3};

__global__ void where(Places* places, int i) {
  places->text = "some text of the kernel";
  places->hidden = table + i;
  table[i] = i;
}

static void check(const void* at, size_t bytes) {
  CUdeviceptr base = 0;
  size_t length = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  CHECK_DRIVER(cuMemGetAddressRange(&base, &length, address));
  EXPECT(base <= address && address - base + bytes <= length);
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, at));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT(attributes.devicePointer == at);
}

int main() {
  Places* places = nullptr;
  CHECK(cudaMalloc(&places, sizeof(Places)));
  where<<<1, 1>>>(places, 5);
  Places found{};
  CHECK(cudaMemcpy(&found, places, sizeof(found), cudaMemcpyDefault));
  check(found.text, sizeof("some text of the kernel"));
  check(found.hidden, 4);

  char text[24] = {};
  CHECK(cudaMemcpy(text, found.text, sizeof(text), cudaMemcpyDefault));
  EXPECT(std::strcmp(text, "some text of the kernel") == 0);

  // Words in stream order, and a fill in a graph.
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  const auto word = reinterpret_cast<CUdeviceptr>(found.hidden);
  CHECK_DRIVER(cuStreamWriteValue32(stream, word, 77, 0));
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams fill{};
  fill.dst = found.hidden + 1;
  fill.value = 0x11;
  fill.elementSize = 1;
  fill.width = 4;
  fill.height = 1;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill));
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  int words[2] = {};
  CHECK(cudaMemcpyAsync(words, found.hidden, sizeof(words), cudaMemcpyDefault, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(words[0], 77);
  EXPECT_EQ(words[1], 0x11111111);

  // Memory of the process is none of the device's, nor is what was freed.
  int here = 0;
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, &here));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  CHECK(cudaFree(places));
  CUdeviceptr base = 0;
  EXPECT(cuMemGetAddressRange(&base, nullptr, reinterpret_cast<CUdeviceptr>(places)) != CUDA_SUCCESS);
  return passed();
}
