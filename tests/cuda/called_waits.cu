// Lanes of a warp wait for each other in functions that are called from different places.
#include "check.h"

constexpr int kThreads = 64, kHalf = 16, kTurns = 3;

__device__ __noinline__ int swapped(volatile int* own, int t, int plus) {
  own[t] = t + plus;
  __syncwarp();
  return own[t ^ kHalf];
}

// Of two warps.
__device__ __noinline__ int swapped_by_all(volatile int* own, int t, int plus) {
  own[t] = t + plus;
  __syncthreads();
  const int value = own[t ^ 32];
  __syncthreads();
  return value;
}

__device__ __noinline__ int passed_on(int t, int plus) {
  __shared__ int shared[kThreads];
  if (t >= kThreads) return -1;
  return swapped(shared, t, plus);
}

__device__ __noinline__ void wait_for(volatile int* turn, int mine) {
  while (*turn != mine) {
  }
}
__device__ __noinline__ void give(volatile int* turn, int next) {
  __threadfence();
  *turn = next;
}

__global__ void meet(int* out) {
  __shared__ volatile int own[kThreads];
  const int t = threadIdx.x;
  int sum = 0;
  if (t & kHalf) {
    sum += 100 * swapped(own, t, 1);
  } else {
    sum += swapped(own, t, 2);
  }
  __syncwarp();
  if (t & kHalf) {
    sum += passed_on(t, 3);
  } else {
    sum += 100 * passed_on(t, 4);
  }
  for (int i = 0; i < kTurns; ++i) {
    if ((t + i) % 3) {
      sum += swapped_by_all(own, t, i);
    } else {
      sum += 100 * swapped_by_all(own, t, i);
    }
  }
  out[t] = sum;
}

// Lanes of one warp take turns.
__global__ void turns(int* turn, int* out) {
  const int t = threadIdx.x;
  for (int i = 0; i < kTurns; ++i) {
    if (t % 2) {
      wait_for(turn, 2 * i + 1);
      out[0] += 1;
      give(turn, 2 * i + 2);
    } else {
      wait_for(turn, 2 * i);
      out[0] *= 2;
      give(turn, 2 * i + 1);
    }
  }
}

static int expected(int t) {
  const bool high = t & kHalf;
  const int other = t ^ kHalf;
  int sum = (high ? 100 : 1) * (other + (high ? 2 : 1)) + (high ? 1 : 100) * (other + (high ? 4 : 3));
  for (int i = 0; i < kTurns; ++i) sum += ((t + i) % 3 ? 1 : 100) * ((t ^ 32) + i);
  return sum;
}

int main() {
  int* out;
  CHECK(cudaMallocManaged(&out, kThreads * sizeof(int)));
  meet<<<1, kThreads>>>(out);
  CHECK(cudaDeviceSynchronize());
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(out[t], expected(t));
  out[0] = out[1] = 0;
  turns<<<1, 2>>>(&out[1], &out[0]);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out[0], (1 * 2 + 1) * 2 + 1);
  CHECK(cudaFree(out));
  return passed();
}
