// The eight kernels that Kernelet (Zhong and He) was evaluated with, written anew: what they do and what holds them up
// is theirs, sizes are today's. A block's work is counted in rounds, so that a launch can be given any length; what a
// thread writes depends on every round. No kernel reads what it or another one of the launch writes.
//
// Inputs are functions of their index (word()), so that the host can compute what any thread must have found.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

namespace mps_bench {

constexpr int kThreads = 256;  // of a block

#ifdef BLOCK_STAMPS
// When and where a block ran, as its first thread saw it: nanoseconds of the GPU's timer, cycles of the SM's clock.
struct Stamp {
  unsigned long long begin, end;
  uint32_t clocks, sm;
};
#endif

// What all kernels are given. `mask`: the input's words less one; their number is a power of two.
struct Data {
  const uint32_t* in;
  const float* vector;  // of SPMV; mask / 32 + 1 elements
  float* out;           // an element a thread; as many as words for ST and SAD
  uint32_t* marks;      // an element a block
  uint32_t mask;
#ifdef BLOCK_STAMPS
  Stamp* stamps;   // an element a block
  uint32_t first;  // the first thread's number: launches one after the other are to read different memory
#endif
};

__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16, x *= 0x85ebca6bu;
  x ^= x >> 13, x *= 0xc2b2ae35u;
  return x ^ x >> 16;
}
__host__ __device__ inline float unit(uint32_t word) { return static_cast<float>(word >> 8) * (1.0f / (1 << 24)); }

constexpr int kNonZeros = 16;  // of a row of SPMV's matrix

enum class Fill { kNoise, kChain, kMatrix };
// The input's element `i`. The chain visits all elements, in an order that looks random; of the matrix the first half
// are columns.
__host__ __device__ inline uint32_t word(Fill fill, uint32_t i, uint32_t mask) {
  if (fill == Fill::kChain) return (i * 1664525u + 1013904223u) & mask;
  if (fill == Fill::kMatrix && i <= mask / 2) return mix(i) & mask / 32;
  return mix(i);
}
__host__ __device__ inline float vector_at(uint32_t i) { return unit(mix(~i)); }

__global__ void fill_input(uint32_t* in, float* vector, uint32_t mask, Fill fill) {
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i <= mask; i += stride)
    in[i] = word(fill, static_cast<uint32_t>(i), mask);
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i <= mask / 32; i += stride)
    vector[i] = vector_at(static_cast<uint32_t>(i));
}

__device__ inline uint32_t thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline uint32_t thread_number([[maybe_unused]] const Data& data) {
#ifdef BLOCK_STAMPS
  return data.first + thread_number();
#else
  return thread_number();
#endif
}
__device__ inline uint32_t all_threads() { return gridDim.x * blockDim.x; }
#ifdef BLOCK_STAMPS
__device__ inline unsigned long long gpu_time() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__device__ inline void stamp_begin(Stamp* stamps) {
  if (threadIdx.x != 0) return;
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  stamps[blockIdx.x] = {gpu_time(), 0, static_cast<uint32_t>(clock()), sm};
}
__device__ inline void stamp_end(Stamp* stamps) {
  if (threadIdx.x != 0) return;
  stamps[blockIdx.x].clocks = static_cast<uint32_t>(clock()) - stamps[blockIdx.x].clocks;
  stamps[blockIdx.x].end = gpu_time();
}
#endif

// What every block begins and ends with: it leaves the launch's number.
__device__ inline void arrive([[maybe_unused]] const Data& data) {
#ifdef BLOCK_STAMPS
  stamp_begin(data.stamps);
#endif
}
__device__ inline void leave(const Data& data, uint32_t mark) {
  if (threadIdx.x == 0) data.marks[blockIdx.x] = mark;
#ifdef BLOCK_STAMPS
  stamp_end(data.stamps);
#endif
}

// PC: every thread follows a chain through all of the memory.
__global__ void pointer_chasing(Data data, int rounds, uint32_t mark) {
  arrive(data);
  uint32_t at = mix(thread_number(data)) & data.mask;
  for (int round = 0; round < rounds; ++round) at = data.in[at];
  data.out[thread_number(data)] = unit(at << 8);
  leave(data, mark);
}

// SPMV: a row a thread and round, stored by columns (ELLPACK).
__global__ void sparse_matrix_vector(Data data, int rounds, uint32_t mark) {
  arrive(data);
  const uint32_t rows = (data.mask + 1) / 2 / kNonZeros;
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t row = (thread_number(data) + round * all_threads()) & (rows - 1);
    for (uint32_t k = 0; k < kNonZeros; ++k) {
      const uint32_t at = k * rows + row;
      sum += unit(data.in[data.mask / 2 + 1 + at]) * data.vector[data.in[at]];
    }
  }
  data.out[thread_number(data)] = sum;
  leave(data, mark);
}

constexpr uint32_t kPlane = 256 * 256;
// ST: seven points in three dimensions, a line of 256 a block and round; the edges wrap around.
__global__ void stencil(Data data, int rounds, uint32_t mark) {
  arrive(data);
  for (int round = 0; round < rounds; ++round) {
    const uint32_t at = (thread_number(data) + round * all_threads()) & data.mask;
    float sum = -6 * unit(data.in[at]);
    for (uint32_t step : {1u, 256u, kPlane})
      sum += unit(data.in[(at + step) & data.mask]) + unit(data.in[(at - step) & data.mask]);
    data.out[at] = sum;
  }
  leave(data, mark);
}

