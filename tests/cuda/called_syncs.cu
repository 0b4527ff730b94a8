// Lanes that come together in a function which is called, as in programs built for debuggers: one lane waits for
// another warp meanwhile, and the rest must not run ahead of it.
#include "check.h"

constexpr int kThreads = 128, kPair = 64, kRounds = 5;

// The lanes are the function's own, or its caller's.
__device__ __noinline__ void all_lanes() { __syncwarp(); }
__device__ __noinline__ void these_lanes(unsigned lanes) { __syncwarp(lanes); }

// Two warps meet: the last one sets both free.
template <bool kNamed>
__device__ void meet(unsigned* arrived) {
  const unsigned warp = threadIdx.x / 32, mine = 1u << warp, both = 3u << (warp & ~1u);
  kNamed ? these_lanes(0xffffffff) : all_lanes();
  if (threadIdx.x % 32 == 0) {
    const unsigned before = atomicOr(arrived, mine);
    if (((before | mine) & both) == both) {
      atomicAnd(arrived, ~both);
    } else {
      while (*static_cast<volatile unsigned*>(arrived) & mine) {
      }
    }
  }
  kNamed ? these_lanes(0xffffffff) : all_lanes();
}

template <bool kNamed>
__global__ void neighbours(int* out) {
  __shared__ unsigned arrived;
  __shared__ volatile int own[kThreads];
  const int t = threadIdx.x, next = t / kPair * kPair + (t + 1) % kPair;
  int value = t;
  if (t == 0) arrived = 0;
  __syncthreads();
  if (t / kPair % 2 == 0) {
    for (int round = 0; round < kRounds; ++round) {
      own[t] = value;
      meet<kNamed>(&arrived);
      value = own[next];
      meet<kNamed>(&arrived);
    }
  }
  out[t] = value;
}

// Each warp adds alone: one of its lanes takes the lock and gives it back.
__global__ void locked(int* lock, int* sum) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
  }
  all_lanes();
  for (int lane = 0; lane < 32; ++lane) {
    if (threadIdx.x % 32 == lane) *static_cast<volatile int*>(sum) = *static_cast<volatile int*>(sum) + 1;
    these_lanes(0xffffffff);
  }
  if (threadIdx.x % 32 == 0) {
    __threadfence();
    atomicExch(lock, 0);
  }
}

static void check(const int* out) {
  CHECK(cudaDeviceSynchronize());
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(out[t], t / kPair % 2 ? t : t / kPair * kPair + (t + kRounds) % kPair);
}

int main() {
  int* out;
  CHECK(cudaMallocManaged(&out, kThreads * sizeof(int)));
  neighbours<true><<<1, kThreads>>>(out);
  check(out);
  neighbours<false><<<1, kThreads>>>(out);
  check(out);
  out[0] = out[1] = 0;
  locked<<<16, kThreads>>>(&out[0], &out[1]);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out[1], 16 * kThreads);
  CHECK(cudaFree(out));
  return passed();
}
