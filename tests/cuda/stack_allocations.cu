// Memory that functions take of their stack as they run: each lane as much as it wants, given back when they return.
#include "check.h"

constexpr int kThreads = 96;

// Sums 0 to n - 1 by an array of that length.
__device__ __noinline__ int sum_below(int n) {
  int* const numbers = static_cast<int*>(alloca(n * sizeof(int)));
  for (int i = 0; i < n; ++i) numbers[i] = i;
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += numbers[i * 7 % n];
  return sum;
}

__global__ void sums(int* out) {
  const int n = threadIdx.x % 50 * 7 + 1;  // 7 and the length have no common divisor
  int* const own = static_cast<int*>(alloca(64));
  own[threadIdx.x % 16] = threadIdx.x;
  int total = 0;
  for (int i = 0; i < 100; ++i) total += sum_below(n);
  if (threadIdx.x % 3 == 0) total += sum_below(n + 7);
  out[threadIdx.x] = total + own[threadIdx.x % 16];
}

__global__ void too_much(int* out, size_t bytes) {
  char* const taken = static_cast<char*>(alloca(bytes));
  for (size_t i = 0; i < bytes; i += 64) taken[i] = static_cast<char>(i);
  out[0] = taken[bytes / 128 * 64];
}

int main() {
  int* out;
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8 << 10));  // a GPU has 1 KiB a thread otherwise
  CHECK(cudaMalloc(&out, kThreads * sizeof(int)));
  sums<<<2, kThreads>>>(out);
  int got[kThreads];
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int t = 0; t < kThreads; ++t) {
    const int n = t % 50 * 7 + 1, more = n + 7;
    EXPECT_EQ(got[t], 100 * (n * (n - 1) / 2) + (t % 3 == 0 ? more * (more - 1) / 2 : 0) + t);
  }
  too_much<<<1, 1>>>(out, size_t{1} << 30);
  EXPECT(cudaDeviceSynchronize() != cudaSuccess);
  return passed();
}
