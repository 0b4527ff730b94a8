// nvcc: -rdc=true -lcudadevrt
// device: soft
// Kernels that pass the device runtime what is no function, buffer or stream, or that nest too deep. CUDA leaves all
// but the last open: on an H200 a stream that is destroyed twice is no cudaErrorInvalidResourceHandle, and one of the
// two kernels of `refusals` ends in cudaErrorIllegalAddress. The software device says what is wrong.
#include "check.h"
#include "parts.cuh"

__global__ void nothing(int*) {}

static int* zero() {
  int* data = nullptr;
  CHECK(cudaMalloc(&data, sizeof(int)));
  CHECK(cudaMemset(data, 0, sizeof(int)));
  return data;
}

static int value(const int* from) {
  int got = 0;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&got, from, sizeof(got), cudaMemcpyDeviceToHost));
  return got;
}

__global__ void destroy_twice(int* errors) {
  cudaStream_t stream;
  *errors += cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
  *errors += cudaStreamDestroy(stream) != cudaSuccess;
  *errors += cudaStreamDestroy(stream) != cudaErrorInvalidResourceHandle;
  *errors += cudaGetLastError() != cudaErrorInvalidResourceHandle;
  *errors += cudaGetLastError() != cudaSuccess;
}

static void destroyed_streams() {
  int* const errors = zero();
  destroy_twice<<<1, 1>>>(errors);
  EXPECT_EQ(value(errors), 0);
}

__global__ void wrong(int* errors) {
  const dim3 one(1, 1, 1);
  *errors += cudaGetParameterBufferV2(nullptr, one, one, 0) != nullptr;
  *errors += cudaGetParameterBufferV2(reinterpret_cast<void*>(0x40000000123), one, one, 0) != nullptr;
  void* const buffer = cudaGetParameterBufferV2(reinterpret_cast<void*>(nothing), one, one, 0);
  *errors += cudaLaunchDeviceV2(static_cast<char*>(buffer) + 8, 0) == cudaSuccess;
  *errors += cudaLaunchDeviceV2(errors, 0) == cudaSuccess;
  *errors += cudaLaunchDeviceV2(buffer, reinterpret_cast<cudaStream_t>(0x1234)) != cudaErrorInvalidResourceHandle;
  *errors += cudaLaunchDeviceV2(buffer, 0) == cudaSuccess;  // it is gone
}

__global__ void deeper(int* last) {
  deeper<<<1, 1>>>(last);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) *last = error;
}

static void refusals() {
  int *const errors = zero(), *const last = zero();
  wrong<<<1, 1>>>(errors);
  EXPECT_EQ(value(errors), 0);
  deeper<<<1, 1>>>(last);
  EXPECT_EQ(value(last), static_cast<int>(cudaErrorLaunchMaxDepthExceeded));
}

int main() { return run_parts({{"destroyed streams", destroyed_streams}, {"refusals", refusals}}); }
