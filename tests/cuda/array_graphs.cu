// Copies from and to arrays in graphs: captured, added by hand, from pinned and from pageable memory.
#include <cstring>
#include <vector>

#include "check.h"

constexpr size_t kWidth = 96, kHeight = 40, kBytes = kWidth * kHeight * sizeof(float);

static cudaArray_t make_array() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight));
  return array;
}

static void run(cudaGraph_t graph, cudaStream_t stream) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

static void captured(cudaStream_t stream, float* from, float* to) {
  cudaArray_t a = make_array(), b = make_array();
  for (size_t i = 0; i < kWidth * kHeight; ++i) from[i] = static_cast<float>(i) + 0.5f, to[i] = 0;
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemcpy2DToArrayAsync(a, 0, 0, from, kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice, stream));
  cudaMemcpy3DParms between{};
  between.srcArray = a;
  between.dstArray = b;
  between.extent = make_cudaExtent(kWidth, kHeight, 1);
  between.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3DAsync(&between, stream));
  CHECK(cudaMemcpy2DFromArrayAsync(to, kWidth * 4, b, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  for (size_t i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(to[i], 0.0f);
  run(graph, stream);
  EXPECT(std::memcmp(from, to, kBytes) == 0);
  CHECK(cudaFreeArray(a));
  CHECK(cudaFreeArray(b));
}

static void by_hand(cudaStream_t stream, float* from, float* to) {
  cudaArray_t array = make_array();
  for (size_t i = 0; i < kWidth * kHeight; ++i) from[i] = static_cast<float>(i) * 3, to[i] = 0;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemcpy3DParms in{}, out{};
  in.srcPtr = make_cudaPitchedPtr(from, kWidth * 4, kWidth, kHeight);
  in.dstArray = array;
  in.extent = make_cudaExtent(kWidth, kHeight, 1);
  in.kind = cudaMemcpyHostToDevice;
  out.srcArray = array;
  out.srcPos = make_cudaPos(1, 2, 0);
  out.dstPtr = make_cudaPitchedPtr(to, kWidth * 4, kWidth, kHeight);
  out.extent = make_cudaExtent(kWidth - 1, kHeight - 2, 1);
  out.kind = cudaMemcpyDeviceToHost;
  cudaGraphNode_t first, second;
  CHECK(cudaGraphAddMemcpyNode(&first, graph, nullptr, 0, &in));
  CHECK(cudaGraphAddMemcpyNode(&second, graph, &first, 1, &out));
  cudaMemcpy3DParms found{};
  CHECK(cudaGraphMemcpyNodeGetParams(second, &found));
  EXPECT(found.srcArray == array && found.srcPos.x == 1 && found.srcPos.y == 2);
  run(graph, stream);
  for (size_t y = 0; y + 2 < kHeight; ++y)
    for (size_t x = 0; x + 1 < kWidth; ++x) EXPECT_EQ(to[y * kWidth + x], from[(y + 2) * kWidth + x + 1]);
  CHECK(cudaFreeArray(array));
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  float* pinned;
  CHECK(cudaMallocHost(&pinned, 2 * kBytes));
  std::vector<float> pageable(2 * kWidth * kHeight);
  for (float* memory : {pinned, pageable.data()}) {
    captured(stream, memory, memory + kWidth * kHeight);
    by_hand(stream, memory, memory + kWidth * kHeight);
  }
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
