// Copies, launches and checks until its time is over; prints a line per round. Arguments: seconds, MiB.
// Ends with 0, or with 3 and CUDA's words when a call fails, so that a test can see how a fault looks from inside.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void increment(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1;
}

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const int count = (argc > 2 ? std::atoi(argv[2]) : 1) * (1 << 18);
  std::vector<int> host(count, 0);
  int* device;
  check(cudaMalloc(&device, count * sizeof(int)), "cudaMalloc");
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 1;; ++round) {
    check(cudaMemcpy(device, host.data(), count * sizeof(int), cudaMemcpyHostToDevice), "copy in");
    increment<<<(count + 255) / 256, 256>>>(device, count);
    check(cudaGetLastError(), "launch");
    check(cudaMemcpy(host.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost), "copy out");
    if (host[0] != round || host[count - 1] != round) {
      std::printf("wrong result\n");
      return 4;
    }
    std::printf("round %d\n", round);
    std::fflush(stdout);
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds) return 0;
  }
}
