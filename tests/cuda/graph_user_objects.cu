// User objects live as long as launches of graphs that keep them.
// vm: no
#include <unistd.h>

#include <atomic>

#include "check.h"

static std::atomic<int> gone{0};

static void CUDART_CB destroy(void* bit) { gone.fetch_or(static_cast<int>(reinterpret_cast<intptr_t>(bit))); }
static void CUDART_CB sleep_a_little(void*) { usleep(200'000); }

// A graph with one node, that takes a while, and an object that sets `bit` when nobody keeps it any more.
static cudaGraph_t make(int bit) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaHostNodeParams host{sleep_a_little, nullptr};
  cudaGraphNode_t node;
  CHECK(cudaGraphAddHostNode(&node, graph, nullptr, 0, &host));
  cudaUserObject_t object;
  void* const data = reinterpret_cast<void*>(static_cast<intptr_t>(bit));
  CHECK(cudaUserObjectCreate(&object, data, destroy, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  return graph;
}

static bool goes(int bit) {
  for (int i = 0; i < 500 && !(gone & bit); ++i) usleep(10'000);
  return gone & bit;
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t first = make(1), second = make(2);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, first, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaGraphDestroy(first));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, second, &info));
  EXPECT(info.result == cudaGraphExecUpdateSuccess);
  CHECK(cudaGraphDestroy(second));
  EXPECT(gone == 0);  // the launch is under way
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(goes(1));
  EXPECT(gone == 1);  // the executable graph has the other one

  // A launch that has not begun goes on without its executable graph, whatever is made meanwhile.
  CHECK(cudaLaunchHostFunc(stream, sleep_a_little, nullptr));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaGraphExecDestroy(exec));
  EXPECT(gone == 1);
  for (int i = 0; i < 50; ++i) CHECK(cudaGraphDestroy(make(8)));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(goes(2));

  // One that was never launched keeps nothing longer than it lives.
  cudaGraph_t third = make(4);
  CHECK(cudaGraphInstantiate(&exec, third, 0));
  CHECK(cudaGraphDestroy(third));
  EXPECT((gone & ~8) == 3);
  CHECK(cudaGraphExecDestroy(exec));
  EXPECT(goes(4));
  std::puts("ok");
}
