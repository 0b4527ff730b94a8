// nvcc: -gencode arch=compute_80,code=[compute_80,sm_80]
// cp.async: copies from global into shared memory that the program waits for.
#include <cuda_pipeline.h>

#include "check.h"

__global__ void stage(const float4* in, float* out, int tiles) {
  __shared__ float4 buffer[2][64];
  __pipeline_memcpy_async(&buffer[0][threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles)
      __pipeline_memcpy_async(&buffer[(tile + 1) % 2][threadIdx.x], &in[(tile + 1) * 64 + threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    const float4 v = buffer[tile % 2][63 - threadIdx.x];
    sum += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

__global__ void zero_filled(const int* in, int* out) {
  __shared__ alignas(16) int shared[32 * 4];
  const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(&shared[threadIdx.x * 4]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(in + threadIdx.x * 4), "r"(8)
               : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = shared[threadIdx.x * 4 + k];
}

int main() {
  constexpr int kTiles = 5;
  static float host[kTiles * 64 * 4];
  for (int i = 0; i < kTiles * 256; ++i) host[i] = i % 50;
  float4* in;
  float *out, got[64];
  CHECK(cudaMalloc(&in, sizeof(host)));
  CHECK(cudaMalloc(&out, sizeof(got)));
  CHECK(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
  stage<<<1, 64>>>(in, out, kTiles);
  CHECK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) {
    float wanted = 0;
    for (int tile = 0; tile < kTiles; ++tile)
      for (int k = 0; k < 4; ++k) wanted += (k + 1) * host[(tile * 64 + 63 - i) * 4 + k];
    EXPECT_EQ(got[i], wanted);
  }
  int *ints, *back, host_ints[128];
  for (int i = 0; i < 128; ++i) host_ints[i] = i + 1;
  CHECK(cudaMalloc(&ints, sizeof(host_ints)));
  CHECK(cudaMalloc(&back, sizeof(host_ints)));
  CHECK(cudaMemcpy(ints, host_ints, sizeof(host_ints), cudaMemcpyHostToDevice));
  zero_filled<<<1, 32>>>(ints, back);
  CHECK(cudaMemcpy(host_ints, back, sizeof(host_ints), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 128; ++i) EXPECT_EQ(host_ints[i], i % 4 < 2 ? i + 1 : 0);
  return passed();
}
