// Blocks that hand data to one another: fences, volatile flags, acquire and release.
#include <cuda/atomic>

#include "check.h"

__global__ void chain(volatile int* data, volatile int* flags, int blocks) {
  // Block i waits for block i - 1: blocks must make progress while others spin.
  if (threadIdx.x == 0) {
    if (blockIdx.x > 0)
      while (flags[blockIdx.x - 1] == 0) {
      }
    __threadfence();
    data[blockIdx.x] = blockIdx.x ? data[blockIdx.x - 1] + static_cast<int>(blockIdx.x) : 0;
    __threadfence();
    flags[blockIdx.x] = 1;
  }
}

__global__ void message(int* payload, cuda::atomic<int, cuda::thread_scope_device>* flag, int* out, int rounds) {
  for (int i = 1; i <= rounds; ++i) {
    if (blockIdx.x == 0) {
      if (threadIdx.x == 0) {
        while (flag->load(cuda::memory_order_acquire) != 2 * (i - 1)) {
        }
        *payload = i * i;
        flag->store(2 * i - 1, cuda::memory_order_release);
      }
    } else if (threadIdx.x == 0) {
      while (flag->load(cuda::memory_order_acquire) != 2 * i - 1) {
      }
      out[i - 1] = *payload;
      flag->store(2 * i, cuda::memory_order_release);
    }
  }
}

int main() {
  constexpr int kBlocks = 40, kRounds = 100;
  int *data, got[kBlocks], values[kRounds];
  CHECK(cudaMalloc(&data, 4096));
  CHECK(cudaMemset(data, 0, 4096));
  chain<<<kBlocks, 32>>>(data, data + 100, kBlocks);
  CHECK(cudaMemcpy(got, data, sizeof(got), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(got[i], i * (i + 1) / 2);
  CHECK(cudaMemset(data, 0, 4096));
  message<<<2, 32>>>(data, reinterpret_cast<cuda::atomic<int, cuda::thread_scope_device>*>(data + 1), data + 100,
                     kRounds);
  CHECK(cudaMemcpy(values, data + 100, sizeof(values), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kRounds; ++i) EXPECT_EQ(values[i], (i + 1) * (i + 1));
  return passed();
}
