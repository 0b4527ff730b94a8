// cudaGraphDebugDotPrint: a drawing of a graph and of the graph in it; what is asked for stands in its labels.
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "check.h"

__global__ void fill(int* data, float value) { data[threadIdx.x] = static_cast<int>(value); }
__global__ void rest(double) {}

void from_host(void*) {}

// Without blanks: where the driver leaves one out is of no use to anybody.
std::string drawn(cudaGraph_t graph, unsigned flags) {
  char path[] = "/tmp/graph_drawing.XXXXXX";
  close(mkstemp(path));
  CHECK(cudaGraphDebugDotPrint(graph, path, flags));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string found;
  for (const char c : text.str()) {
    if (c != ' ') found += c;
  }
  unlink(path);
  return found;
}

constexpr char kExpected[] = R"(digraphdot{
subgraphcluster_1{
label="graph_1"graph[style="dashed"];
"graph_1_node_0"[style="bold"shape="octagon"label="0
_Z4fillPif
"];

"graph_1_node_1"[style="solid"shape="invtrapezium"label="1
MEMSET
(7,400)
"];

"graph_1_node_2"[style="solid"shape="trapezium"label="2
MEMCPY
(HtoD,400)
"];

"graph_1_node_3"[style="solid"shape="trapezium"label="3
MEMCPY
(DtoD,400)
"];

"graph_1_node_4"[style="solid"shape="rectangle"label="4
HOST
"];

"graph_1_node_5"[style="solid"shape="rectangle"label="5
EMPTY
"];

"graph_1_node_6"[style="solid"shape="rectangle"label="6
EVENT_RECORD
"];

"graph_1_node_7"[style="solid"shape="rectangle"label="7
EVENT_WAIT
"];

"graph_1_node_8"[style="solid"shape="rectangle"label="8
graph_3
"];

"graph_1_node_9"[style="solid"shape="rectangle"label="9
MEM_ALLOC
"];

"graph_1_node_10"[style="solid"shape="rectangle"label="10
MEM_FREE
"];

"graph_1_node_0"->"graph_1_node_1";
"graph_1_node_1"->"graph_1_node_2";
"graph_1_node_2"->"graph_1_node_3";
"graph_1_node_3"->"graph_1_node_4";
"graph_1_node_4"->"graph_1_node_5";
"graph_1_node_5"->"graph_1_node_6";
"graph_1_node_6"->"graph_1_node_7";
"graph_1_node_7"->"graph_1_node_8";
"graph_1_node_8"->"graph_1_node_9";
"graph_1_node_9"->"graph_1_node_10";
}
subgraphcluster_3{
label="graph_3"graph[style="dashed"];
"graph_3_node_0"[style="bold"shape="octagon"label="0
_Z4restd
"];

}
}
)";

int main() {
  int *data, *host;
  CHECK(cudaMalloc(&data, 4096));
  CHECK(cudaMallocHost(&host, 4096));
  cudaGraph_t graph, inner;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphCreate(&inner, 0));
  cudaGraphNode_t node[11], in_inner;
  float value = 2.5f;
  void* arguments[] = {&data, &value};
  cudaKernelNodeParams kernel{};
  kernel.func = reinterpret_cast<void*>(fill), kernel.gridDim = dim3(4, 2), kernel.blockDim = dim3(32);
  kernel.sharedMemBytes = 128, kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&node[0], graph, nullptr, 0, &kernel));
  cudaMemsetParams memset{};
  memset.dst = data, memset.elementSize = 4, memset.width = 100, memset.height = 1, memset.value = 7;
  CHECK(cudaGraphAddMemsetNode(&node[1], graph, &node[0], 1, &memset));
  CHECK(cudaGraphAddMemcpyNode1D(&node[2], graph, &node[1], 1, data, host, 400, cudaMemcpyHostToDevice));
  CHECK(cudaGraphAddMemcpyNode1D(&node[3], graph, &node[2], 1, data + 500, data, 400, cudaMemcpyDeviceToDevice));
  cudaHostNodeParams function{};
  function.fn = from_host;
  CHECK(cudaGraphAddHostNode(&node[4], graph, &node[3], 1, &function));
  CHECK(cudaGraphAddEmptyNode(&node[5], graph, &node[4], 1));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  CHECK(cudaGraphAddEventRecordNode(&node[6], graph, &node[5], 1, event));
  CHECK(cudaGraphAddEventWaitNode(&node[7], graph, &node[6], 1, event));
  double one = 1;
  void* inner_arguments[] = {&one};
  kernel.func = reinterpret_cast<void*>(rest), kernel.gridDim = kernel.blockDim = dim3(1), kernel.sharedMemBytes = 0;
  kernel.kernelParams = inner_arguments;
  CHECK(cudaGraphAddKernelNode(&in_inner, inner, nullptr, 0, &kernel));
  CHECK(cudaGraphAddChildGraphNode(&node[8], graph, &node[7], 1, inner));
  cudaMemAllocNodeParams allocation{};
  allocation.bytesize = 4096, allocation.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.poolProps.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaGraphAddMemAllocNode(&node[9], graph, &node[8], 1, &allocation));
  CHECK(cudaGraphAddMemFreeNode(&node[10], graph, &node[9], 1, allocation.dptr));

  const std::string plain = drawn(graph, 0);
  EXPECT(plain == kExpected);
  for (const unsigned more : {cudaGraphDebugDotFlagsKernelNodeParams, cudaGraphDebugDotFlagsMemcpyNodeParams,
                              cudaGraphDebugDotFlagsMemsetNodeParams, cudaGraphDebugDotFlagsHostNodeParams,
                              cudaGraphDebugDotFlagsEventNodeParams, cudaGraphDebugDotFlagsHandles}) {
    EXPECT(drawn(graph, more).size() > plain.size());
  }
  const std::string all = drawn(graph, cudaGraphDebugDotFlagsVerbose);
  for (const char* part : {"32,", "128", "MEMSET", "HtoD", "4096", "EVENT_WAIT"})
    EXPECT(all.find(part) != std::string::npos);
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(inner));
  return passed();
}
