// nvcc: -lcuda
// Every width of memset, in one and two dimensions, on streams.
#include <vector>

#include "check.h"

template <typename T>
static void expect_all(CUdeviceptr memory, size_t first, size_t count, T value) {
  std::vector<T> host(count);
  CHECK_DRIVER(cuMemcpyDtoH(host.data(), memory + first * sizeof(T), count * sizeof(T)));
  for (const T got : host) EXPECT_EQ(got, value);
}

int main() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  CUdeviceptr memory;
  constexpr size_t kBytes = 1 << 20;
  CHECK_DRIVER(cuMemAlloc(&memory, kBytes));
  CHECK_DRIVER(cuMemsetD8(memory, 0x11, kBytes));
  expect_all<unsigned char>(memory, 0, kBytes, 0x11);
  CHECK_DRIVER(cuMemsetD16(memory + 2, 0x2233, 1001));
  expect_all<unsigned short>(memory, 1, 1001, 0x2233);
  expect_all<unsigned short>(memory, 1002, 10, 0x1111);
  CHECK_DRIVER(cuMemsetD32(memory + 4096, 0x44556677, 5000));
  expect_all<unsigned>(memory, 1024, 5000, 0x44556677);
  CHECK_DRIVER(cuMemsetD8(memory, 0, kBytes));
  CHECK_DRIVER(cuMemsetD2D32(memory, 1024, 9, 100, 50));
  expect_all<unsigned>(memory, 49 * 256, 100, 9);
  expect_all<unsigned>(memory, 49 * 256 + 100, 156, 0);
  CHECK_DRIVER(cuMemsetD2D16(memory, 1024, 8, 10, 3));
  expect_all<unsigned short>(memory, 2 * 512, 10, 8);
  CHECK_DRIVER(cuMemsetD2D8(memory, 1024, 7, 10, 3));
  expect_all<unsigned char>(memory, 2 * 1024, 10, 7);
  CUstream stream;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuMemsetD32Async(memory, 1, kBytes / 4, stream));
  CHECK_DRIVER(cuMemsetD16Async(memory, 2, 100, stream));
  CHECK_DRIVER(cuMemsetD8Async(memory, 3, 10, stream));
  CHECK_DRIVER(cuMemsetD2D32Async(memory + 65536, 256, 4, 10, 10, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  expect_all<unsigned char>(memory, 0, 10, 3);
  expect_all<unsigned short>(memory, 5, 95, 2);
  expect_all<unsigned>(memory, 50, 1000, 1);
  expect_all<unsigned>(memory, 16384 + 9 * 64, 10, 4);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory + 1, 0, 4));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory + kBytes - 4, 0, 8192));
  CHECK_DRIVER(cuMemsetD8(memory, 0, 0));
  CHECK_DRIVER(cuMemFree(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  return passed();
}
