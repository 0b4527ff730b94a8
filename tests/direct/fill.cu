// Takes device memory until there is no more. Arguments: hold or churn, seconds, KiB a block, and perhaps "wait": for a
// line on stdin, with the context made and "ready" said.
// hold: prints "running BLOCKS FREE" (bytes that cudaMemGetInfo calls free, before the first block), keeps all, then
// checks that the blocks have what was written. churn: gives all back and takes again; prints "running" first. Ends
// with 0, or with 3 and CUDA's words when a call fails in another way than for want of memory.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

static void take_all(size_t bytes, std::vector<void*>* blocks) {
  for (;;) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return;
    }
    check(error, "cudaMalloc");
    check(cudaMemset(memory, static_cast<int>(blocks->size() % 251), 4096), "cudaMemset");
    blocks->push_back(memory);
  }
}

int main(int argc, char** argv) {
  const bool hold = argc > 1 && std::strcmp(argv[1], "hold") == 0;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  const size_t bytes = (argc > 3 ? std::atoi(argv[3]) : 1024) * size_t{1024};
  size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  if (argc > 4) {
    std::printf("ready\n"), std::fflush(stdout);
    std::getchar();
  }
  std::vector<void*> blocks;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  if (!hold) std::printf("running\n"), std::fflush(stdout);
  do {
    take_all(bytes, &blocks);
    if (hold) {
      std::printf("running %zu %zu\n", blocks.size(), free_bytes);
      std::fflush(stdout);
      std::this_thread::sleep_until(end);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      unsigned char value = 0;
      check(cudaMemcpy(&value, static_cast<char*>(blocks[i]) + 4095, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (value != i % 251) std::printf("block %zu has another's bytes\n", i), std::exit(4);
      check(cudaFree(blocks[i]), "cudaFree");
    }
    blocks.clear();
  } while (std::chrono::steady_clock::now() < end);
}
