// A fixed amount of work in kernels of few blocks: two programs at once take as long as one only where their kernels
// overlap. Arguments: launches, blocks, iterations of a thread. Says "ready", waits for a line, works, and prints the
// seconds that it took. Ends with 3 and CUDA's words when a call fails.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void work(float* out, int iterations) {
  float value = threadIdx.x;
  for (int i = 0; i < iterations; ++i) value = value * 0.999f + 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 200;
  const int blocks = argc > 2 ? std::atoi(argv[2]) : 16;
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 1 << 20;
  constexpr int kThreads = 256;
  float* out;
  check(cudaMalloc(&out, blocks * kThreads * sizeof(float)), "cudaMalloc");
  work<<<blocks, kThreads>>>(out, 1000);
  check(cudaDeviceSynchronize(), "first kernel");
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  if (!std::fgets(line, sizeof line, stdin)) return 5;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) work<<<blocks, kThreads>>>(out, iterations);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "the work");
  std::printf("seconds %.4f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return 0;
}
