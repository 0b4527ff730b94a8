// Takes device memory that can lie nowhere else. Argument: MiB, of a stream-ordered pool. Prints "ok" when all its
// words are as they should be; ends with 3 if a call failed, with 4 if a word is wrong.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

__global__ void fill(unsigned* words, size_t count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] = i * 5 + 1;
}

int main(int argc, char** argv) {
  const size_t bytes = size_t(argc > 1 ? std::atoi(argv[1]) : 16) << 20, count = bytes / sizeof(unsigned);
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  unsigned* words = nullptr;
  check(cudaMallocAsync(&words, bytes, stream), "cudaMallocAsync");
  fill<<<16, 128, 0, stream>>>(words, count);
  std::vector<unsigned> found(count);
  check(cudaMemcpyAsync(found.data(), words, bytes, cudaMemcpyDeviceToHost, stream), "copy");
  check(cudaFreeAsync(words, stream), "cudaFreeAsync");
  check(cudaStreamSynchronize(stream), "end");
  for (size_t i = 0; i < count; ++i) {
    if (found[i] == static_cast<unsigned>(i * 5 + 1)) continue;
    std::printf("word %zu is %u\n", i, found[i]);
    return 4;
  }
  std::puts("ok");
}
