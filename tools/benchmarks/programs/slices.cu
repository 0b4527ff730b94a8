// What cutting kernels costs: three kernels with many blocks, timed launch by launch with events. Prints a line of JSON
// for each. Arguments: launches, milliseconds that a launch is to take; or launches, 0 and the rounds that each kernel
// makes, as an earlier run has printed them.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kBlocks = 20011, kThreads = 128;

// Arithmetic alone.
__global__ void multiply(float* data, int rounds) {
  float a = threadIdx.x, b = blockIdx.x;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.0001f + 0.5f;
    b = b * 0.9999f + a;
  }
  data[blockIdx.x * blockDim.x + threadIdx.x] = a + b;
}

// Memory alone.
__global__ void stream(float* data, int rounds) {
  const int count = gridDim.x * blockDim.x;
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    sum += data[at];
    at = (at + 977 * 32) % count;
  }
  data[blockIdx.x * blockDim.x + threadIdx.x] = sum * 0.5f;
}

// Shared memory and barriers.
__global__ void smooth(float* data, int rounds) {
  __shared__ float line[kThreads];
  const int x = threadIdx.x, at = blockIdx.x * blockDim.x + x;
  line[x] = data[at];
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const float mean = (line[(x + kThreads - 1) % kThreads] + line[x] + line[(x + 1) % kThreads]) / 3;
    __syncthreads();
    line[x] = mean;
  }
  data[at] = line[x];
}

static void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorName(error));
  std::exit(1);
}

using Kernel = void (*)(float*, int);

static float launch(Kernel kernel, float* data, int rounds, cudaEvent_t start, cudaEvent_t end) {
  check(cudaEventRecord(start));
  kernel<<<kBlocks, kThreads>>>(data, rounds);
  check(cudaGetLastError());
  check(cudaEventRecord(end));
  check(cudaEventSynchronize(end));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start, end));
  return milliseconds;
}

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 20;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 40;
  float* data;
  cudaEvent_t start, end;
  check(cudaMalloc(&data, kBlocks * kThreads * sizeof(float)));
  check(cudaMemset(data, 0, kBlocks * kThreads * sizeof(float)));
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  const struct {
    const char* name;
    Kernel kernel;
  } kernels[] = {{"multiply", multiply}, {"stream", stream}, {"smooth", smooth}};
  for (int k = 0; k < 3; ++k) {
    int rounds = argc > 3 + k ? std::atoi(argv[3 + k]) : 1;
    if (wanted > 0) {
      launch(kernels[k].kernel, data, rounds, start, end);
      while (launch(kernels[k].kernel, data, rounds, start, end) < wanted) rounds *= 2;
    }
    std::printf("{\"kernel\": \"%s\", \"rounds\": %d, \"ms\": [", kernels[k].name, rounds);
    for (int i = 0; i < launches; ++i) {
      std::printf("%s%.4f", i ? ", " : "", launch(kernels[k].kernel, data, rounds, start, end));
    }
    std::printf("]}\n");
  }
  return 0;
}