__host__ __device__ inline float normal_distribution(float d) {
  const float k = 1 / (1 + 0.2316419f * fabsf(d));
  const float tail =
      0.39894228f * expf(-0.5f * d * d) *
      (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1 - tail : tail;
}
constexpr int kVolatilities = 4;
// The price of a call, summed over some volatilities.
__host__ __device__ inline float option_price(float price, float strike, float years) {
  float sum = 0;
  for (int i = 1; i <= kVolatilities; ++i) {
    const float volatility = 0.1f * static_cast<float>(i), rate = 0.02f, root = sqrtf(years);
    const float d1 = (logf(price / strike) + (rate + 0.5f * volatility * volatility) * years) / (volatility * root);
    const float d2 = d1 - volatility * root;
    sum += price * normal_distribution(d1) - strike * expf(-rate * years) * normal_distribution(d2);
  }
  return sum;
}
// BS: an option a thread and round.
__global__ void black_scholes(Data data, int rounds, uint32_t mark) {
  arrive(data);
  const uint32_t options = (data.mask + 1) / 4;
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t at = (thread_number(data) + round * all_threads()) & (options - 1);
    sum += option_price(5 + 25 * unit(data.in[at]), 1 + 99 * unit(data.in[at + options]),
                        0.25f + 9.75f * unit(data.in[at + 2 * options]));
  }
  data.out[thread_number(data)] = sum;
  leave(data, mark);
}

constexpr uint32_t kTile = 16, kSide = 1024, kElements = kSide * kSide;
// MM: a tile of the product of the input's first million elements with themselves; a round is a tile along the sum.
__global__ void matrix_multiply(Data data, int rounds, uint32_t mark) {
  arrive(data);
  __shared__ float left[kTile][kTile], above[kTile][kTile];
  const uint32_t x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const uint32_t column = blockIdx.x % (kSide / kTile) * kTile + x;
  const uint32_t row = blockIdx.x / (kSide / kTile) % (kSide / kTile) * kTile + y;
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t from = round * kTile % kSide;
    left[y][x] = unit(data.in[row * kSide + from + x]);
    above[y][x] = unit(data.in[(from + y) * kSide + column]);
    __syncthreads();
    for (uint32_t k = 0; k < kTile; ++k) sum += left[y][k] * above[k][x];
    __syncthreads();
  }
  data.out[thread_number(data)] = sum;
  leave(data, mark);
}

// A round of TEA: 32 cycles over 64 bits.
__host__ __device__ inline void tea_encrypt(uint32_t* v0, uint32_t* v1) {
  for (uint32_t cycle = 1; cycle <= 32; ++cycle) {
    const uint32_t sum = cycle * 0x9e3779b9u;
    *v0 += ((*v1 << 4) + 0xa341316cu) ^ (*v1 + sum) ^ ((*v1 >> 5) + 0xc8013ea4u);
    *v1 += ((*v0 << 4) + 0xad90777du) ^ (*v0 + sum) ^ ((*v0 >> 5) + 0x7e95761eu);
  }
}
__global__ void tea(Data data, int rounds, uint32_t mark) {
  arrive(data);
  uint32_t v0 = thread_number(data), v1 = ~thread_number(data);
  for (int round = 0; round < rounds; ++round) tea_encrypt(&v0, &v1);
  data.out[thread_number(data)] = unit(v0 ^ v1);
  leave(data, mark);
}

constexpr uint32_t kSamples = 8;  // of k-space, a round
// MRIQ: a voxel a thread; samples of k-space in turn, each a sine and a cosine.
__global__ void mri_q(Data data, int rounds, uint32_t mark) {
  arrive(data);
  const uint32_t seed = mix(thread_number(data));
  const float x = unit(seed), y = unit(seed * 3), z = unit(seed * 5);
  float real = 0, imaginary = 0;
  for (int round = 0; round < rounds; ++round) {
    for (uint32_t i = 0; i < kSamples; ++i) {
      const uint32_t at = (round * kSamples + i) % 2048 * 4;
      const float angle = 2 * (unit(data.in[at]) * x + unit(data.in[at + 1]) * y + unit(data.in[at + 2]) * z) - 3;
      const float weight = unit(data.in[at + 3]);
      real += weight * __cosf(angle), imaginary += weight * __sinf(angle);
    }
  }
  data.out[thread_number(data)] = real + 2 * imaginary;
  leave(data, mark);
}

__host__ __device__ inline uint32_t byte_differences(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const int difference = static_cast<int>(a >> shift & 255) - static_cast<int>(b >> shift & 255);
    sum += static_cast<uint32_t>(difference < 0 ? -difference : difference);
  }
  return sum;
}
constexpr uint32_t kMotion = 4097;  // from a macroblock to the one it is compared with
// SAD: two macroblocks of 16 bytes a thread and round.
__global__ void sum_of_differences(Data data, int rounds, uint32_t mark) {
  arrive(data);
  const uint32_t last = data.mask / 4;
  const uint4* frame = reinterpret_cast<const uint4*>(data.in);
  for (int round = 0; round < rounds; ++round) {
    const uint32_t at = (thread_number(data) + round * all_threads()) & last;
    const uint4 a = frame[at], b = frame[(at + kMotion) & last];
    data.out[at] = static_cast<float>(byte_differences(a.x, b.x) + byte_differences(a.y, b.y) +
                                      byte_differences(a.z, b.z) + byte_differences(a.w, b.w));
  }
  leave(data, mark);
}

}  // namespace mps_bench
