// nvcc: -lcuda
// Functions of CUDA 13.1 to 13.4, asked for by name: the headers of 13.0 do not have them, and older drivers neither.
#include <cstring>
#include <set>
#include <vector>

#include "check.h"

// False, and the program has passed, if the driver is too old.
template <typename Function>
static bool find(const char* name, int version, Function* function) {
  void* found = nullptr;
  CHECK_DRIVER(cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  *function = reinterpret_cast<Function>(found);
  if (!found) std::printf("no %s here\n", name);
  return found;
}

__global__ void add(int* data, int value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += value;
}

static void numbers() {
  CUresult (*containing)(CUgraphNode, CUgraph*), (*local_id)(CUgraphNode, unsigned*), (*graph_id)(CUgraph, unsigned*),
      (*exec_id)(CUgraphExec, unsigned*), (*tools_id)(CUgraphNode, unsigned long long*);
  if (!find("cuGraphNodeGetContainingGraph", 13010, &containing) || !find("cuGraphGetId", 13010, &graph_id) ||
      !find("cuGraphNodeGetLocalId", 13010, &local_id) || !find("cuGraphExecGetId", 13010, &exec_id) ||
      !find("cuGraphNodeGetToolsId", 13010, &tools_id)) {
    return;
  }
  std::set<unsigned> graph_ids, node_ids;
  std::set<unsigned long long> tools_ids;
  CUgraph first, second, of = nullptr;
  CHECK_DRIVER(cuGraphCreate(&first, 0));
  CHECK_DRIVER(cuGraphCreate(&second, 0));
  unsigned id = 0;
  unsigned long long tools = 0;
  for (int i = 0; i < 3; ++i) {
    CUgraphNode node;
    CHECK_DRIVER(cuGraphAddEmptyNode(&node, first, nullptr, 0));
    CHECK_DRIVER(containing(node, &of));
    EXPECT(of == first);
    CHECK_DRIVER(local_id(node, &id));
    node_ids.insert(id);
    CHECK_DRIVER(tools_id(node, &tools));
    tools_ids.insert(tools);
  }
  CUgraphNode child;
  CUgraph inner;
  CHECK_DRIVER(cuGraphAddChildGraphNode(&child, second, nullptr, 0, first));
  CHECK_DRIVER(cuGraphChildGraphNodeGetGraph(child, &inner));
  CUgraphNode node;
  size_t count = 1;
  CHECK_DRIVER(cuGraphGetNodes(inner, &node, &count));
  CHECK_DRIVER(containing(node, &of));
  EXPECT(of == inner);
  CHECK_DRIVER(tools_id(node, &tools));
  tools_ids.insert(tools);
  CUgraphExec exec;
  CHECK_DRIVER(cuGraphInstantiateWithFlags(&exec, second, 0));
  for (CUgraph graph : {first, second, inner}) {
    CHECK_DRIVER(graph_id(graph, &id));
    graph_ids.insert(id);
  }
  CHECK_DRIVER(exec_id(exec, &id));
  graph_ids.insert(id);
  EXPECT_EQ(node_ids.size(), 3u);
  EXPECT_EQ(tools_ids.size(), 4u);
  EXPECT_EQ(graph_ids.size(), 4u);
  EXPECT(graph_id(nullptr, &id) != CUDA_SUCCESS);
  EXPECT(graph_id(first, nullptr) != CUDA_SUCCESS);
  CHECK_DRIVER(cuGraphExecDestroy(exec));
  CHECK_DRIVER(cuGraphDestroy(second));
  CHECK_DRIVER(cuGraphDestroy(first));
}

// A node tells what it was made of, whatever its type.
static void parameters(int* data) {
  CUresult (*get)(CUgraphNode, CUgraphNodeParams*);
  if (!find("cuGraphNodeGetParams", 13020, &get)) return;
  cudaGraph_t graph, child;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphCreate(&child, 0));
  int value = 3, n = 100;
  void* arguments[] = {&data, &value, &n};
  cudaKernelNodeParams launch{};
  launch.func = reinterpret_cast<void*>(add);
  launch.gridDim = dim3(2);
  launch.blockDim = dim3(64);
  launch.kernelParams = arguments;
  cudaMemsetParams memset{};
  memset.dst = data;
  memset.value = 7;
  memset.elementSize = 4;
  memset.width = n;
  memset.height = 1;
  cudaGraphNode_t kernel, fill, inner, empty;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, nullptr, 0, &launch));
  CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
  CHECK(cudaGraphAddChildGraphNode(&inner, graph, nullptr, 0, child));
  CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CUgraphNodeParams params;
  CHECK_DRIVER(get(kernel, &params));
  EXPECT(params.type == CU_GRAPH_NODE_TYPE_KERNEL && params.kernel.gridDimX == 2 && params.kernel.blockDimX == 64);
  EXPECT_EQ(*static_cast<int*>(params.kernel.kernelParams[1]), 3);
  CHECK_DRIVER(get(fill, &params));
  EXPECT(params.type == CU_GRAPH_NODE_TYPE_MEMSET && params.memset.value == 7 && params.memset.width == 100);
  EXPECT(params.memset.dst == reinterpret_cast<CUdeviceptr>(data));
  cudaGraph_t found;
  CHECK_DRIVER(get(inner, &params));
  CHECK(cudaGraphChildGraphNodeGetGraph(inner, &found));
  EXPECT(params.type == CU_GRAPH_NODE_TYPE_GRAPH && params.graph.graph == found);
  CHECK_DRIVER(get(empty, &params));
  EXPECT(params.type == CU_GRAPH_NODE_TYPE_EMPTY);
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(child));
}

