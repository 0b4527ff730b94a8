// Two devices work on one word of the second one's memory, in turns, each waiting for the other's kernel. With `fault`
// the first goes on after it may not any more. With `wait` it waits for ever, in a kernel, for a word of the second.
// With `hold` it reaches 16 MiB of the second until a line comes.
#include <cstring>
#include <thread>

#include "../cuda/check.h"

namespace {

__global__ void take_turns(volatile int* word, int first, int rounds) {
  for (int turn = first; turn < 2 * rounds; turn += 2) {
    while (*word != turn) {
    }
    __threadfence_system();
    *word = turn + 1;
  }
}

__global__ void read_word(const int* word, int* out) { *out = *word; }
__global__ void wait_for_ever(volatile int* word) {
  while (*word == 0) {
  }
}

void on(int device) { CHECK(cudaSetDevice(device)); }

}  // namespace

int main(int count, char** words) {
  const char* const what = count > 1 ? words[1] : "turns";
  int *word = nullptr, *out = nullptr;
  on(1);
  CHECK(cudaMalloc(&word, sizeof(int)));
  CHECK(cudaMemset(word, 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  on(0);
  CHECK(cudaMalloc(&out, sizeof(int)));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  if (!std::strcmp(what, "fault")) {
    read_word<<<1, 1>>>(word, out);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDeviceDisablePeerAccess(1));
    read_word<<<1, 1>>>(word, out);
    EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    on(1);
    read_word<<<1, 1>>>(word, word);
    CHECK(cudaDeviceSynchronize());
    return passed();
  }
  if (!std::strcmp(what, "wait")) {
    wait_for_ever<<<1, 1>>>(word);
    std::printf("round 0\n");
    std::fflush(stdout);
    const cudaError_t first = cudaDeviceSynchronize();
    on(1);
    const cudaError_t second = cudaMalloc(&out, sizeof(int));
    std::printf("first %d second %d\n", first, second);
    return passed();
  }
  if (!std::strcmp(what, "hold")) {
    on(1);
    int* large = nullptr;
    CHECK(cudaMalloc(&large, 16 << 20));
    on(0);
    read_word<<<1, 1>>>(large, large);
    CHECK(cudaDeviceSynchronize());
    std::printf("round 0\n");
    std::fflush(stdout);
    std::getchar();
    return passed();
  }
  constexpr int kRounds = 200;
  on(1);
  take_turns<<<1, 1>>>(word, 1, kRounds);
  CHECK(cudaGetLastError());
  on(0);
  take_turns<<<1, 1>>>(word, 0, kRounds);
  CHECK(cudaDeviceSynchronize());
  on(1);
  CHECK(cudaDeviceSynchronize());
  int last = 0;
  CHECK(cudaMemcpy(&last, word, sizeof(last), cudaMemcpyDeviceToHost));
  EXPECT_EQ(last, 2 * kRounds);
  return passed();
}
