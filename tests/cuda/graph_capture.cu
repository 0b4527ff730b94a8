// Streams captured into graphs, with forks and joins, replayed and updated.
// vm: yes
#include <vector>

#include "check.h"

__global__ void add(int* at, int value) { *at += value; }
__global__ void multiply(int* at, int value) { *at *= value; }

int main() {
  int *data, *pinned;
  CHECK(cudaMalloc(&data, 64));
  CHECK(cudaMallocHost(&pinned, 64));
  cudaStream_t stream, other;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&other));
  cudaEvent_t fork, join;
  CHECK(cudaEventCreate(&fork));
  CHECK(cudaEventCreate(&join));

  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusNone);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  CHECK(cudaMemsetAsync(data, 0, 64, stream));
  add<<<1, 1, 0, stream>>>(data, 3);
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(other, fork, 0));
  add<<<1, 1, 0, other>>>(data + 1, 10);
  CHECK(cudaEventRecord(join, other));
  multiply<<<1, 1, 0, stream>>>(data, 5);
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  add<<<1, 1, 0, stream>>>(data, 1);
  CHECK(cudaMemcpyAsync(pinned, data, 8, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  pinned[0] = pinned[1] = -1;
  size_t nodes = 0, roots = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT_EQ(nodes, 6u);
  EXPECT_EQ(roots, 1u);

  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(pinned[0], -1);  // capturing ran nothing
  for (int i = 0; i < 20; ++i) {
    pinned[0] = pinned[1] = -1;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(pinned[0], 16);
    EXPECT_EQ(pinned[1], 10);
  }

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemsetAsync(data, 0, 64, stream));
  add<<<1, 1, 0, stream>>>(data, 100);
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(other, fork, 0));
  add<<<1, 1, 0, other>>>(data + 1, 200);
  CHECK(cudaEventRecord(join, other));
  multiply<<<1, 1, 0, stream>>>(data, 2);
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  add<<<1, 1, 0, stream>>>(data, 7);
  CHECK(cudaMemcpyAsync(pinned, data, 8, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t changed;
  CHECK(cudaStreamEndCapture(stream, &changed));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, changed, &info));
  EXPECT(info.result == cudaGraphExecUpdateSuccess);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(pinned[0], 207);
  EXPECT_EQ(pinned[1], 200);

  // A forked stream that was joined may be destroyed before the capture ends.
  cudaStream_t third;
  CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(third, fork, 0));
  add<<<1, 1, 0, third>>>(data, 1);
  CHECK(cudaEventRecord(join, third));
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  CHECK(cudaStreamDestroy(third));
  cudaGraph_t joined;
  CHECK(cudaStreamEndCapture(stream, &joined));
  CHECK(cudaGraphGetNodes(joined, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  CHECK(cudaGraphDestroy(joined));

  // What cannot be captured makes the capture invalid, and says so.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CODE(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
  cudaGraph_t none = nullptr;
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &none));
  EXPECT(none == nullptr);
  CHECK(cudaStreamSynchronize(stream));

  // To free is a potentially unsafe call, also to free nothing.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaFree(nullptr));
  void* meanwhile = nullptr;
  CHECK(cudaMalloc(&meanwhile, 1 << 16));
  CHECK(cudaFree(meanwhile));
  CHECK(cudaStreamEndCapture(stream, &none));
  CHECK(cudaGraphDestroy(none));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CODE(cudaErrorStreamCaptureUnsupported, cudaFree(nullptr));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &none));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(changed));
  return passed();
}
