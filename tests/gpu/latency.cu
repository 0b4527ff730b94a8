// How long a short kernel takes from launch to end, on the default stream. Arguments: seconds, microseconds between
// two. Says the range of stream priorities and "ready", waits for a line, works, and prints median and 99th percentile.
// Ends with 3 and CUDA's words when a call fails, with 4 when streams do not have the priorities that they were made
// with.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

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

static void check_priorities() {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priority range");
  for (int wanted = greatest; wanted <= least; ++wanted) {
    cudaStream_t stream;
    int given = least + 1;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted), "stream");
    check(cudaStreamGetPriority(stream, &given), "priority");
    if (given != wanted) std::exit(4);
    check(cudaStreamDestroy(stream), "end of the stream");
  }
  std::printf("priorities %d to %d, ", least, greatest);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const std::chrono::microseconds pause(argc > 2 ? std::atoi(argv[2]) : 700);
  constexpr int kBlocks = 8, kThreads = 256, kIterations = 2000;  // some 10 us
  float* out;
  check(cudaMalloc(&out, kBlocks * kThreads * sizeof(float)), "cudaMalloc");
  for (int i = 0; i < 100; ++i) work<<<kBlocks, kThreads>>>(out, kIterations);
  check(cudaDeviceSynchronize(), "first kernels");
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  if (!std::fgets(line, sizeof line, stdin)) return 5;
  std::vector<double> took;
  for (const auto until = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < until;) {
    for (const auto next = Clock::now() + pause; Clock::now() < next;) std::this_thread::yield();
    const auto begin = Clock::now();
    work<<<kBlocks, kThreads>>>(out, kIterations);
    check(cudaDeviceSynchronize(), "the work");
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  check_priorities();
  std::sort(took.begin(), took.end());
  std::printf("p50 %.1f p99 %.1f us of %zu\n", took[took.size() / 2], took[took.size() * 99 / 100], took.size());
  return 0;
}
