// nvcc: -rdc=true -lcudadevrt
// Conditional nodes: if, if and else, while, switch, one in another, captured bodies, and what is refused.
#include "check.h"
#include "parts.cuh"

__global__ void set(cudaGraphConditionalHandle handle, const int* value) { cudaGraphSetConditional(handle, *value); }
__global__ void add(int* to, int what) { *to += what; }

// Counts down, and goes on while there is something left.
__global__ void count_down(cudaGraphConditionalHandle handle, int* left, int* rounds) {
  ++*rounds;
  cudaGraphSetConditional(handle, --*left > 0);
}

struct Words {
  int value, sum, rounds, inner;
};

static Words* words;

static void put(Words content) { CHECK(cudaMemcpy(words, &content, sizeof(content), cudaMemcpyHostToDevice)); }
static Words got() {
  Words content;
  CHECK(cudaMemcpy(&content, words, sizeof(content), cudaMemcpyDeviceToHost));
  return content;
}

static cudaGraphNode_t kernel(cudaGraph_t graph, void* function, void** arguments, const cudaGraphNode_t* after) {
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

static cudaGraphNode_t add_node(cudaGraph_t graph, int* to, int what) {
  void* arguments[] = {&to, &what};
  return kernel(graph, reinterpret_cast<void*>(add), arguments, nullptr);
}

// The bodies of a new conditional node, behind `after`.
static cudaGraph_t* conditional(cudaGraph_t graph, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                unsigned size, const cudaGraphNode_t* after) {
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &params));
  return params.conditional.phGraph_out;
}

static void run(cudaGraph_t graph, int times = 1) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < times; ++i) CHECK(cudaGraphLaunch(exec, 0));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGraphExecDestroy(exec));
}

struct Chosen {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  cudaGraphNode_t setter;
};

// A graph whose first kernel sets a condition to words->value.
static Chosen chosen_by_value() {
  Chosen made;
  CHECK(cudaGraphCreate(&made.graph, 0));
  CHECK(cudaGraphConditionalHandleCreate(&made.handle, made.graph, 0, 0));
  int* value = &words->value;
  void* arguments[] = {&made.handle, &value};
  made.setter = kernel(made.graph, reinterpret_cast<void*>(set), arguments, nullptr);
  return made;
}

static void ifs() {
  const Chosen made = chosen_by_value();
  cudaGraph_t* const bodies = conditional(made.graph, made.handle, cudaGraphCondTypeIf, 2, &made.setter);
  add_node(bodies[0], &words->sum, 10);
  add_node(bodies[1], &words->sum, 100);
  put({1, 0, 0, 0});
  run(made.graph);
  EXPECT_EQ(got().sum, 10);
  put({0, 0, 0, 0});
  run(made.graph, 2);
  EXPECT_EQ(got().sum, 200);
  CHECK(cudaGraphDestroy(made.graph));
}

static void switches() {
  const Chosen made = chosen_by_value();
  cudaGraph_t* const bodies = conditional(made.graph, made.handle, cudaGraphCondTypeSwitch, 4, &made.setter);
  for (int i = 0; i < 4; ++i) add_node(bodies[i], &words->sum, i + 1);
  for (int i = 0; i < 6; ++i) {
    put({i, 0, 0, 0});
    run(made.graph);
    EXPECT_EQ(got().sum, i < 4 ? i + 1 : 0);
  }
}

static void whiles() {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraph_t* const bodies = conditional(graph, handle, cudaGraphCondTypeWhile, 1, nullptr);
  int *left = &words->value, *rounds = &words->rounds;
  void* arguments[] = {&handle, &left, &rounds};
  kernel(bodies[0], reinterpret_cast<void*>(count_down), arguments, nullptr);
  put({500, 0, 0, 0});
  run(graph);
  EXPECT_EQ(got().rounds, 500);
  // Each launch begins with the default again.
  run(graph, 3);
  EXPECT_EQ(got().rounds, 503);
}

// A loop of three rounds whose body has a loop of four, captured from a stream. The default of the inner one is for the
// launch of the whole graph: the second and third round find the 0 that its last round has set.
static void nested() {
  cudaGraph_t graph;
  cudaGraphConditionalHandle outer, inner;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphConditionalHandleCreate(&outer, graph, 1, cudaGraphCondAssignDefault));
  cudaGraph_t body = conditional(graph, outer, cudaGraphCondTypeWhile, 1, nullptr)[0];
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMemsetAsync(&words->inner, 0, sizeof(int), stream));
  add<<<1, 1, 0, stream>>>(&words->inner, 4);
  count_down<<<1, 1, 0, stream>>>(outer, &words->value, &words->rounds);
  CHECK(cudaStreamEndCapture(stream, &body));
  CHECK(cudaGraphConditionalHandleCreate(&inner, body, 1, cudaGraphCondAssignDefault));
  size_t count = 0;
  CHECK(cudaGraphGetNodes(body, nullptr, &count));
  EXPECT_EQ(count, size_t{3});
  cudaGraphNode_t nodes[3];
  CHECK(cudaGraphGetNodes(body, nodes, &count));
  cudaGraph_t deep = conditional(body, inner, cudaGraphCondTypeWhile, 1, &nodes[2])[0];
  int *left = &words->inner, *rounds = &words->sum;
  void* arguments[] = {&inner, &left, &rounds};
  kernel(deep, reinterpret_cast<void*>(count_down), arguments, nullptr);
  put({3, 0, 0, 0});
  run(graph);
  EXPECT_EQ(got().rounds, 3);
  EXPECT_EQ(got().sum, 4);
  put({3, 0, 0, 0});
  run(graph);
  EXPECT_EQ(got().rounds, 3);
  EXPECT_EQ(got().sum, 4);
}

// Without a kernel in its body a loop would never end; nothing runs where the condition is 0.
static void refusals() {
  const Chosen made = chosen_by_value();
  cudaGraph_t other;
  CHECK(cudaGraphCreate(&other, 0));
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = made.handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 2;
  cudaGraphNode_t node;
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddNode(&node, made.graph, nullptr, nullptr, 0, &params));
  params.conditional.size = 0;
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddNode(&node, made.graph, nullptr, nullptr, 0, &params));
  params.conditional.size = 1;
  params.conditional.handle = made.handle + 0x123456789;
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddNode(&node, made.graph, nullptr, nullptr, 0, &params));
  params.conditional.handle = made.handle;
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddNode(&node, other, nullptr, nullptr, 0, &params));
  CHECK(cudaGraphAddNode(&node, made.graph, &made.setter, nullptr, 1, &params));
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(node, &type));
  EXPECT_EQ(type, cudaGraphNodeTypeConditional);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddNode(&node, made.graph, nullptr, nullptr, 0, &params));
  put({0, 0, 0, 0});
  run(made.graph);
}

template <void (*part)()>
static void prepared() {
  CHECK(cudaMalloc(&words, sizeof(Words)));
  part();
}

int main() {
  return run_parts({
      {"if", prepared<ifs>},
      {"switch", prepared<switches>},
      {"while", prepared<whiles>},
      {"nested", prepared<nested>},
      {"refusals", prepared<refusals>},
  });
}
