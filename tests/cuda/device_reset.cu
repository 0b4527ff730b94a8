// cudaDeviceReset: everything the program had on the device is gone, its memory is free, and it can begin anew, again
// and again.
#include "check.h"

__device__ int counter = 5;

__global__ void add(int* to, int value) { *to += value + atomicAdd(&counter, 1); }

static size_t free_bytes() {
  size_t left = 0, all = 0;
  CHECK(cudaMemGetInfo(&left, &all));
  return left;
}

int main() {
  CHECK(cudaFree(nullptr));
  for (int round = 0; round < 3; ++round) {
    int *data = nullptr, *rest = nullptr, got = 0;
    const size_t before = free_bytes(), most = before < (size_t{32} << 30) ? before / 2 : size_t{1} << 30;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&data, sizeof(int)));
    CHECK(cudaMalloc(&rest, most));  // more than half, so that what a reset does not free is missed
    CHECK(cudaMemset(data, 0, sizeof(int)));
    add<<<1, 1>>>(data, 10);
    CHECK(cudaDeviceSynchronize());
    add<<<1, 1, 0, stream>>>(data, 20);
    CHECK(cudaMemcpyAsync(&got, data, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(got, 10 + 5 + 20 + 6);  // variables begin anew, too
    CHECK(cudaDeviceReset());
  }
  return passed();
}
