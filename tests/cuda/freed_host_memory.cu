// Pinned memory that is freed and allocated again in a loop, also while the device still has work on it.
#include <thread>
#include <vector>

#include "check.h"

// Spins for a while first, so that the memory is freed before it is written.
__global__ void write_late(int* data, int n, int value) {
  const long long start = clock64();
  while (clock64() - start < 20'000'000) {
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = value;
}

// What is allocated next belongs to the program alone.
static void freed_while_used() {
  constexpr int kCount = 3000;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int* first = nullptr;
  CHECK(cudaMallocHost(&first, kCount * sizeof(int)));
  write_late<<<1, 32, 0, stream>>>(first, kCount, 5);
  CHECK(cudaFreeHost(first));
  int* second = nullptr;
  CHECK(cudaMallocHost(&second, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) second[i] = 9;
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(second[i], 9);
  CHECK(cudaFreeHost(second));
  CHECK(cudaStreamDestroy(stream));
}

// Sizes come and go, and each block holds what its own thread wrote.
static void loops() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      int* device = nullptr;
      CHECK(cudaMalloc(&device, 1 << 20));
      for (int i = 0; i < 100; ++i) {
        const size_t count = size_t{1} << (4 + (i * 7 + t) % 14);
        int *out = nullptr, *back = nullptr;
        CHECK(cudaMallocHost(&out, count * sizeof(int)));
        CHECK(cudaMallocHost(&back, count * sizeof(int)));
        for (size_t k = 0; k < count; ++k) out[k] = t * 1000 + i;
        CHECK(cudaMemcpyAsync(device, out, count * sizeof(int), cudaMemcpyHostToDevice, cudaStreamPerThread));
        CHECK(cudaMemcpyAsync(back, device, count * sizeof(int), cudaMemcpyDeviceToHost, cudaStreamPerThread));
        CHECK(cudaFreeHost(out));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        for (size_t k = 0; k < count; ++k) EXPECT_EQ(back[k], t * 1000 + i);
        CHECK(cudaFreeHost(back));
      }
      CHECK(cudaFree(device));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int main() {
  freed_while_used();
  loops();
  CHECK(cudaDeviceReset());
  int* again = nullptr;
  CHECK(cudaMallocHost(&again, 4096));
  *again = 1;
  CHECK(cudaFreeHost(again));
  return passed();
}
