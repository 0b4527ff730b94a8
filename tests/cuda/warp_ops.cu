// nvcc: -gencode arch=compute_90,code=[compute_90,sm_90]
// Shuffles, votes, matches, reductions across the lanes of a warp, with whole and partial masks.
// vm: yes
#include <cstdint>

#include "check.h"

__global__ void whole(int* out) {
  const int lane = threadIdx.x & 31;
  const unsigned all = 0xffffffffu;
  int* at = out + lane * 32;
  at[0] = __shfl_sync(all, lane * 10, 5);
  at[1] = __shfl_up_sync(all, lane, 3);
  at[2] = __shfl_down_sync(all, lane, 7);
  at[3] = __shfl_xor_sync(all, lane, 9);
  at[4] = __shfl_sync(all, lane, 2, 8);
  at[5] = __shfl_up_sync(all, lane, 1, 16);
  at[6] = static_cast<int>(__ballot_sync(all, lane % 3 == 0));
  at[7] = __all_sync(all, lane < 32);
  at[8] = __any_sync(all, lane == 40);
  at[9] = static_cast<int>(__match_any_sync(all, lane / 4));
  int same;
  at[10] = static_cast<int>(__match_all_sync(all, 7, &same));
  at[11] = same;
  at[12] = static_cast<int>(__reduce_add_sync(all, static_cast<unsigned>(lane)));
  at[13] = __reduce_min_sync(all, lane - 16);
  at[14] = static_cast<int>(__reduce_xor_sync(all, 1u << lane));
  at[15] = static_cast<int>(__activemask());
  const double wide = __shfl_xor_sync(all, lane * 1.5, 1);
  at[16] = static_cast<int>(wide * 2);
  at[17] = __uni_sync(all, lane > 100);
  int predicate;
  asm volatile(
      "{.reg .pred p; shfl.sync.up.b32 %0, %2, 4, 0, 0xffffffff; shfl.sync.up.b32 %0|p, %2, 4, 0, 0xffffffff; selp.s32 "
      "%1, 1, 0, p;}"
      : "=r"(at[18]), "=r"(predicate)
      : "r"(lane));
  at[19] = predicate;
}

__global__ void partial(int* out) {
  const int lane = threadIdx.x & 31;
  int* at = out + lane * 8;
  if (lane % 2) {
    const unsigned odd = 0xaaaaaaaau;
    at[0] = __shfl_sync(odd, lane, 9);
    at[1] = static_cast<int>(__ballot_sync(odd, lane > 10));
    at[2] = static_cast<int>(__activemask());
    int sum = lane;
    for (int by = 16; by > 1; by /= 2) sum += __shfl_xor_sync(odd, sum, by);
    at[3] = sum;
  } else if (lane < 8) {
    at[0] = static_cast<int>(__reduce_add_sync(0x55u, static_cast<unsigned>(lane)));
    __syncwarp(0x55u);
    at[1] = __any_sync(0x55u, lane == 6);
  }
  __syncwarp();
  at[4] = __shfl_sync(0xffffffffu, at[0], 1);  // everybody meets again
  unsigned leader;
  asm volatile("{.reg .pred p; elect.sync %0|p, 0xffffffff;}" : "=r"(leader));
  at[5] = static_cast<int>(leader);
}

// The second half of the block's last warp does not exist.
__global__ void short_warp(unsigned* out) { out[threadIdx.x] = __ballot_sync(__activemask(), 1); }

int main() {
  int* device;
  CHECK(cudaMalloc(&device, 32 * 32 * 4));
  CHECK(cudaMemset(device, 0, 32 * 32 * 4));
  whole<<<1, 32>>>(device);
  int at[32][32];
  CHECK(cudaMemcpy(at, device, sizeof(at), cudaMemcpyDeviceToHost));
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(at[lane][0], 50);
    EXPECT_EQ(at[lane][1], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(at[lane][2], lane + 7 > 31 ? lane : lane + 7);
    EXPECT_EQ(at[lane][3], lane ^ 9);
    EXPECT_EQ(at[lane][4], lane / 8 * 8 + 2);
    EXPECT_EQ(at[lane][5], lane % 16 ? lane - 1 : lane);
    EXPECT_EQ(static_cast<uint32_t>(at[lane][6]), 0x49249249u);
    EXPECT(at[lane][7] == 1 && at[lane][8] == 0);
    EXPECT_EQ(static_cast<uint32_t>(at[lane][9]), 0xfu << lane / 4 * 4);
    EXPECT(at[lane][10] == -1 && at[lane][11] != 0);
    EXPECT(at[lane][12] == 496 && at[lane][13] == -16 && at[lane][14] == -1 && at[lane][15] == -1);
    EXPECT_EQ(at[lane][16], (lane ^ 1) * 3);
    EXPECT_EQ(at[lane][17], 1);
    EXPECT(at[lane][18] == (lane < 4 ? lane : lane - 4) && at[lane][19] == (lane >= 4));
  }
  CHECK(cudaMemset(device, 0, 32 * 32 * 4));
  partial<<<1, 32>>>(device);
  int part[32][8];
  CHECK(cudaMemcpy(part, device, sizeof(part), cudaMemcpyDeviceToHost));
  for (int lane = 0; lane < 32; ++lane) {
    if (lane % 2) {
      EXPECT_EQ(part[lane][0], 9);
      EXPECT_EQ(static_cast<uint32_t>(part[lane][1]), 0xaaaaaaaau & ~0x7ffu);
      EXPECT_EQ(static_cast<uint32_t>(part[lane][2]), 0xaaaaaaaau);
      EXPECT_EQ(part[lane][3], 256);
    } else if (lane < 8) {
      EXPECT(part[lane][0] == 12 && part[lane][1] == 1);
    }
    EXPECT_EQ(part[lane][4], 9);
    EXPECT_EQ(part[lane][5], part[0][5]);
  }
  unsigned* ballots = reinterpret_cast<unsigned*>(device);
  short_warp<<<1, 48>>>(ballots);
  unsigned got[48];
  CHECK(cudaMemcpy(got, ballots, sizeof(got), cudaMemcpyDeviceToHost));
  EXPECT_EQ(got[0], 0xffffffffu);
  EXPECT_EQ(got[47], 0xffffu);
  return passed();
}
