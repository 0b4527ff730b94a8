// Streams, events, graphs, and memory of all kinds.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "registered.h"

namespace {
constexpr int kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int);
}  // namespace

void streams_and_events() {
  int low = 0, high = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
  cudaStream_t first = nullptr, second = nullptr;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, high));
  cudaEvent_t begin = nullptr, end = nullptr;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  int* const data = numbers(kCount);
  CHECK(cudaEventRecord(begin, first));
  launch(add_one, 8, 128, 0, first, data, kCount);
  CHECK(cudaEventRecord(end, first));
  CHECK(cudaStreamWaitEvent(second, end, 0));
  launch(add_one, 8, 128, 0, second, data, kCount);
  CHECK(cudaStreamSynchronize(second));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT(milliseconds >= 0);
  CHECK(cudaEventQuery(end));
  CHECK(cudaStreamQuery(first));
  launch(add_one, 8, 128, 0, cudaStreamPerThread, data, kCount);
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  EXPECT(are_numbers(data, kCount, 3));
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
  CHECK(cudaFree(data));
}

void callbacks() {
  static std::atomic<int> called{0};
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaLaunchHostFunc(stream, [](void* counter) { *static_cast<std::atomic<int>*>(counter) += 1; }, &called));
  CHECK(cudaStreamAddCallback(
      stream, [](cudaStream_t, cudaError_t, void* counter) { *static_cast<std::atomic<int>*>(counter) += 10; }, &called,
      0));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(called == 11);
  CHECK(cudaStreamDestroy(stream));
}

void graph_captured() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  int* const data = numbers(kCount);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(add_one, 8, 128, 0, stream, data, kCount);
  launch(add_one, 8, 128, 0, stream, data, kCount);
  cudaStreamCaptureStatus status{};
  CHECK(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 2);
  cudaGraphExec_t runnable = nullptr;
  CHECK(cudaGraphInstantiateWithFlags(&runnable, graph, 0));
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(runnable, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(are_numbers(data, kCount, 6));
  CHECK(cudaGraphExecDestroy(runnable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(data));
}

namespace {

cudaKernelNodeParams adding(void** arguments) {
  cudaKernelNodeParams parameters{};
  parameters.func = reinterpret_cast<void*>(add_one);
  parameters.gridDim = dim3{8, 1, 1};
  parameters.blockDim = dim3{128, 1, 1};
  parameters.kernelParams = arguments;
  return parameters;
}

}  // namespace

void graph_explicit() {
  int* data = numbers(kCount);
  std::vector<int> host(kCount);
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams fill{};
  fill.dst = data;
  fill.elementSize = 4;
  fill.value = 41;
  fill.width = kCount;
  fill.height = 1;
  cudaGraphNode_t filled = nullptr, added = nullptr, copied = nullptr;
  CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
  int count_of = kCount;
  void* arguments[] = {&data, &count_of};
  const cudaKernelNodeParams parameters = adding(arguments);
  CHECK(cudaGraphAddKernelNode(&added, graph, &filled, 1, &parameters));
  CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &added, 1, host.data(), data, kBytes, cudaMemcpyDeviceToHost));
  cudaGraphExec_t runnable = nullptr;
  CHECK(cudaGraphInstantiateWithFlags(&runnable, graph, 0));
  CHECK(cudaGraphLaunch(runnable, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(host.front() == 42 && host.back() == 42);
  CHECK(cudaGraphExecDestroy(runnable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(data));
}

void graph_updated() {
  int *data = numbers(kCount), *other = numbers(kCount), count_of = kCount;
  void* arguments[] = {&data, &count_of};
  cudaKernelNodeParams parameters = adding(arguments);
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaGraphExec_t runnable = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
  CHECK(cudaGraphInstantiateWithFlags(&runnable, graph, 0));
  arguments[0] = &other;
  CHECK(cudaGraphExecKernelNodeSetParams(runnable, node, &parameters));
  CHECK(cudaGraphLaunch(runnable, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(are_numbers(data, kCount, 0));
  EXPECT(are_numbers(other, kCount, 1));
  CHECK(cudaGraphExecDestroy(runnable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(data));
  CHECK(cudaFree(other));
}

void pools() {
  cudaMemPool_t pool = nullptr;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = 1 << 20;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  int* data = nullptr;
  CHECK(cudaMallocAsync(reinterpret_cast<void**>(&data), kBytes, nullptr));
  CHECK(cudaMemsetAsync(data, 0, kBytes, nullptr));
  launch(add_one, 8, 128, 0, nullptr, data, 1);
  CHECK(cudaDeviceSynchronize());
  EXPECT(are_numbers(data, 1, 1));
  CHECK(cudaFreeAsync(data, nullptr));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemPoolTrimTo(pool, 0));
}

void managed() {
  int* data = nullptr;
  CHECK(cudaMallocManaged(reinterpret_cast<void**>(&data), kBytes, cudaMemAttachGlobal));
  for (int i = 0; i < kCount; i++) data[i] = i;
#if CUDART_VERSION >= 13000
  const cudaMemLocation place{cudaMemLocationTypeDevice, {0}};
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation, place));
  CHECK(cudaMemPrefetchAsync(data, kBytes, place, 0, nullptr));
#else
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation, 0));
  CHECK(cudaMemPrefetchAsync(data, kBytes, 0, nullptr));
#endif
  launch(add_one, 8, 128, 0, nullptr, data, kCount);
  CHECK(cudaDeviceSynchronize());
  EXPECT(data[0] == 1 && data[kCount - 1] == kCount);
  CHECK(cudaFree(data));
}

void mapped() {
  int *host = nullptr, *device = nullptr;
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&host), kBytes, cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device), host, 0));
  host[0] = 5;
  launch(add_one, 1, 32, 0, nullptr, device, 1);
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 6);
  unsigned flags = 0;
  CHECK(cudaHostGetFlags(&flags, host));
  EXPECT(flags & cudaHostAllocMapped);
  CHECK(cudaFreeHost(host));
}

void registered() {
  constexpr size_t kPage = 4096;
  int* const host = static_cast<int*>(std::aligned_alloc(kPage, kPage));
  int* device = nullptr;
  CHECK(cudaHostRegister(host, kPage, cudaHostRegisterMapped));
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device), host, 0));
  host[0] = 8;
  launch(add_one, 1, 32, 0, nullptr, device, 1);
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 9);
  CHECK(cudaHostUnregister(host));
  std::free(host);
}

int ipc_child() {
  cudaIpcMemHandle_t handle;
  if (std::fread(&handle, sizeof(handle), 1, stdin) != 1) return 2;
  try {
    int* data = nullptr;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), handle, cudaIpcMemLazyEnablePeerAccess));
    launch(add_one, 8, 128, 0, nullptr, data, kCount);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcCloseMemHandle(data));
    return 0;
  } catch (const Failure& failure) {
    std::fprintf(stderr, "the other process: %s\n", failure.what.c_str());
    return 1;
  }
}

void between_processes() {
  int* const data = numbers(kCount);
  cudaIpcMemHandle_t handle;
  CHECK(cudaIpcGetMemHandle(&handle, data));
  char command[4200] = {};
  const ssize_t used = readlink("/proc/self/exe", command, 4096);
  EXPECT(used > 0);
  std::snprintf(command + used, sizeof(command) - used, " --ipc-child");
  FILE* const child = popen(command, "w");
  EXPECT(child && std::fwrite(&handle, sizeof(handle), 1, child) == 1);
  EXPECT(pclose(child) == 0);
  EXPECT(are_numbers(data, kCount, 1));
  CHECK(cudaFree(data));
}
