// Tiles of more threads than a warp has: they meet in reserved shared memory, which the program's own does not touch.
// nvcc: -arch=sm_80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 512;

// Neighbours of a tile exchange numbers, in each second tile.
template <int kSize>
__global__ void exchange(int* out) {
  __shared__ int own[kThreads];
  const auto tile = cg::tiled_partition<kSize>(cg::this_thread_block());
  const int t = threadIdx.x, next = t / kSize * kSize + (t + 1) % kSize;
  int value = t;
  if (tile.meta_group_rank() % 2 == 0) {
    for (int round = 0; round < 5; ++round) {
      own[t] = value;
      tile.sync();
      value = own[next];
      tile.sync();
    }
  }
  out[t] = value;
}

// Without shared memory of its own.
template <int kSize>
__global__ void collectives(int* out) {
  const auto tile = cg::tiled_partition<kSize>(cg::this_thread_block());
  const int t = threadIdx.x;
  const int sum = cg::reduce(tile, t, cg::plus<int>());
  const int most = cg::reduce(tile, t, cg::greater<int>());
  const int before = cg::exclusive_scan(tile, 1);
  const bool any = tile.any(t == kSize + 3);
  out[t] = sum + (most == t / kSize * kSize + kSize - 1 ? 0 : 1 << 28) + (before == t % kSize ? 0 : 1 << 29) +
           (any == (t / kSize == 1) ? 0 : 1 << 30);
}

__global__ void reserved(unsigned* out) {
  extern __shared__ unsigned own[];
  unsigned begin, end, size, second;
  asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(begin));
  asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(end));
  asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(size));
  asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(second));
  for (int i = 0; i < 64; ++i) own[i] = i;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(begin), "r"(~0u) : "memory");
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(second), "r"(~0u) : "memory");
  unsigned sum = 0;
  for (int i = 0; i < 64; ++i) sum += own[i];
  out[0] = sum;
  out[1] = begin < end && size >= 1024 && second >= begin && second < begin + size;
}

template <int kSize>
static void tiles_of(int* out) {
  exchange<kSize><<<1, kThreads>>>(out);
  CHECK(cudaDeviceSynchronize());
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(out[t], t / kSize % 2 ? t : t / kSize * kSize + (t + 5) % kSize);
  collectives<kSize><<<3, kThreads>>>(out);
  CHECK(cudaDeviceSynchronize());
  for (int t = 0; t < kThreads; ++t) {
    const int first = t / kSize * kSize;
    EXPECT_EQ(out[t], kSize * first + kSize * (kSize - 1) / 2);
  }
}

int main() {
  int* out;
  CHECK(cudaMallocManaged(&out, kThreads * sizeof(int)));
  tiles_of<64>(out);
  tiles_of<256>(out);
  reserved<<<1, 1, 64 * sizeof(unsigned)>>>(reinterpret_cast<unsigned*>(out));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out[0], 63 * 64 / 2);
  EXPECT_EQ(out[1], 1);
  CHECK(cudaFree(out));
  return passed();
}