static void functions() {
  CUresult (*count_of)(CUfunction, size_t*);
  if (!find("cuFuncGetParamCount", 13020, &count_of)) return;
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<void*>(add)));
  size_t count = 0;
  CHECK_DRIVER(count_of(function, &count));
  EXPECT_EQ(count, 3u);
}

static void host_functions() {
  CUresult (*launch)(CUstream, CUhostFn, void*, unsigned);
  if (!find("cuLaunchHostFunc", 13010, &launch)) return;
  int calls = 0;
  for (const unsigned mode : {0u, 1u}) {
    CHECK_DRIVER(launch(nullptr, [](void* data) { ++*static_cast<int*>(data); }, &calls, mode));
  }
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(calls, 2);
}

// What is read during the call may be changed after it.
static void copies(int* data) {
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream);
  if (!find("cuMemcpyWithAttributesAsync", 13020, &copy)) return;
  constexpr size_t kBytes = 400;
  int* pinned;
  CHECK(cudaMallocHost(&pinned, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (size_t i = 0; i < 100; ++i) pinned[i] = 42;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  const auto to = reinterpret_cast<CUdeviceptr>(data), from = reinterpret_cast<CUdeviceptr>(pinned);
  CHECK_DRIVER(copy(to, from, kBytes, &attributes, stream));
  std::memset(pinned, 0, kBytes);
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CHECK_DRIVER(copy(from, to, kBytes, &attributes, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(pinned[i], 42);
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT(copy(to, from, kBytes, &attributes, stream) != CUDA_SUCCESS);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
}

struct GroupParams {
  unsigned count, together, preferred, flags, rest[12];
};

static void resources() {
  CUresult (*split)(CUdevResource*, unsigned, const CUdevResource*, CUdevResource*, unsigned, GroupParams*);
  CUresult (*of_stream)(CUstream, CUdevResource*, CUdevResourceType);
  if (!find("cuDevSmResourceSplit", 13010, &split) || !find("cuStreamGetDevResource", 13010, &of_stream)) return;
  CUdevResource all{}, group{}, rest{}, found{};
  CHECK_DRIVER(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  GroupParams params{};
  CHECK_DRIVER(split(nullptr, 1, &all, nullptr, 0, &params));  // how many there are
  EXPECT(params.count > 0 && params.count <= all.sm.smCount);
  if (all.sm.smCount < 4) return;
  const unsigned part = all.sm.smCount >= 64 ? 8 : 2;  // a GPU gives them by eights
  params = {part, 2};
  CHECK_DRIVER(split(&group, 1, &all, &rest, 0, &params));
  EXPECT_EQ(group.sm.smCount, part);
  EXPECT_EQ(rest.sm.smCount, all.sm.smCount - part);
  GroupParams both[] = {{part, 2}, {all.sm.smCount, 2}};
  CUdevResource groups[2];
  EXPECT(split(groups, 2, &all, nullptr, 0, both) != CUDA_SUCCESS);  // more than there are
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUstream stream;
  CHECK_DRIVER(cuDevResourceGenerateDesc(&description, &group, 1));
  CHECK_DRIVER(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK_DRIVER(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CHECK_DRIVER(of_stream(stream, &found, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(found.sm.smCount, part);
  CHECK_DRIVER(of_stream(nullptr, &found, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(found.sm.smCount, all.sm.smCount);
  CHECK_DRIVER(cuStreamDestroy(stream));
  CHECK_DRIVER(cuGreenCtxDestroy(green));
}

struct QueueConfig {
  CUdevice device;
  unsigned limit, scope;
};

// What a green context is to have of the queues between its streams and the device.
static void queues() {
  constexpr auto kConfig = static_cast<CUdevResourceType>(1000), kQueues = static_cast<CUdevResourceType>(10000);
  CUresult (*of_stream)(CUstream, CUdevResource*, CUdevResourceType);
  if (!find("cuStreamGetDevResource", 13010, &of_stream)) return;
  CUdevResource all{}, config{}, of_context{}, found{};
  CHECK_DRIVER(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  CHECK_DRIVER(cuDeviceGetDevResource(0, &config, kConfig));
  EXPECT_EQ(config.type, kConfig);
  QueueConfig said;
  std::memcpy(&said, config._oversize, sizeof(said));
  EXPECT_EQ(said.device, 0);
  EXPECT(said.limit >= 1 && said.limit <= 32 && said.scope == 0);
  said.limit = 2;
  said.scope = 1;  // apart from others
  std::memcpy(config._oversize, &said, sizeof(said));
  CUdevResource parts[] = {all, config};
  CUdevResourceDesc description;
  CUgreenCtx first, second;
  CHECK_DRIVER(cuDevResourceGenerateDesc(&description, parts, 2));
  CHECK_DRIVER(cuGreenCtxCreate(&first, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK_DRIVER(cuGreenCtxGetDevResource(first, &found, kConfig));
  std::memcpy(&said, found._oversize, sizeof(said));
  EXPECT_EQ(said.scope, 1u);
  CHECK_DRIVER(cuGreenCtxGetDevResource(first, &of_context, kQueues));
  parts[1] = of_context;
  CHECK_DRIVER(cuDevResourceGenerateDesc(&description, parts, 2));
  CHECK_DRIVER(cuGreenCtxCreate(&second, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CUstream stream;
  CHECK_DRIVER(cuGreenCtxStreamCreate(&stream, second, CU_STREAM_NON_BLOCKING, 0));
  EXPECT(of_stream(stream, &found, kConfig) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CHECK_DRIVER(cuStreamDestroy(stream));
  CHECK_DRIVER(cuGreenCtxDestroy(second));
  CHECK_DRIVER(cuGreenCtxDestroy(first));
}

int main() {
  int* data;
  CHECK(cudaMalloc(&data, 400));
  numbers();
  parameters(data);
  functions();
  host_functions();
  copies(data);
  resources();
  queues();
  CHECK(cudaFree(data));
  return passed();
}
