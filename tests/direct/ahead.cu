// Keeps kernels queued until its time is over, each some ten milliseconds long, then prints how many ended. Arguments:
// seconds. Prints "running" when the first has ended.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void rounds(unsigned* data, int count) {
  unsigned x = threadIdx.x;
  for (int i = 0; i < count; ++i) x = x * 1664525u + 1013904223u + (i ^ (x >> 7));
  data[threadIdx.x] = x;
}

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

int main(int argc, char** argv) {
  constexpr int kAhead = 8, kRounds = 2000000;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  unsigned* data = nullptr;
  check(cudaMalloc(&data, 32 * sizeof *data), "cudaMalloc");
  rounds<<<1, 32>>>(data, kRounds);
  check(cudaDeviceSynchronize(), "the first kernel");
  std::printf("running\n");
  std::fflush(stdout);
  cudaEvent_t ends[kAhead];
  for (cudaEvent_t& end : ends) check(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), "cudaEventCreate");
  const auto begin = std::chrono::steady_clock::now();
  long ended = 0;
  for (long i = 0; std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds; ++i) {
    cudaEvent_t end = ends[i % kAhead];
    if (i >= kAhead) check(cudaEventSynchronize(end), "cudaEventSynchronize"), ++ended;
    rounds<<<1, 32>>>(data, kRounds);
    check(cudaEventRecord(end), "cudaEventRecord");
  }
  std::printf("ended %ld\n", ended);
  return 0;
}
