// Blocks that take long, in kernels whose results show whether one of them ran twice: where persistent blocks are told
// to drop what they run (slices.drop_us), each may be run again only until it first stores, and always where it reads
// nothing. Threads that meet at barriers leave there, all together.
#include <vector>

#include "check.h"

constexpr int kThreads = 32, kBlocks = 6, kElements = kBlocks * kThreads - 9, kRounds = 300000;

__host__ __device__ unsigned step(unsigned x, unsigned round) {
  return x * 1664525u + 1013904223u + (round ^ (x >> 7));
}

__host__ __device__ unsigned rounds_of(unsigned x) {
  for (unsigned i = 0; i < kRounds; ++i) x = step(x, i);
  return x;
}

// Only writes.
__global__ void makes(unsigned* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kElements) out[i] = rounds_of(i);
}

// Reads here and writes there.
__global__ void takes(const unsigned* in, unsigned* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kElements) out[i] = rounds_of(in[i]);
}

// In place, in its middle: idempotent before, not after.
__global__ void changes(unsigned* data) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kElements) return;
  const unsigned once = rounds_of(data[i]);
  data[i] = once;
  asm volatile("" ::: "memory");
  data[i] = rounds_of(once) ^ data[i];
}

__global__ void adds(unsigned* data) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kElements) return;
  const unsigned once = rounds_of(i);
  const unsigned before = atomicAdd(&data[i], once);
  atomicAdd(&data[i], rounds_of(before));
}

__device__ __noinline__ void add_hidden(unsigned* to, unsigned value) { atomicAdd(to, value); }

__global__ void adds_in_a_call(unsigned* data) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kElements) return;
  add_hidden(&data[i], rounds_of(i));
  add_hidden(&data[i], rounds_of(i + 1));
}

// What the program calls constant is what it writes: each thread its own element, so it is right by luck.
__global__ void aliased(const unsigned* __restrict__ in, unsigned* __restrict__ out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kElements) out[i] = rounds_of(in[i]);
}

// Stores, and goes on: idempotent if it reads elsewhere, and then at any moment.
__global__ void stores_first(const unsigned* in, unsigned* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kElements) return;
  const unsigned start = in[i];
  out[i] = start + 1;
  asm volatile("" ::: "memory");
  out[i] = rounds_of(start);
}

constexpr int kMeetings = 40000;

// Threads hand what they have on to the next one, round by round.
__device__ unsigned hand_on(unsigned mine) {
  __shared__ unsigned all[kThreads];
#pragma unroll 1
  for (unsigned i = 0; i < kMeetings; ++i) {
    all[threadIdx.x] = mine;
    __syncthreads();
    mine = step(all[(threadIdx.x + 1) % kThreads], i);
    __syncthreads();
  }
  return mine;
}

std::vector<unsigned> handed_on(std::vector<unsigned> all) {
  for (unsigned i = 0; i < kMeetings; ++i) {
    for (size_t block = 0; block < all.size(); block += kThreads) {
      const unsigned first = all[block];
      for (int t = 0; t < kThreads; ++t) all[block + t] = step(t + 1 < kThreads ? all[block + t + 1] : first, i);
    }
  }
  return all;
}

// Whole blocks, so that all threads meet.
__global__ void makes_together(unsigned* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  out[i] = hand_on(i);
}

__global__ void changes_together(unsigned* data) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const unsigned once = hand_on(data[i]);
  data[i] += once;
  data[i] += hand_on(once);
}

void meet() {
  constexpr int kCount = kBlocks * kThreads;
  unsigned* data = nullptr;
  std::vector<unsigned> start(kCount), got(kCount);
  for (int i = 0; i < kCount; ++i) start[i] = i;
  const std::vector<unsigned> once = handed_on(start), twice = handed_on(once), thrice = handed_on(twice);
  CHECK(cudaMalloc(&data, kCount * sizeof *data));
  makes_together<<<kBlocks, kThreads>>>(data);
  CHECK(cudaMemcpy(got.data(), data, kCount * sizeof *data, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(got[i], once[i]);
  changes_together<<<kBlocks, kThreads>>>(data);
  CHECK(cudaMemcpy(got.data(), data, kCount * sizeof *data, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(got[i], once[i] + twice[i] + thrice[i]);
  CHECK(cudaFree(data));
}

unsigned* device_data() {
  static unsigned* data = nullptr;
  if (!data) CHECK(cudaMalloc(&data, kElements * sizeof *data));
  std::vector<unsigned> start(kElements);
  for (int i = 0; i < kElements; ++i) start[i] = 3 * i + 1;
  CHECK(cudaMemcpy(data, start.data(), kElements * sizeof *data, cudaMemcpyHostToDevice));
  return data;
}

template <class Wanted>
void check(const unsigned* data, Wanted wanted) {
  std::vector<unsigned> got(kElements);
  CHECK(cudaMemcpy(got.data(), data, kElements * sizeof *data, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kElements; ++i) EXPECT_EQ(got[i], wanted(i));
}

int main() {
  std::vector<unsigned> once(kElements + 1), start(kElements), of_start(kElements), twice(kElements);
  for (int i = 0; i <= kElements; ++i) once[i] = rounds_of(i);
  for (int i = 0; i < kElements; ++i)
    start[i] = 3 * i + 1, of_start[i] = rounds_of(start[i]), twice[i] = rounds_of(of_start[i]);
  unsigned* out = nullptr;
  CHECK(cudaMalloc(&out, kElements * sizeof *out));

  makes<<<kBlocks, kThreads>>>(out);
  check(out, [&](int i) { return once[i]; });
  takes<<<kBlocks, kThreads>>>(device_data(), out);
  check(out, [&](int i) { return of_start[i]; });
  unsigned* data = device_data();
  changes<<<kBlocks, kThreads>>>(data);
  check(data, [&](int i) { return twice[i] ^ of_start[i]; });
  data = device_data();
  adds<<<kBlocks, kThreads>>>(data);
  check(data, [&](int i) { return start[i] + once[i] + of_start[i]; });
  data = device_data();
  adds_in_a_call<<<kBlocks, kThreads>>>(data);
  check(data, [&](int i) { return start[i] + once[i] + once[i + 1]; });
  data = device_data();
  aliased<<<kBlocks, kThreads>>>(data, data);
  check(data, [&](int i) { return of_start[i]; });
  stores_first<<<kBlocks, kThreads>>>(device_data(), out);
  check(out, [&](int i) { return of_start[i]; });
  data = device_data();
  stores_first<<<kBlocks, kThreads>>>(data, data);
  check(data, [&](int i) { return of_start[i]; });
  meet();
  return passed();
}
