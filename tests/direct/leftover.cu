// Leaves a pattern in shared memory, static and dynamic, and says how many words of it a later kernel finds there.
#include <cstdio>

#include "../cuda/check.h"

constexpr unsigned kWords = 2048, kMark = 0x5ec4e700;

__global__ void leave(unsigned* out) {
  __shared__ unsigned fixed[kWords];
  extern __shared__ unsigned dynamic[];
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) fixed[i] = dynamic[i] = kMark + blockIdx.x % 16;
  __syncthreads();
  if (threadIdx.x % 3 == 0) return;  // some leave before the others
  atomicAdd(out, fixed[(threadIdx.x * 7) % kWords] & 1);
}

__global__ void look(unsigned* found, unsigned words) {
  extern __shared__ unsigned left[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
    if ((reinterpret_cast<volatile unsigned*>(left)[i] & ~15u) == kMark) atomicAdd(found, 1u);
}

int main() {
  unsigned *out = nullptr, found = 0;
  CHECK(cudaMalloc(&out, 8));
  CHECK(cudaMemset(out, 0, 8));
  for (int round = 0; round < 8; ++round) {
    leave<<<256, 192, kWords * 4>>>(out);
    CHECK(cudaGetLastError());
    look<<<256, 192, kWords * 8>>>(out + 1, kWords * 2);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaMemcpy(&found, out + 1, sizeof(found), cudaMemcpyDeviceToHost));
  std::printf("found %u\n", found);
  return 0;
}
