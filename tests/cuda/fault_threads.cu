// A fault reaches every thread of the process, whatever it does at that moment, and nobody waits for ever.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void good(int* data) { data[threadIdx.x] += 1; }
__global__ void bad() { *reinterpret_cast<volatile int*>(0x7000deadbee0ull) = 1; }

static std::atomic<int> at_work{0};

// Works until a call fails; the code that it failed with, which stays.
static cudaError_t work(int way) {
  cudaStream_t stream;
  cudaEvent_t event;
  int *data, *pinned;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaMalloc(&data, 4096));
  CHECK(cudaMallocHost(&pinned, 4096));
  cudaError_t error = cudaSuccess;
  for (int round = 0; error == cudaSuccess; ++round) {
    if (round == 2) ++at_work;
    good<<<1, 64, 0, stream>>>(data);
    error = cudaGetLastError();
    if (error == cudaSuccess && way == 0) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess && way == 1) error = cudaMemcpy(pinned, data, 4096, cudaMemcpyDeviceToHost);
    if (error == cudaSuccess && way == 2) error = cudaEventRecord(event, stream);
    if (error == cudaSuccess && way == 2) error = cudaEventSynchronize(event);
    if (error == cudaSuccess && way == 3) error = cudaDeviceSynchronize();
    if (error == cudaSuccess && way == 4) {
      do error = cudaStreamQuery(stream);
      while (error == cudaErrorNotReady);
    }
    if (error == cudaSuccess && way == 5) {
      void* more;
      error = cudaMalloc(&more, 4096);
      if (error == cudaSuccess) error = cudaFree(more);
    }
  }
  return cudaDeviceSynchronize() == error ? error : cudaErrorUnknown;
}

int main() {
  constexpr int kWays = 6;
  CHECK(cudaFree(nullptr));
  std::vector<cudaError_t> ended(kWays, cudaSuccess);
  std::vector<std::thread> threads;
  for (int way = 0; way < kWays; ++way) threads.emplace_back([&ended, way] { ended[way] = work(way); });
  while (at_work < kWays) std::this_thread::yield();
  bad<<<1, 1>>>();
  for (auto& thread : threads) thread.join();
  for (const cudaError_t error : ended) EXPECT_CODE(cudaErrorIllegalAddress, error);
  EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  std::thread([] {  // one that comes late
    void* memory;
    EXPECT_CODE(cudaErrorIllegalAddress, cudaMalloc(&memory, 16));
  })
      .join();
  return passed();
}
