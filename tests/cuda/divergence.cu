// Threads of a warp that go different ways: nested loops, early exits, locks between lanes.
// vm: yes
#include <vector>

#include "check.h"

__host__ __device__ int collatz(int n) {
  int steps = 0;
  while (n != 1) {
    if (n % 2) {
      n = 3 * n + 1;
    } else {
      n /= 2;
    }
    ++steps;
  }
  return steps;
}

__host__ __device__ int tangled(int i) {
  int sum = 0;
  for (int a = 0; a < i % 7 + 2; ++a) {
    for (int b = a; b < 10; ++b) {
      if ((a + b + i) % 5 == 0) continue;
      if (b > i % 11) break;
      switch ((i + b) % 4) {
        case 0:
          sum += a;
          break;
        case 1:
          sum += 2 * b;  // falls through
        case 2:
          sum -= i;
          break;
        default:
          sum ^= b;
      }
      if (sum > 50) return sum - i;
    }
    if (sum < -100) break;
  }
  return sum;
}

__global__ void walk(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[2 * i] = collatz(i + 1);
  if (i % 5 == 3) {
    out[2 * i + 1] = -1;
    return;
  }
  out[2 * i + 1] = tangled(i);
}

__global__ void locked(int* lock, int* counter) {
  // Every lane takes the same lock: the holder must be able to go on while its neighbours spin.
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *reinterpret_cast<volatile int*>(counter) += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

__global__ void spin_outside(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *reinterpret_cast<volatile int*>(counter) += 1;
  __threadfence();
  atomicExch(lock, 0);
}

__global__ void after_exit(int* out) {
  __shared__ int shared[128];
  if (threadIdx.x % 3 == 0) return;  // the barrier waits only for those that are left
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x % 3 == 1 ? threadIdx.x + 1 : threadIdx.x - 1];
}

int main() {
  constexpr int kCount = 5000;
  int* device;
  CHECK(cudaMalloc(&device, 2 * kCount * 4));
  walk<<<(kCount + 95) / 96, 96>>>(device, kCount);
  std::vector<int> got(2 * kCount);
  CHECK(cudaMemcpy(got.data(), device, 2 * kCount * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(got[2 * i], collatz(i + 1));
    EXPECT_EQ(got[2 * i + 1], i % 5 == 3 ? -1 : tangled(i));
  }
  CHECK(cudaMemset(device, 0, 8));
  locked<<<4, 64>>>(device, device + 1);
  CHECK(cudaMemcpy(got.data(), device, 8, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got[1], 256);
  CHECK(cudaMemset(device, 0, 8));
  spin_outside<<<4, 64>>>(device, device + 1);
  CHECK(cudaMemcpy(got.data(), device, 8, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got[1], 256);
  after_exit<<<1, 126>>>(device);
  CHECK(cudaMemcpy(got.data(), device, 126 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 126; ++i)
    if (i % 3) EXPECT_EQ(got[i], i % 3 == 1 ? i + 1 : i - 1);
  return passed();
}
