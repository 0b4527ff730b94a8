// nvcc: -rdc=true
// Managed variables in relocatable code, declared before they are defined; two kernels and a function share them.
#include "check.h"

struct Totals {
  int count;
  long long sum;
};

extern __managed__ Totals totals;
extern __managed__ int numbers[100];
static __managed__ int step = 2;

__device__ __noinline__ void add(int i) {
  atomicAdd(&totals.count, 1);
  atomicAdd(reinterpret_cast<unsigned long long*>(&totals.sum), static_cast<unsigned long long>(numbers[i]));
}

__managed__ Totals totals = {1000, -5};
__managed__ int numbers[100];

__global__ void make() { numbers[threadIdx.x] = threadIdx.x * step; }
__global__ void sum() { add(threadIdx.x); }

int main() {
  EXPECT_EQ(totals.count, 1000);
  EXPECT_EQ(totals.sum, -5);
  step = 3;
  make<<<1, 100>>>();
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(numbers[99], 297);
  numbers[99] = 0;
  sum<<<1, 100>>>();
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(totals.count, 1100);
  EXPECT_EQ(totals.sum, -5 + 3 * (98 * 99 / 2));
  return passed();
}
