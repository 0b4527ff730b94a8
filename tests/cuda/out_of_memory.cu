// The share is the limit: more is refused with the right code, and nothing is lost.
// vm: yes
// alone: yes
#include <vector>

#include "check.h"

int main() {
  size_t free_bytes, total, after;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  EXPECT(free_bytes > 0 && free_bytes <= total);
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  EXPECT_EQ(total, prop.totalGlobalMem);
  void* memory;
  EXPECT_CODE(cudaErrorMemoryAllocation, cudaMalloc(&memory, total + (1 << 20)));
  EXPECT_CODE(cudaErrorMemoryAllocation, cudaMalloc(&memory, ~size_t{0} / 2));
  cudaGetLastError();
  std::vector<void*> blocks;
  const size_t block = free_bytes / 10;
  while (blocks.size() < 12) {
    const cudaError_t error = cudaMalloc(&memory, block);
    if (error != cudaSuccess) {
      EXPECT_CODE(cudaErrorMemoryAllocation, error);
      break;
    }
    blocks.push_back(memory);
  }
  EXPECT(blocks.size() >= 8 && blocks.size() <= 10);
  CHECK(cudaMemGetInfo(&after, &total));
  EXPECT(after < free_bytes - 8 * block + (8 << 20));
  CHECK(cudaMemset(blocks[0], 1, block));  // what was granted works
  for (void* each : blocks) CHECK(cudaFree(each));
  CHECK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, free_bytes);
  cudaGetLastError();
  return passed();
}
