// Registering memory that the program allocated itself.
#include <cstdlib>
#include <cstring>

#include "check.h"

__global__ void twice(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= 2;
}

int main() {
  constexpr int kCount = 300000;
  constexpr size_t kBytes = kCount * sizeof(int);
  int* memory = static_cast<int*>(std::aligned_alloc(4096, (kBytes + 4095) / 4096 * 4096));
  for (int i = 0; i < kCount; ++i) memory[i] = i;
  CHECK(cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], i);
  int* view;
  CHECK(cudaHostGetDevicePointer(&view, memory, 0));
  twice<<<(kCount + 255) / 256, 256>>>(view, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], 2 * i);
  int can = 0;
  CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
  if (can) {
    twice<<<(kCount + 255) / 256, 256>>>(memory, kCount);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], 4 * i);
  }
  int* device;
  CHECK(cudaMalloc(&device, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMemcpyAsync(device, memory, kBytes, cudaMemcpyHostToDevice, stream));
  twice<<<(kCount + 255) / 256, 256, 0, stream>>>(device, kCount);
  CHECK(cudaMemcpyAsync(memory, device, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], (can ? 8 : 4) * i);
  CHECK(cudaHostUnregister(memory));
  EXPECT_CODE(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
  memory[0] = 5;  // ordinary memory again, with its content
  EXPECT_EQ(memory[1], can ? 8 : 4);
  CHECK(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaFree(device));
  std::free(memory);
  return passed();
}
