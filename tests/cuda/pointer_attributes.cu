// nvcc: -lcuda
// What the driver says of pointers, known and unknown.
#include <cstdint>

#include "check.h"

__device__ int variable[10];

int main() {
  char *device, *pinned, ordinary[16];
  CHECK(cudaMalloc(&device, 10000));
  CHECK(cudaMallocHost(&pinned, 10000));
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, device + 77));
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == device + 77);
  CHECK(cudaPointerGetAttributes(&attributes, pinned + 77));
  EXPECT(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaPointerGetAttributes(&attributes, ordinary));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered && attributes.devicePointer == nullptr);

  const auto address = reinterpret_cast<CUdeviceptr>(device);
  CUmemorytype type{};
  CHECK_DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 9));
  EXPECT(type == CU_MEMORYTYPE_DEVICE);
  CUdeviceptr start = 0;
  size_t size = 0;
  CHECK_DRIVER(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 9));
  CHECK_DRIVER(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 9));
  EXPECT(start == address && size == 10000);
  CHECK_DRIVER(cuMemGetAddressRange(&start, &size, address + 9999));
  EXPECT(start == address && size == 10000);
  unsigned long long id_a = 0, id_b = 0;
  CHECK_DRIVER(cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  CHECK(cudaFree(device));
  CHECK(cudaMalloc(&device, 10000));
  CHECK_DRIVER(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(device)));
  EXPECT(id_a != 0 && id_a != id_b);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(ordinary)));
  void* symbol;
  CHECK(cudaGetSymbolAddress(&symbol, variable));
  CHECK(cudaPointerGetAttributes(&attributes, symbol));
  EXPECT(attributes.type == cudaMemoryTypeDevice);
  return passed();
}
