// A program that does short steps, one after the other, and says how many when it is asked: for each line on stdin a
// line of JSON with the steps since the last one, and their seconds. Ends with stdin. Argument: rounds of a step's
// kernel.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "measure.h"

__global__ void step(float* data, int rounds) {
  float value = data[threadIdx.x + blockIdx.x * blockDim.x];
  for (int i = 0; i < rounds; ++i) value = value * 0.999f + 0.5f;
  data[threadIdx.x + blockIdx.x * blockDim.x] = value;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  constexpr int kBlocks = 264, kThreads = 256;
  float* data = nullptr;
  CHECK(cudaMalloc(&data, kBlocks * kThreads * sizeof(float)));
  CHECK(cudaMemset(data, 0, kBlocks * kThreads * sizeof(float)));
  std::atomic<long> steps{0};
  std::atomic<bool> ends{false};
  std::thread asked([&] {
    long before = 0;
    auto since = std::chrono::steady_clock::now();
    while (std::getchar() != EOF) {
      const long now = steps;
      const auto time = std::chrono::steady_clock::now();
      std::printf("{\"steps\": %ld, \"seconds\": %.6f}\n", now - before,
                  std::chrono::duration<double>(time - since).count());
      std::fflush(stdout);
      before = now;
      since = time;
    }
    ends = true;
  });
  for (; !ends; ++steps) {
    step<<<kBlocks, kThreads>>>(data, rounds);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }
  asked.join();
  return 0;
}
