// A write outside every allocation ends the process's context: every later call says so, and only then.
// vm: yes
#include <cassert>

#include "check.h"

__global__ void good(char* data) { data[0] = 5; }
__global__ void bad(char* data) {
  int* wild = reinterpret_cast<int*>(0x7000deadbee0ull);
  *wild = 1;
}

int main() {
  char *data, got = 0;
  CHECK(cudaMalloc(&data, 256));
  good<<<1, 1>>>(data);
  CHECK(cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 5);
  bad<<<1, 1>>>(data);
  EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  void* more;
  EXPECT_CODE(cudaErrorIllegalAddress, cudaMalloc(&more, 16));
  EXPECT_CODE(cudaErrorIllegalAddress, cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  good<<<1, 1>>>(data);
  EXPECT(cudaGetLastError() != cudaSuccess);
  return passed();
}
