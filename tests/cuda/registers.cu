// Special registers and clocks.
#include "check.h"

__global__ void read_registers(unsigned* out, unsigned long long* times) {
  const int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* o = out + i * 10;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(o[0]));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(o[1]));
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(o[2]));
  asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(o[3]));
  asm volatile("mov.u32 %0, %%smid;" : "=r"(o[4]));
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(o[5]));
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(o[6]));
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(o[7]));
  asm volatile("mov.u32 %0, %%ntid.y;" : "=r"(o[8]));
  asm volatile("mov.u32 %0, %%lanemask_eq;" : "=r"(o[9]));
  const long long begin = clock64();
  unsigned long long first, second;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(first));
  for (volatile int k = 0; k < 2000; ++k) {
  }
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(second));
  times[i * 2] = clock64() - begin;
  times[i * 2 + 1] = second - first;
}

int main() {
  constexpr int kThreads = 3 * 40 * 2;
  unsigned *device, got[kThreads * 10];
  unsigned long long *times, elapsed[kThreads * 2];
  CHECK(cudaMalloc(&device, sizeof(got)));
  CHECK(cudaMalloc(&times, sizeof(elapsed)));
  read_registers<<<3, dim3(40, 2), 512>>>(device, times);
  CHECK(cudaMemcpy(got, device, sizeof(got), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(elapsed, times, sizeof(elapsed), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kThreads; ++i) {
    const unsigned* o = got + i * 10;
    const unsigned lane = i % 80 % 32;
    EXPECT_EQ(o[0], lane);
    EXPECT_EQ(o[2], (1u << lane) - 1);
    EXPECT_EQ(o[3], ~((1u << lane) - 1));
    EXPECT(o[4] < o[5]);
    EXPECT_EQ(o[6], 512u);
    EXPECT(o[7] == 3 && o[8] == 2 && o[9] == 1u << lane);
    EXPECT(elapsed[i * 2] > 0 && elapsed[i * 2 + 1] < 1'000'000'000ull);
  }
  return passed();
}
