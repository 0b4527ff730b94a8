// In a domain with few grants: copies of pageable memory go in pieces, more pinned, registered and managed memory than
// can be granted is refused or served, but never wrong, and what is freed can be had again. Argument: MiB of each.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#define CHECK(call)                                                                 \
  do {                                                                              \
    if (const cudaError_t error = (call)) {                                         \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

__global__ void increment(int* data, size_t count) {
  for (size_t i = threadIdx.x + size_t{blockIdx.x} * blockDim.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    ++data[i];
}

static void expect(const int* data, size_t count, int first, const char* what) {
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != static_cast<int>(i) + first) {
      std::printf("%s: %d at %zu\n", what, data[i], i);
      std::exit(1);
    }
  }
}

// Whether memory of this kind was to be had; if so, a kernel has used it in place.
static bool use(cudaError_t made, int* memory, size_t count, const char* what) {
  std::printf("%s of %zu MiB: %s\n", what, count * sizeof(int) >> 20, cudaGetErrorString(made));
  if (made != cudaSuccess) {
    if (made != cudaErrorMemoryAllocation) std::exit(1);
    return cudaGetLastError() == cudaSuccess;
  }
  std::iota(memory, memory + count, 0);
  increment<<<8, 64>>>(memory, count);
  CHECK(cudaDeviceSynchronize());
  expect(memory, count, 1, what);
  return true;
}

int main(int, char** arguments) {
  const size_t bytes = std::strtoul(arguments[1], nullptr, 10) << 20, count = bytes / sizeof(int);
  std::vector<int> host(count);
  int *device, *memory = nullptr;
  CHECK(cudaMalloc(&device, bytes));
  for (int round = 0; round < 2; ++round) {
    std::iota(host.begin(), host.end(), round);
    CHECK(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice));
    increment<<<8, 64>>>(device, count);
    CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
    expect(host.data(), count, round + 1, "pageable");

    cudaError_t made = cudaMallocHost(&memory, bytes);
    use(made, memory, count, "pinned memory");
    if (made == cudaSuccess) CHECK(cudaFreeHost(memory));
    made = cudaHostRegister(host.data(), bytes, cudaHostRegisterDefault);
    use(made, host.data(), count, "registered memory");
    if (made == cudaSuccess) CHECK(cudaHostUnregister(host.data()));
    made = cudaMallocManaged(&memory, bytes);
    use(made, memory, count, "managed memory");
    if (made == cudaSuccess) CHECK(cudaFree(memory));
    made = cudaMallocHost(&memory, 256 << 10);  // what fits is there in each round
    use(made, memory, (256 << 10) / sizeof(int), "little pinned memory");
    CHECK(made);
    CHECK(cudaFreeHost(memory));
  }
  std::printf("ok\n");
  return 0;
}
