// Kernels to be cut into grid slices and to be run in persistent blocks: nvcc -arch=sm_80 -ptx
// Each writes `out`, of kOut words; what they write does not depend on the order of blocks unless said.
#include <cstdint>

__device__ uint32_t counter;
static __device__ uint32_t hidden = 7;
__constant__ uint32_t table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ uint32_t results[4096];

__device__ uint32_t linear_block() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }

extern "C" __global__ void indices(uint32_t* out) {
  uint32_t* mine = out + 8 * linear_block();
  if (threadIdx.x == 0) {
    mine[0] = blockIdx.x, mine[1] = blockIdx.y, mine[2] = blockIdx.z;
    mine[3] = gridDim.x, mine[4] = gridDim.y, mine[5] = gridDim.z;
  }
  atomicAdd(mine + 6, 1);
}

extern "C" __global__ void only_x(uint32_t* out) { atomicAdd(out + blockIdx.x, threadIdx.x + 1); }

extern "C" __global__ void oldest_reads(uint32_t* out) {
  uint32_t x, y, z, w;
  uint16_t low;
  asm("mov.v4.u32 {%0, %1, %2, %3}, %%ctaid;" : "=r"(x), "=r"(y), "=r"(z), "=r"(w));
  asm("mov.u16 %0, %%ctaid.x;" : "=h"(low));
  out[linear_block()] = x + 100 * y + 10000 * z + 1000000 * w + 10000000 * low;
}

__device__ __noinline__ uint32_t where(uint32_t scale) { return scale * (blockIdx.x + 7 * blockIdx.y) + hidden; }
__device__ __noinline__ uint32_t deep(uint32_t n, uint32_t* seen) {
  if (n == 0) return table[blockIdx.x & 7] + where(2);
  if (n & 1) atomicAdd(&counter, 1);
  return deep(n - 1, seen) + seen[n & 3] + table[n & 7];
}
extern "C" __global__ void calls(uint32_t* out) {
  uint32_t seen[4] = {threadIdx.x, gridDim.z, 2, 3};
  out[linear_block() * 32 + (threadIdx.x & 31)] = deep(threadIdx.x % 5, seen) + where(3);
}

extern "C" __global__ void no_parameters() {
  if (threadIdx.x < 8) results[8 * linear_block() + threadIdx.x] = table[threadIdx.x] + linear_block() + hidden;
}

extern "C" __global__ void shared_turn(uint32_t* out) {
  extern __shared__ uint32_t words[];
  __shared__ uint32_t sum;
  if (threadIdx.x == 0) sum = 0;
  words[threadIdx.x] = threadIdx.x * 3 + blockIdx.x;
  __syncthreads();
  atomicAdd(&sum, words[blockDim.x - 1 - threadIdx.x] & 15);
  __syncthreads();
  out[linear_block() * 64 + threadIdx.x] = sum + words[(threadIdx.x + 1) % blockDim.x];
}

// Whole blocks leave early, before barriers.
extern "C" __global__ void blocks_leave(uint32_t* out, uint32_t n) {
  __shared__ uint32_t words[64];
  if (linear_block() >= n) return;
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[linear_block() * 64 + threadIdx.x] = words[63 - threadIdx.x];
}

// Some threads leave early, and nobody meets afterwards.
extern "C" __global__ void threads_leave(uint32_t* out, uint32_t n) {
  const uint32_t i = linear_block() * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (uint32_t j = 0; j < i % 7; ++j) {
    if ((i ^ j) == 5) asm volatile("exit;");
    out[i] += j + 1;
  }
}

// Some threads leave early while others meet: only to be sliced.
extern "C" __global__ void leaves_before_barrier(uint32_t* out, uint32_t n) {
  __shared__ uint32_t words[64];
  words[threadIdx.x] = threadIdx.x;
  if (threadIdx.x >= n) return;
  __syncthreads();
  out[linear_block() * 64 + threadIdx.x] = words[n - 1 - threadIdx.x];
}

extern "C" __global__ void named_barriers(uint32_t* out) {
  __shared__ uint32_t words[64];
  words[threadIdx.x] = linear_block() + threadIdx.x;
  if (threadIdx.x < 32)
    asm volatile("bar.sync 1, 32;" ::: "memory");
  else
    asm volatile("bar.sync 2, 32;" ::: "memory");
  const uint32_t odd = __syncthreads_count(words[threadIdx.x ^ 1] & 1);
  out[linear_block() * 64 + threadIdx.x] = words[threadIdx.x ^ 1] + odd;
}

// The last block to arrive adds up what the others wrote.
extern "C" __global__ void last_block(uint32_t* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    out[8 + linear_block()] = linear_block() + 1;
    __threadfence();
    last = atomicAdd(out, 1) == gridDim.x * gridDim.y * gridDim.z - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < gridDim.x * gridDim.y * gridDim.z; ++i) sum += ((volatile uint32_t*)out)[8 + i];
  out[1] = sum;
}

// Each block waits for the one before it.
extern "C" __global__ void look_back(volatile uint32_t* out) {
  if (threadIdx.x != 0) return;
  const uint32_t i = linear_block();
  uint32_t before = 1;
  if (i > 0)
    while ((before = out[i - 1]) == 0) {}
  out[i] = before * 3 + i;
}

// A barrier of the grid made by hand: not to be cut.
extern "C" __global__ void waits_for_all(uint32_t* out) {
  if (threadIdx.x == 0) {
    atomicAdd(out, 1);
    while (*(volatile uint32_t*)out < gridDim.x) {}
  }
  __syncthreads();
  out[1 + blockIdx.x] = out[0];
}

extern "C" __global__ void copies_ahead(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(16) uint32_t words[128];
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(words + 4 * (threadIdx.x & 31)));
  if (threadIdx.x < 32)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(at), "l"(in + 4 * threadIdx.x) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  out[linear_block() * 64 + threadIdx.x] = words[threadIdx.x] + words[127 - threadIdx.x] + linear_block();
}

// The first warp adds up, the other warps leave.
extern "C" __global__ void first_warp_adds(uint32_t* out) {
  __shared__ uint32_t words[64];
  words[threadIdx.x] = threadIdx.x * (linear_block() + 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t sum = words[threadIdx.x] + words[threadIdx.x + 32];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x == 0) out[linear_block()] = sum;
  }
}
