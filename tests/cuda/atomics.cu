// Atomic operations of every type, on global and shared memory, and their return values.
#include <cuda_fp16.h>

#include <algorithm>
#include <vector>

#include "check.h"

struct Cells {
  int add, sub, minimum, maximum, exchanged;
  unsigned inc, dec, and_bits, or_bits, xor_bits, cas_count;
  unsigned long long add64, max64, cas64;
  long long min64;
  float add_f;
  double add_d;
  __half2 add_h2;
};

template <typename Cell>
__device__ void everything(Cell* c, int i) {
  atomicAdd(&c->add, i);
  atomicSub(&c->sub, 2);
  atomicMin(&c->minimum, 500 - i);
  atomicMax(&c->maximum, i * 3);
  atomicInc(&c->inc, 99);
  atomicDec(&c->dec, 49);
  atomicAnd(&c->and_bits, ~(1u << i % 8));
  atomicOr(&c->or_bits, 1u << i % 20);
  atomicXor(&c->xor_bits, 1u << i % 16);
  atomicAdd(&c->add64, 1ull << 33);
  atomicMax(&c->max64, static_cast<unsigned long long>(i) << 34);
  atomicMin(&c->min64, -static_cast<long long>(i) << 33);
  atomicAdd(&c->add_f, 0.5f);
  atomicAdd(&c->add_d, 0.25);
  atomicAdd(&c->add_h2, __floats2half2_rn(1.0f, 2.0f));
  unsigned old = c->cas_count, seen;
  do {
    seen = old;
    old = atomicCAS(&c->cas_count, seen, seen + 3);
  } while (old != seen);
  unsigned long long wide = c->cas64, before;
  do {
    before = wide;
    wide = atomicCAS(&c->cas64, before, before + 5);
  } while (wide != before);
  atomicExch(&c->exchanged, 1234);
}

__global__ void on_global(Cells* cells) { everything(cells, blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void on_shared(Cells* cells, const Cells* initial) {
  __shared__ Cells shared;
  if (threadIdx.x == 0) shared = *initial;
  __syncthreads();
  everything(&shared, threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) *cells = shared;
}

__global__ void tickets(int* counter, int* taken) { taken[atomicAdd(counter, 1)] += 1; }
__global__ void scoped(int* at) {
  atomicAdd_block(at, 1);
  atomicAdd_system(at + 1, 1);
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], 2;" ::"l"(at + 2) : "memory");
  [[maybe_unused]] int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(old) : "l"(at + 3) : "memory");
}

static void check(const Cells& c, int n) {
  EXPECT_EQ(c.add, n * (n - 1) / 2);
  EXPECT_EQ(c.sub, -2 * n);
  EXPECT_EQ(c.minimum, std::min(1000, 500 - (n - 1)));
  EXPECT_EQ(c.maximum, 3 * (n - 1));
  EXPECT_EQ(c.inc, static_cast<unsigned>(n % 100));
  EXPECT_EQ(c.dec, static_cast<unsigned>((50 - n % 50) % 50));
  EXPECT_EQ(c.and_bits, 0xffffff00u);
  EXPECT_EQ(c.or_bits, (1u << 20) - 1);
  EXPECT_EQ(c.xor_bits, n / 16 % 2 ? 0xffffu : 0u);
  EXPECT(c.add64 == static_cast<unsigned long long>(n) << 33 && c.max64 == static_cast<unsigned long long>(n - 1)
                                                                               << 34);
  EXPECT(c.min64 == -static_cast<long long>(n - 1) * (1ll << 33));
  EXPECT(c.add_f == 0.5f * n && c.add_d == 0.25 * n);
  EXPECT(__low2float(c.add_h2) == n && __high2float(c.add_h2) == 2 * n);
  EXPECT(c.cas_count == 3u * n && c.cas64 == 5ull * n && c.exchanged == 1234);
}

int main() {
  Cells initial{};
  initial.minimum = 1000, initial.and_bits = ~0u;
  Cells *device, *start, got;
  CHECK(cudaMalloc(&device, sizeof(Cells)));
  CHECK(cudaMalloc(&start, sizeof(Cells)));
  CHECK(cudaMemcpy(start, &initial, sizeof(Cells), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device, &initial, sizeof(Cells), cudaMemcpyHostToDevice));
  on_global<<<8, 64>>>(device);
  CHECK(cudaMemcpy(&got, device, sizeof(Cells), cudaMemcpyDeviceToHost));
  check(got, 512);
  on_shared<<<1, 256>>>(device, start);
  CHECK(cudaMemcpy(&got, device, sizeof(Cells), cudaMemcpyDeviceToHost));
  check(got, 256);

  constexpr int kTickets = 64 * 128;
  int* counter;
  CHECK(cudaMalloc(&counter, (kTickets + 1) * 4));
  CHECK(cudaMemset(counter, 0, (kTickets + 1) * 4));
  tickets<<<64, 128>>>(counter, counter + 1);
  std::vector<int> taken(kTickets + 1);
  CHECK(cudaMemcpy(taken.data(), counter, (kTickets + 1) * 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(taken[0], kTickets);
  for (int i = 1; i <= kTickets; ++i) EXPECT_EQ(taken[i], 1);
  CHECK(cudaMemset(counter, 0, 16));
  scoped<<<10, 100>>>(counter);
  CHECK(cudaMemcpy(taken.data(), counter, 16, cudaMemcpyDeviceToHost));
  EXPECT(taken[0] == 1000 && taken[1] == 1000 && taken[2] == 2000 && taken[3] == 1000);
  return passed();
}
