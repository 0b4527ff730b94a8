// The last device faults; the first goes on, also with code that only the last one had loaded.
#include "../cuda/check.h"

__global__ void wild() { *reinterpret_cast<volatile int*>(0x1000) = 1; }
__global__ void add(int* value) { *value += 1; }

int main() {
  int count = 0, *value = nullptr, now = -1;
  CHECK(cudaGetDeviceCount(&count));
  EXPECT(count > 1);
  CHECK(cudaMalloc(&value, sizeof(int)));
  CHECK(cudaMemset(value, 0, sizeof(int)));
  CHECK(cudaSetDevice(count - 1));
  CHECK(cudaFree(nullptr));
  wild<<<1, 1>>>();
  EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  cudaGetLastError();
  CHECK(cudaSetDevice(0));
  add<<<1, 1>>>(value);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&now, value, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_EQ(now, 1);
  return passed();
}
