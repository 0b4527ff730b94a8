// Global and constant variables, their initial values and addresses.
// vm: yes
#include "check.h"

__device__ int counter = 17;
__device__ float table[256];
__constant__ int weights[4] = {1, 2, 3, 4};
__device__ int* pointer_to_counter = &counter;
struct Pair {
  int a;
  double b;
};
__device__ Pair pair = {3, 2.5};

__global__ void use(int* out) {
  out[0] = counter;
  out[1] = weights[0] + 10 * weights[1] + 100 * weights[2] + 1000 * weights[3];
  out[2] = *pointer_to_counter;
  out[3] = pair.a + static_cast<int>(2 * pair.b);
  out[4] = static_cast<int>(table[100]);
  *pointer_to_counter = 99;
}

int main() {
  int* out;
  CHECK(cudaMalloc(&out, 5 * sizeof(int)));
  float host_table[256];
  for (int i = 0; i < 256; ++i) host_table[i] = 3 * i;
  CHECK(cudaMemcpyToSymbol(table, host_table, sizeof(host_table)));
  use<<<1, 1>>>(out);
  int got[5];
  CHECK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
  EXPECT_EQ(got[0], 17);
  EXPECT_EQ(got[1], 4321);
  EXPECT_EQ(got[2], 17);
  EXPECT_EQ(got[3], 8);
  EXPECT_EQ(got[4], 300);
  const int changed[4] = {5, 6, 7, 8};
  CHECK(cudaMemcpyToSymbol(weights, changed, sizeof(changed)));
  int host_counter = 0;
  CHECK(cudaMemcpyFromSymbol(&host_counter, counter, sizeof(int)));
  EXPECT_EQ(host_counter, 99);
  void* address;
  size_t size;
  CHECK(cudaGetSymbolAddress(&address, table));
  CHECK(cudaGetSymbolSize(&size, table));
  EXPECT_EQ(size, sizeof(host_table));
  float one = -1;
  CHECK(cudaMemcpy(static_cast<float*>(address) + 100, &one, 4, cudaMemcpyHostToDevice));
  use<<<1, 1>>>(out);
  CHECK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
  EXPECT_EQ(got[1], 8765);
  EXPECT_EQ(got[4], -1);
  return passed();
}
