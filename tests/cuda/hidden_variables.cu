// Variables whose addresses the program has from a kernel, or out of another variable, and never asked CUDA for: copies
// and fills find them.
#include "check.h"

__device__ int table[1024];
__device__ int* first_entry = table;
__device__ double lone = 2.5;

__global__ void take_addresses(int** some, double** other) {
  for (int i = 0; i < 1024; ++i) table[i] = i * 7;
  *some = table + 100;
  *other = &lone;
}

int main() {
  int *first, *some, back[1024];
  double *other, value = 0;
  struct Addresses {
    int* some;
    double* other;
  }* addresses;
  CHECK(cudaMallocManaged(&addresses, sizeof(Addresses)));
  take_addresses<<<1, 1>>>(&addresses->some, &addresses->other);
  CHECK(cudaDeviceSynchronize());
  some = addresses->some;
  other = addresses->other;
  CHECK(cudaMemcpyFromSymbol(&first, first_entry, sizeof first));
  EXPECT(first + 100 == some);
  CHECK(cudaMemcpy(back, first, sizeof back, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(back[i], i * 7);
  CHECK(cudaMemcpy(&value, other, sizeof value, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 2.5);
  value = 4.5;
  CHECK(cudaMemcpy(other, &value, sizeof value, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(some, 0, 400));
  CHECK(cudaMemcpy(some + 200, some + 300, 400, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpyFromSymbol(&value, lone, sizeof value));
  EXPECT_EQ(value, 4.5);
  CHECK(cudaMemcpyFromSymbol(back, table, sizeof back));
  for (int i = 0; i < 1024; ++i) {
    EXPECT_EQ(back[i], i >= 100 && i < 200 ? 0 : i >= 300 && i < 400 ? (i + 100) * 7 : i * 7);
  }
  return passed();
}
