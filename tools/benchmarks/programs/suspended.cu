// Fills device memory and goes on with steps in it, whatever becomes of its virtual GPU meanwhile.
//
// Argument: how many MiB. A step adds one to the words of one MiB, the next step to those of the next, and the host
// waits for each. Says "ready" when all is filled. A line on stdin is a question. "longest": the step that took longest
// since that was asked last, as {"began_ns", "ended_ns"} of the monotonic clock. "end": it compares all words, says
// {"steps", "wrong"} and ends. Ends with 1 if a call failed.
#include <poll.h>
#include <time.h>

#include <cstdint>
#include <cstring>

#include "measure.h"

namespace {

constexpr size_t kMib = 1 << 20, kWords = kMib / sizeof(unsigned);

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool asked() {
  pollfd entry{0, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

__device__ unsigned first(size_t word) { return static_cast<unsigned>(word) * 2654435761u; }

__global__ void fill(unsigned* words, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    words[i] = first(i);
  }
}

__global__ void add(unsigned* words) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kWords; i += gridDim.x * blockDim.x) ++words[i];
}

// Of `steps` steps, those of a word's MiB have come by in turn.
__global__ void compare(const unsigned* words, size_t count, unsigned long long steps, unsigned* wrong) {
  const size_t turns = count / kWords;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const unsigned added = static_cast<unsigned>(steps / turns + (i / kWords < steps % turns ? 1 : 0));
    if (words[i] != first(i) + added) atomicAdd(wrong, 1u);
  }
}

int main(int argc, char** argv) {
  const size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64, count = mib * kWords;
  unsigned *words = nullptr, *wrong = nullptr;
  CHECK(cudaMalloc(&words, mib * kMib));
  CHECK(cudaMalloc(&wrong, sizeof *wrong));
  CHECK(cudaMemset(wrong, 0, sizeof *wrong));
  fill<<<256, 128>>>(words, count);
  CHECK(cudaDeviceSynchronize());
  std::printf("ready\n"), std::fflush(stdout);

  unsigned long long steps = 0;
  int64_t began = 0, ended = 0;  // of the longest
  char question[64] = "";
  while (std::strcmp(question, "end\n") != 0) {
    const int64_t begin = now_ns();
    add<<<8, 128>>>(words + steps % mib * kWords);
    CHECK(cudaDeviceSynchronize());
    const int64_t end = now_ns();
    ++steps;
    if (end - begin > ended - began) began = begin, ended = end;
    if (!asked()) continue;
    if (!std::fgets(question, sizeof question, stdin)) break;  // who has started it is gone
    if (std::strcmp(question, "longest\n") != 0) continue;
    std::printf("{\"began_ns\":%lld,\"ended_ns\":%lld}\n", static_cast<long long>(began),
                static_cast<long long>(ended));
    std::fflush(stdout);
    began = ended = 0;
  }
  unsigned found = 0;
  compare<<<256, 128>>>(words, count, steps, wrong);
  CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
  std::printf("{\"steps\":%llu,\"wrong\":%u}\n", steps, found);
}
