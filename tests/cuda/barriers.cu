// Barriers of a block: plain, reducing, named, with parts of the block.
#include "check.h"

__global__ void rotate(int* out, int rounds) {
  __shared__ int shared[256];
  shared[threadIdx.x] = threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int next = shared[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    shared[threadIdx.x] = next;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
}

__global__ void reduce(int* out) {
  const int i = threadIdx.x;
  out[i * 3] = __syncthreads_count(i % 3 == 0);
  out[i * 3 + 1] = __syncthreads_and(i < 200);
  out[i * 3 + 2] = __syncthreads_or(i == 77);
}

// Half of the warps produce, half consume: named barriers with arrive and sync.
__global__ void hand_over(int* out) {
  __shared__ int buffer[64];
  const int lane = threadIdx.x % 64;
  for (int round = 0; round < 10; ++round) {
    if (threadIdx.x < 64) {
      if (round > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
      buffer[lane] = round * 100 + lane;
      __threadfence_block();
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[round * 64 + lane] = buffer[63 - lane];
      if (round < 9) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}

__global__ void pairs(int* out) {
  __shared__ int shared[256];
  const int group = threadIdx.x / 64;  // each group of two warps meets at its own barrier, a different number of times
  shared[threadIdx.x] = 0;
  for (int i = 0; i <= group; ++i) {
    asm volatile("barrier.sync %0, 64;" ::"r"(group + 4) : "memory");
    if (threadIdx.x % 64 == 0) shared[threadIdx.x] += 1;
    asm volatile("barrier.sync %0, 64;" ::"r"(group + 4) : "memory");
    out[threadIdx.x] = shared[group * 64];
  }
}

__device__ __noinline__ void meet() { asm volatile("barrier.sync 0;" ::: "memory"); }

// Threads that end do not count, also where the others wait in a function that they call.
__global__ void some_end(int* out, int n, int rounds) {
  __shared__ int shared[96];
  const int i = threadIdx.x;
  if (i >= n) return;
  shared[i] = i;
  for (int round = 0; round < rounds; ++round) {
    meet();
    const int next = shared[(i + 1) % n];
    meet();
    shared[i] = next;
  }
  out[i] = shared[i];
}

int main() {
  int* device;
  CHECK(cudaMalloc(&device, 4096 * 4));
  static int got[4096];
  rotate<<<4, 256>>>(device, 100);
  CHECK(cudaMemcpy(got, device, 1024 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(got[i], (i + 100) % 256);
  rotate<<<2, 100>>>(device, 7);
  CHECK(cudaMemcpy(got, device, 200 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(got[i], (i % 100 + 7) % 100);
  reduce<<<1, 256>>>(device);
  CHECK(cudaMemcpy(got, device, 768 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) EXPECT(got[i * 3] == 86 && got[i * 3 + 1] == 0 && got[i * 3 + 2] != 0);
  hand_over<<<1, 128>>>(device);
  CHECK(cudaMemcpy(got, device, 640 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 640; ++i) EXPECT_EQ(got[i], i / 64 * 100 + 63 - i % 64);
  pairs<<<1, 256>>>(device);
  CHECK(cudaMemcpy(got, device, 1024, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) EXPECT_EQ(got[i], i / 64 + 1);
  some_end<<<1, 96>>>(device, 57, 10);
  CHECK(cudaMemcpy(got, device, 57 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 57; ++i) EXPECT_EQ(got[i], (i + 10) % 57);
  return passed();
}
