// nvcc: -lcuda
// What is freed twice, or freed by the wrong call, or was never allocated, is refused; what lies beside it stays whole.
#include <cstring>
#include <vector>

#include "bad_input.cuh"

static void device_memory() {
  CUdeviceptr memory, beside;
  CHECK_DRIVER(cuMemAlloc(&memory, 1 << 20));
  CHECK_DRIVER(cuMemAlloc(&beside, 1 << 20));
  CHECK_DRIVER(cuMemsetD8(beside, 7, 1 << 20));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + 256));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(reinterpret_cast<void*>(memory)));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(kWild));
  CHECK_DRIVER(cuMemFree(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, nullptr));
  std::vector<unsigned char> back(1 << 20);
  CHECK_DRIVER(cuMemcpyDtoH(back.data(), beside, back.size()));
  for (const unsigned char value : back) EXPECT_EQ(value, 7);
  CHECK_DRIVER(cuMemFree(beside));
}

static void host_memory() {
  void *memory, *again;
  CHECK_DRIVER(cuMemAllocHost(&memory, 65536));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(static_cast<char*>(memory) + 4096));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(memory));
  std::memset(memory, 1, 65536);
  CHECK_DRIVER(cuMemFreeHost(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(memory));
  std::vector<char> own(65536);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(own.data()));
  EXPECT_CODE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own.data()));
  CHECK_DRIVER(cuMemHostRegister(own.data(), own.size(), 0));
  EXPECT_CODE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(own.data(), own.size(), 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(own.data()));
  CHECK_DRIVER(cuMemHostUnregister(own.data()));
  EXPECT_CODE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own.data()));
  CHECK_DRIVER(cuMemHostAlloc(&again, 65536, 0));
  CHECK_DRIVER(cuMemFreeHost(again));
}

static void managed_memory() {
  CUdeviceptr memory;
  CHECK_DRIVER(cuMemAllocManaged(&memory, 65536, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + 4096));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(reinterpret_cast<void*>(memory)));
  CHECK_DRIVER(cuMemFree(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
}

static void ordered_memory() {
  CUstream stream;
  CUdeviceptr memory, beside;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuMemAllocAsync(&memory, 1 << 20, stream));
  CHECK_DRIVER(cuMemAllocAsync(&beside, 1 << 20, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory + 512, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(kWild, stream));
  CHECK_DRIVER(cuMemFreeAsync(memory, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  CHECK_DRIVER(cuMemsetD8Async(beside, 3, 1 << 20, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  CHECK_DRIVER(cuMemFree(beside));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(beside, stream));
  CHECK_DRIVER(cuStreamDestroy(stream));
}

int main() {
  CHECK(cudaFree(nullptr));
  device_memory();
  host_memory();
  managed_memory();
  ordered_memory();
  EXPECT_CODE(cudaErrorInvalidValue, cudaFreeHost(reinterpret_cast<void*>(0x1000)));
  EXPECT_CODE(cudaErrorInvalidValue, cudaFree(reinterpret_cast<void*>(0x1000)));
  real_work();
  return passed();
}
