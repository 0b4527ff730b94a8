// Makes streams until there are no more: says how many there were, and what the last call returned; then whether one
// that is destroyed makes room for another, and whether the program goes on.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

int main() {
  if (cudaFree(nullptr) != cudaSuccess) return 2;
  std::vector<cudaStream_t> streams;
  cudaError_t error = cudaSuccess;
  for (cudaStream_t stream; streams.size() < 1000; streams.push_back(stream)) {
    error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) break;
  }
  std::printf("%zu %s\n", streams.size(), cudaGetErrorName(error));
  if (streams.empty()) return 3;
  if (cudaStreamDestroy(streams.back()) != cudaSuccess || cudaStreamCreate(&streams.back()) != cudaSuccess) return 4;
  int* memory = nullptr;
  return cudaMalloc(&memory, 4) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : 5;
}
