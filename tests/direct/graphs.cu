// Launches a graph of kernels that depend on each other again and again, for so many seconds, and checks what they
// computed. Says "ready", waits for a line, and ends with how many launches it made. Ends with 4 if the result is
// wrong.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kKernels = 64, kThreads = 256, kBlocks = 64;

__global__ void step(uint32_t* data, uint32_t number) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t value = data[i];
  for (int round = 0; round < 32; ++round) value = value * 1664525u + number + round;
  data[i] = value;
}

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  uint32_t *one, *other;
  check(cudaMalloc(&one, kThreads * kBlocks * sizeof(uint32_t)), "cudaMalloc");
  check(cudaMalloc(&other, kThreads * kBlocks * sizeof(uint32_t)), "cudaMalloc");
  check(cudaMemset(one, 0, kThreads * kBlocks * sizeof(uint32_t)), "cudaMemset");
  cudaStream_t stream, beside;
  cudaEvent_t fork, join;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreate(&fork), "cudaEventCreate");
  check(cudaEventCreate(&join), "cudaEventCreate");

  // Each fourth kernel has one beside it whose result goes nowhere.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin");
  for (uint32_t i = 0; i < kKernels; ++i) {
    if (i % 4 == 0) {
      check(cudaEventRecord(fork, stream), "fork");
      check(cudaStreamWaitEvent(beside, fork), "fork");
      step<<<kBlocks, kThreads, 0, beside>>>(other, i);
    }
    step<<<kBlocks, kThreads, 0, stream>>>(one, i);
    if (i % 4 == 2) {
      check(cudaEventRecord(join, beside), "join");
      check(cudaStreamWaitEvent(stream, join), "join");
    }
  }
  check(cudaStreamEndCapture(stream, &graph), "end");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  check(cudaGraphDestroy(graph), "destroy");
  std::printf("ready\n");
  std::fflush(stdout);
  std::getchar();

  uint32_t wanted = 0;
  int launches = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaStreamSynchronize(stream), "synchronize");
    ++launches;
    for (uint32_t i = 0; i < kKernels; ++i) {
      for (int round = 0; round < 32; ++round) wanted = wanted * 1664525u + i + round;
    }
  }
  std::vector<uint32_t> found(kThreads * kBlocks);
  check(cudaMemcpy(found.data(), one, found.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "copy");
  for (const uint32_t value : found) {
    if (value != wanted) std::printf("wrong result after %d launches\n", launches), std::exit(4);
  }
  std::printf("%d\n", launches);
}
