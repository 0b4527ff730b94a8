// Blocks that wait for blocks of higher index, in loops that look as if they ended by themselves: all blocks have to be
// there at once, also where launches are cut into grid slices.
#include "check.h"

constexpr int kBlocks = 24, kHalf = kBlocks / 2;
constexpr long long kForEver = 1LL << 40;

__global__ void first_waits_for_last(volatile int* flag, int* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == gridDim.x - 1) *flag = 7;
  int seen = 1;
  if (blockIdx.x == 0) {
    seen = 0;
    for (long long i = 0; i < kForEver && seen == 0; ++i) seen = *flag;
  }
  out[blockIdx.x] = seen;
}

__global__ void each_waits_for_the_next(volatile int* flags, int* out) {
  if (threadIdx.x != 0) return;
  int seen = blockIdx.x == gridDim.x - 1 ? 1 : 0;
  for (long long i = 0; i < kForEver && seen == 0; ++i) seen = flags[blockIdx.x + 1];
  out[blockIdx.x] = seen;
  flags[blockIdx.x] = seen;
}

__global__ void half_takes_from_the_other(int* flags, int* out) {
  if (threadIdx.x != 0) return;
  int seen = 5;
  if (blockIdx.x >= kHalf) {
    atomicExch(&flags[blockIdx.x - kHalf], 5);
  } else {
    seen = 0;
    for (long long i = 0; i < kForEver && seen == 0; ++i) seen = atomicExch(&flags[blockIdx.x], 0);
  }
  out[blockIdx.x] = seen;
}

int main() {
  int *flags, *out, got[kBlocks];
  CHECK(cudaMalloc(&flags, 4096));
  CHECK(cudaMalloc(&out, sizeof got));
  for (int round = 0; round < 2; ++round) {  // the second time it is known
    CHECK(cudaMemset(flags, 0, 4096));
    first_waits_for_last<<<kBlocks, 32>>>(flags, out);
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(got[i], i == 0 ? 7 : 1);
    CHECK(cudaMemset(flags, 0, 4096));
    each_waits_for_the_next<<<kBlocks, 32>>>(flags, out);
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(got[i], 1);
    CHECK(cudaMemset(flags, 0, 4096));
    half_takes_from_the_other<<<kBlocks, 32>>>(flags, out);
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(got[i], 5);
  }
  return passed();
}
