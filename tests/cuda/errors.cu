// Wrong calls get CUDA's own codes, and nothing is lost by them.
#include <cstring>

#include "check.h"

__global__ void nothing() {}

int main() {
  void* memory = nullptr;
  EXPECT_CODE(cudaErrorInvalidValue, cudaMalloc(nullptr, 10));
  CHECK(cudaMalloc(&memory, 1000));
  EXPECT_CODE(cudaErrorInvalidValue, cudaFree(static_cast<char*>(memory) + 8));
  EXPECT_CODE(cudaErrorInvalidValue, cudaMemcpy(memory, nullptr, 10, cudaMemcpyHostToDevice));
  CHECK(cudaFree(memory));
  EXPECT_CODE(cudaErrorInvalidValue, cudaFree(memory));
  CHECK(cudaFree(nullptr));
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_CODE(cudaSuccess, cudaGetLastError());

  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
  EXPECT(std::strlen(cudaGetErrorString(cudaErrorLaunchFailure)) > 0);
  int value;
  EXPECT_CODE(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(99999), 0));
  EXPECT_CODE(cudaErrorInvalidDevice, cudaSetDevice(99));
  EXPECT_CODE(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1));
  cudaGetLastError();
  nothing<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  return passed();
}
