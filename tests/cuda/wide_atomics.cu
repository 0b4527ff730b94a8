// Exchanges and comparisons of 128 bits, in global and shared memory.
// nvcc: -arch=compute_90 -code=compute_90
#include "check.h"

struct alignas(16) Wide {
  unsigned long long low, high;
};

// Every thread adds its number to both halves, by comparing until nobody was faster.
template <class At>
__device__ void add(At* at, unsigned long long number) {
  Wide seen{0, 0};
  for (;;) {
    const Wide next{seen.low + number, seen.high + 2 * number};
    const Wide old = atomicCAS(at, seen, next);
    if (old.low == seen.low && old.high == seen.high) return;
    seen = old;
  }
}

__global__ void run(Wide* sum, Wide* last, Wide* taken) {
  __shared__ Wide own;
  if (threadIdx.x == 0) own = Wide{0, 0};
  __syncthreads();
  add(&own, threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) add(sum, own.low);
  // Who comes takes what the one before left: each value is seen once.
  const unsigned id = blockIdx.x * blockDim.x + threadIdx.x + 1;
  taken[id - 1] = atomicExch(last, Wide{id, ~0ull - id});
}

int main() {
  constexpr unsigned kBlocks = 7, kThreads = 70, kAll = kBlocks * kThreads;
  Wide *sum, *last, *taken;
  CHECK(cudaMallocManaged(&sum, sizeof *sum));
  CHECK(cudaMallocManaged(&last, sizeof *last));
  CHECK(cudaMallocManaged(&taken, kAll * sizeof *taken));
  *sum = Wide{0, 0};
  *last = Wide{0, ~0ull};
  run<<<kBlocks, kThreads>>>(sum, last, taken);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(sum->low, kBlocks * kThreads * (kThreads - 1) / 2);
  EXPECT_EQ(sum->high, 2 * sum->low);
  unsigned long long seen = last->low;
  for (unsigned i = 0; i < kAll; ++i) {
    EXPECT_EQ(taken[i].high, ~0ull - taken[i].low);
    seen += taken[i].low;
  }
  EXPECT_EQ(seen, kAll * (kAll + 1) / 2);
  return passed();
}
