// nvcc: -lcuda -ldl
// native: no
// Calls of CUDA 3.1, whose sizes have 32 bits, as a program finds them by name.
#include <dlfcn.h>

#include <cstring>

#include "check.h"

struct Copy2d {  // CUDA_MEMCPY2D_v1
  unsigned source_x, source_y;
  CUmemorytype source_type;
  const void* source_host;
  unsigned source_device;
  CUarray source_array;
  unsigned source_pitch;
  unsigned destination_x, destination_y;
  CUmemorytype destination_type;
  void* destination_host;
  unsigned destination_device;
  CUarray destination_array;
  unsigned destination_pitch;
  unsigned width, height;
};

template <typename Function>
Function find(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  EXPECT(found);
  return reinterpret_cast<Function>(found);
}

int main() {
  CHECK(cudaFree(nullptr));
  unsigned free_bytes = 0, total_bytes = 0;
  CHECK_DRIVER(find<CUresult (*)(unsigned*, unsigned*)>("cuMemGetInfo")(&free_bytes, &total_bytes));
  EXPECT(total_bytes > 0 && free_bytes <= total_bytes);
  void* memory = nullptr;
  CHECK_DRIVER(find<CUresult (*)(void**, unsigned)>("cuMemAllocHost")(&memory, 4096));
  auto* const source = static_cast<char*>(memory);
  for (int i = 0; i < 4096; i++) source[i] = static_cast<char>(i * 7);
  char rows[4][16];
  std::memset(rows, 0, sizeof(rows));
  Copy2d copy{};
  copy.source_type = copy.destination_type = CU_MEMORYTYPE_HOST;
  copy.source_host = source;
  copy.source_pitch = 64;
  copy.source_x = 3;
  copy.source_y = 2;
  copy.destination_host = rows;
  copy.destination_pitch = 16;
  copy.width = 16;
  copy.height = 4;
  CHECK_DRIVER(find<CUresult (*)(const Copy2d*)>("cuMemcpy2D")(&copy));
  for (int y = 0; y < 4; y++) EXPECT(std::memcmp(rows[y], source + (y + 2) * 64 + 3, 16) == 0);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, find<CUresult (*)(const Copy2d*)>("cuMemcpy2D")(nullptr));
  CHECK_DRIVER(cuMemFreeHost(memory));
  return passed();
}
