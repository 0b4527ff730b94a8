// Fills device memory and rests until it is asked for a step.
//
// Argument: how many MiB. Says "ready" when all is filled. A line on stdin is a question. "step": it adds one to all
// words twice, the host waits for each, and says {"first_us", "next_us"}: how long each took. "end": it compares all
// words, says {"wrong"} and ends. Ends with 1 if a call failed.
#include <cstring>

#include "measure.h"

__global__ void add(unsigned* words, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    ++words[i];
  }
}

__global__ void compare(const unsigned* words, size_t count, unsigned expected, unsigned* wrong) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    if (words[i] != expected) atomicAdd(wrong, 1u);
  }
}

int main(int argc, char** argv) {
  const size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64, count = (mib << 20) / sizeof(unsigned);
  unsigned *words = nullptr, *wrong = nullptr;
  CHECK(cudaMalloc(&words, mib << 20));
  CHECK(cudaMalloc(&wrong, sizeof *wrong));
  CHECK(cudaMemset(wrong, 0, sizeof *wrong));
  CHECK(cudaMemset(words, 0, mib << 20));
  unsigned added = 0;
  const auto step_us = [&] {
    const double begin = now_us();
    add<<<256, 128>>>(words, count);
    CHECK(cudaDeviceSynchronize());
    ++added;
    return now_us() - begin;
  };
  step_us();  // which loads the code
  std::printf("ready\n"), std::fflush(stdout);
  char question[64];
  while (std::fgets(question, sizeof question, stdin) && std::strcmp(question, "end\n") != 0) {
    const double first = step_us(), next = step_us();
    std::printf("{\"first_us\":%.1f,\"next_us\":%.1f}\n", first, next), std::fflush(stdout);
  }
  unsigned found = 0;
  compare<<<256, 128>>>(words, count, added, wrong);
  CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
  std::printf("{\"wrong\":%u}\n", found);
}
