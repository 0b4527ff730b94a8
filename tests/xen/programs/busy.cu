// Keeps its virtual GPU busy until somebody ends it: `busy copy` with copies, `busy kernel` with one long kernel.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(call)                                                               \
  do {                                                                            \
    if (const cudaError_t error = (call)) {                                       \
      std::printf("busy: ended with %s: %s\n", #call, cudaGetErrorString(error)); \
      return 1;                                                                   \
    }                                                                             \
  } while (0)

__global__ void spin(volatile int* stop) {
  while (!*stop) {
  }
}

int main(int, char** arguments) {
  constexpr size_t kBytes = 16 << 20;
  const bool copies = std::strcmp(arguments[1], "copy") == 0;
  std::vector<char> host(kBytes);
  char* device;
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMemset(device, 0, kBytes));
  if (!copies) spin<<<1, 1>>>(reinterpret_cast<int*>(device));
  for (int i = 0;; ++i) {
    if (!copies && i == 0) CHECK(cudaGetLastError());
    if (i == 1 || !copies) std::printf("busy: at it\n");
    std::fflush(stdout);
    if (!copies) CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(device, host.data(), kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(host.data(), device, kBytes, cudaMemcpyDeviceToHost));
  }
}
