// Cooperative launches: all blocks of the grid meet.
// vm: yes
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void rounds(int* data, int* sums, int rounds_count) {
  cg::grid_group grid = cg::this_grid();
  const int n = static_cast<int>(grid.size()), i = static_cast<int>(grid.thread_rank());
  for (int round = 0; round < rounds_count; ++round) {
    data[i] = i + round;
    grid.sync();
    const int neighbour = data[(i + n / 2) % n];  // of another block
    grid.sync();
    sums[i] += neighbour;
  }
}

int main() {
  int supported = 0, per_sm = 0;
  CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
  EXPECT_EQ(supported, 1);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, rounds, 64, 0));
  EXPECT(per_sm > 0);
  constexpr int kBlocks = 8, kThreads = 64, kCount = kBlocks * kThreads;
  int *data, *sums, count = 10;
  CHECK(cudaMalloc(&data, kCount * 4));
  CHECK(cudaMalloc(&sums, kCount * 4));
  CHECK(cudaMemset(sums, 0, kCount * 4));
  void* arguments[] = {&data, &sums, &count};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rounds), dim3(kBlocks), dim3(kThreads), arguments, 0, 0));
  int got[kCount];
  CHECK(cudaMemcpy(got, sums, sizeof(got), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(got[i], 10 * ((i + kCount / 2) % kCount) + 45);
  EXPECT_CODE(
      cudaErrorCooperativeLaunchTooLarge,
      cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rounds), dim3(1 << 20), dim3(kThreads), arguments, 0, 0));
  return passed();
}
