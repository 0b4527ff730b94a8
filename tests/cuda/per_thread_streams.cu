// nvcc: --default-stream per-thread
// Each host thread has a default stream of its own.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void accumulate(int* at, int times) {
  for (int i = 0; i < times; ++i) *at += i;
}

int main() {
  constexpr int kThreads = 6, kRounds = 50;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&good] {
      int *device, host = -1;
      CHECK(cudaMalloc(&device, 4));
      CHECK(cudaMemsetAsync(device, 0, 4, 0));
      for (int i = 0; i < kRounds; ++i) accumulate<<<1, 1>>>(device, 100);
      CHECK(cudaMemcpyAsync(&host, device, 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
      CHECK(cudaStreamSynchronize(0));
      good += host == kRounds * 4950;
      CHECK(cudaFree(device));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good.load(), kThreads);
  return passed();
}
