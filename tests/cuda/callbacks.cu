// nvcc: -lcuda
// Host functions and stream callbacks run in the program, in the stream's order.
// vm: yes
#include <cuda.h>

#include <atomic>
#include <thread>

#include "check.h"

__global__ void put(int* at, int value) { *at = value; }

struct Log {
  std::atomic<int> order{0};
  int function_at = -1, callback_at = -1;
  int* mapped = nullptr;
  int seen = 0;
  cudaError_t status = cudaErrorUnknown;
  cudaStream_t stream = nullptr;
  CUcontext context = nullptr;
  CUresult without_context = CUDA_SUCCESS, with_context = CUDA_SUCCESS;
};

int main() {
  Log log;
  CHECK(cudaHostAlloc(&log.mapped, 64, cudaHostAllocMapped));
  *log.mapped = 0;
  CHECK(cudaFree(nullptr));
  EXPECT_EQ(cuCtxGetCurrent(&log.context), CUDA_SUCCESS);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  put<<<1, 1, 0, stream>>>(log.mapped, 7);
  CHECK(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        Log* at = static_cast<Log*>(data);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        at->seen = *at->mapped;
        at->function_at = at->order++;
      },
      &log));
  put<<<1, 1, 0, stream>>>(log.mapped, 8);  // must not overtake the host function
  CHECK(cudaStreamAddCallback(
      stream,
      [](cudaStream_t of, cudaError_t status, void* data) {
        Log* at = static_cast<Log*>(data);
        at->callback_at = at->order++;
        at->status = status;
        at->stream = of;
        const auto address = reinterpret_cast<CUdeviceptr>(at->mapped);
        at->without_context = cuMemGetAddressRange(nullptr, nullptr, address);
        cuCtxSetCurrent(at->context);
        at->with_context = cuMemGetAddressRange(nullptr, nullptr, address);
        cuCtxSetCurrent(nullptr);
      },
      &log, 0));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(log.seen, 7);
  EXPECT_EQ(*log.mapped, 8);
  EXPECT_EQ(log.function_at, 0);
  EXPECT_EQ(log.callback_at, 1);
  EXPECT(log.status == cudaSuccess && log.stream == stream);
  EXPECT_EQ(log.without_context, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(log.with_context, CUDA_ERROR_NOT_PERMITTED);

  std::atomic<int> count{0};
  cudaStream_t streams[4];
  for (auto& one : streams) CHECK(cudaStreamCreate(&one));
  for (int i = 0; i < 100; ++i)
    CHECK(cudaLaunchHostFunc(streams[i % 4], [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &count));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(count.load(), 100);
  return passed();
}
