// nvcc: -rdc=true -lcudadevrt
// A stream's graph while it is captured: what it has by then, nodes that the program adds in the middle, a conditional
// node whose body another stream captures, and a stream that is no longer captured.
#include <vector>

#include "check.h"

__global__ void add(int* value, int by) { *value += by; }

__global__ void multiply(int* value, int by) { *value *= by; }

__global__ void decide(const int* value, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, *value == 25 ? 1 : 0);
}

struct Captured {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> last;  // that the next node will depend on
};

static Captured ask(cudaStream_t stream) {
  Captured found;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  CHECK(cudaStreamGetCaptureInfo(stream, &found.status, &found.id, &found.graph, &nodes, nullptr, &count));
#else
  CHECK(cudaStreamGetCaptureInfo_v2(stream, &found.status, &found.id, &found.graph, &nodes, &count));
#endif
  found.last.assign(nodes, nodes + count);
  return found;
}

static size_t nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  return count;
}

static void go_on_after(cudaStream_t stream, cudaGraphNode_t node) {
#if CUDART_VERSION >= 13000
  CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
#else
  CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies));
#endif
}

static void add_node_in_the_middle(const Captured& captured, cudaStream_t stream, int* value) {
  int by = 5;
  void* arguments[] = {&value, &by};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(multiply);
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, captured.graph, captured.last.data(), captured.last.size(), &params));
  go_on_after(stream, node);
}

// What the program does if `value` is 25.
static void add_conditional(const Captured& captured, cudaStream_t stream, cudaStream_t other, int* value) {
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, captured.graph, 0, cudaGraphCondAssignDefault));
  decide<<<1, 1, 0, stream>>>(value, handle);
  const Captured decided = ask(stream);
  EXPECT(decided.graph == captured.graph && decided.id == captured.id);
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(&node, decided.graph, decided.last.data(), nullptr, decided.last.size(), &params));
#else
  CHECK(cudaGraphAddNode(&node, decided.graph, decided.last.data(), decided.last.size(), &params));
#endif
  const cudaGraph_t body = params.conditional.phGraph_out[0];
  CHECK(cudaStreamBeginCaptureToGraph(other, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, other>>>(value, 60);
  const Captured first = ask(other);
  EXPECT(first.graph == body);
  cudaGraph_t ended = nullptr;
  CHECK(cudaStreamEndCapture(other, &ended));
  EXPECT(ended == body && nodes_of(body) == 1);
  CHECK(cudaStreamBeginCaptureToGraph(other, body, first.last.data(), nullptr, first.last.size(),
                                      cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, other>>>(value, 40);
  CHECK(cudaStreamEndCapture(other, nullptr));  // whose handle the program has
  EXPECT(nodes_of(body) == 2);
  go_on_after(stream, node);
}

int main() {
  int *value = nullptr, seen = 0;
  CHECK(cudaMalloc(&value, sizeof(int)));
  cudaStream_t stream, other;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&other));
  EXPECT(ask(stream).status == cudaStreamCaptureStatusNone);

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const Captured begun = ask(stream);
  EXPECT(begun.status == cudaStreamCaptureStatusActive && begun.last.empty() && nodes_of(begun.graph) == 0);
  CHECK(cudaMemsetAsync(value, 0, sizeof(int), stream));
  add<<<1, 1, 0, stream>>>(value, 4);
  add<<<1, 1, 0, stream>>>(value, 1);
  const Captured middle = ask(stream);
  EXPECT(middle.graph == begun.graph && middle.id == begun.id && nodes_of(middle.graph) == 3);
  EXPECT(middle.last.size() == 1);
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(middle.last[0], &type));
  EXPECT(type == cudaGraphNodeTypeKernel);
  add_node_in_the_middle(middle, stream, value);
  add_conditional(ask(stream), stream, other, value);
  add<<<1, 1, 0, stream>>>(value, 1000);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph));
  EXPECT(graph == begun.graph && nodes_of(graph) == 7);
  EXPECT(ask(stream).status == cudaStreamCaptureStatusNone);

  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(&seen, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (seen != 1125) return std::printf("%d instead of (4 + 1) * 5 + 100 + 1000\n", seen), 1;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::printf("ok\n");
}
