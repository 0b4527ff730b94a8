// Many host threads, each with streams and memory of its own, at once.
// vm: yes
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void step(int* data, int n, int round) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * 3 + round;
}

static bool work(int seed) {
  constexpr int kCount = 3000, kRounds = 40;
  std::vector<int> host(kCount), expected(kCount);
  for (int i = 0; i < kCount; ++i) host[i] = expected[i] = seed * i;
  cudaStream_t stream;
  int* device;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMalloc(&device, kCount * 4));
  CHECK(cudaMemcpyAsync(device, host.data(), kCount * 4, cudaMemcpyHostToDevice, stream));
  for (int round = 0; round < kRounds; ++round) {
    step<<<(kCount + 63) / 64, 64, 0, stream>>>(device, kCount, round);
    for (int& value : expected) value = static_cast<int>(static_cast<unsigned>(value) * 3u + round);
    if (round % 10 == 9) CHECK(cudaStreamSynchronize(stream));
  }
  CHECK(cudaMemcpyAsync(host.data(), device, kCount * 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(device));
  CHECK(cudaStreamDestroy(stream));
  return host == expected;
}

int main() {
  constexpr int kThreads = 8;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&good, t] { good += work(t + 1) && work(t + 100); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good.load(), kThreads);
  // Work that one thread issued comes before what another issues after a signal.
  int* data;
  CHECK(cudaMalloc(&data, 4));
  CHECK(cudaMemset(data, 0, 4));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < 50; ++i) std::thread([=] { step<<<1, 1, 0, stream>>>(data, 1, i); }).join();
  int got = 0, wanted = 0;
  CHECK(cudaMemcpyAsync(&got, data, 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 50; ++i) wanted = static_cast<int>(static_cast<unsigned>(wanted) * 3u + i);
  EXPECT_EQ(got, wanted);
  return passed();
}
