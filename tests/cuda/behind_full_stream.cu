// A stream is given more launches than a program may run ahead of the device, behind a kernel that waits. Other
// streams, and calls that have nothing to do with it, go on meanwhile; the kernel waits until they have. (With NVIDIA's
// driver the launch that finds no room keeps other threads out until the kernel ends.)
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

constexpr int kLaunches = 4000;
constexpr size_t kBytes = 1 << 20;

__global__ void wait_for(volatile int* word, int value) {
  while (*word != value) {
  }
}
__global__ void tell(volatile int* word, int value) { *word = value; }
__global__ void count(unsigned* counter) { ++*counter; }
__global__ void fill(int* words, int value) { words[blockIdx.x * blockDim.x + threadIdx.x] = value; }

cudaStream_t new_stream() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Memory, copies, kernels, events and a graph of another stream: as long as the first one waits.
void work_elsewhere() {
  const cudaStream_t stream = new_stream();
  int *words, *host, *pooled;
  CHECK(cudaMalloc(&words, kBytes));
  CHECK(cudaMallocHost(&host, kBytes));
  std::vector<int> pageable(1024, 5);
  CHECK(cudaMemcpyAsync(words, pageable.data(), 4096, cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpyAsync(host, words, 4096, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(host[1023], 5);
  for (int i = 0; i < 200; ++i) fill<<<4, 256, 0, stream>>>(words, i);
  CHECK(cudaMemsetAsync(words, 0, 4, stream));
  CHECK(cudaMemcpyAsync(host, words, 4096, cudaMemcpyDeviceToHost, stream));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  EXPECT_EQ(host[0], 0);
  EXPECT_EQ(host[1023], 199);
  CHECK(cudaMallocAsync(&pooled, kBytes, stream));
  CHECK(cudaFreeAsync(pooled, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  int* word;
  unsigned* counter;
  CHECK(cudaMalloc(&word, 4));
  CHECK(cudaMalloc(&counter, 4));
  CHECK(cudaMemset(word, 0, 4));
  CHECK(cudaMemset(counter, 0, 4));
  const cudaStream_t full = new_stream(), other = new_stream();
  tell<<<1, 1, 0, other>>>(word, 1);  // all kernels are loaded before one of them waits
  wait_for<<<1, 1, 0, other>>>(word, 1);
  count<<<1, 1, 0, other>>>(counter);
  work_elsewhere();
  CHECK(cudaDeviceSynchronize());

  wait_for<<<1, 1, 0, full>>>(word, 2);
  std::atomic<int> launched{0};
  std::thread launches([&] {
    for (int i = 0; i < kLaunches; ++i, ++launched) count<<<1, 1, 0, full>>>(counter);
    CHECK(cudaStreamSynchronize(full));
  });
  for (int last = -1; last != launched;) {  // until it can launch no more
    last = launched;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(cudaStreamQuery(full), cudaErrorNotReady);
  for (int i = 0; i < 3; ++i) work_elsewhere();
  tell<<<1, 1, 0, other>>>(word, 2);
  launches.join();
  unsigned counted;
  CHECK(cudaMemcpy(&counted, counter, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(counted, kLaunches + 1u);
  return passed();
}
