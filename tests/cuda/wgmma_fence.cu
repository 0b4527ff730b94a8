// nvcc: -arch=compute_90a -code=compute_90a
// The four warps of a warpgroup meet at wgmma.fence: each multiplies what the others have stored before, without
// another barrier.
#include <cuda_fp16.h>

#include <cstdint>

#include "check.h"

constexpr int kThreads = 128, kSums = 4, kDepth = 16;

// Each warp stores a quarter of both matrices of ones; warp `late` does it when the others have long done so.
__global__ void product(float* out, int late) {
  __shared__ alignas(1024) half a[64 * kDepth], b[8 * kDepth];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 64 * kDepth; i += kThreads) a[i] = 0;
  for (int i = threadIdx.x; i < 8 * kDepth; i += kThreads) b[i] = 0;
  __syncthreads();
  const long long begun = clock64();
  while (warp == late && clock64() - begun < 2000000) {
  }
  for (int i = lane; i < 256; i += 32) a[warp * 256 + i] = __float2half(1);
  b[warp * 32 + lane] = __float2half(1);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const auto describe = [](const void* at) {
    const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(at));
    return (address & 0x3ffff) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
  };
  float d[kSums] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(describe(a)), "l"(describe(b)));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < kSums; ++i) out[threadIdx.x * kSums + i] = d[i];
}

int main() {
  float *out, found[kThreads * kSums];
  CHECK(cudaMalloc(&out, sizeof(found)));
  for (int late = 0; late < 4; ++late) {
    product<<<1, kThreads>>>(out, late);
    CHECK(cudaMemcpy(found, out, sizeof(found), cudaMemcpyDeviceToHost));
    for (const float sum : found) EXPECT_EQ(sum, kDepth);
  }
  return passed();
}
