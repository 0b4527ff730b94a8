// Two devices' streams wait for each other's events, both ways, and the thread that asks for it does not wait.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define CHECK(call)                                                             \
  do {                                                                          \
    if (const cudaError_t e = (call); e != cudaSuccess) {                       \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(e)); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

namespace {

constexpr int kCount = 4096;

struct Side {
  cudaStream_t stream;
  cudaEvent_t done;
  int* data;
};

__global__ void add(int* data, int what) { data[blockIdx.x * blockDim.x + threadIdx.x] += what; }
// The host's word opens it.
__global__ void wait_for(volatile int* word, int value) {
  while (*word < value) {
  }
}
__global__ void mix(int* data, const int* from) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = data[i] * 3 + from[i];
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Side make(int device) {
  Side side{};
  CHECK(cudaSetDevice(device));
  CHECK(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&side.done, cudaEventDisableTiming));
  CHECK(cudaHostAlloc(&side.data, kCount * sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped));
  std::memset(side.data, 0, kCount * sizeof(int));
  return side;
}

// Rounds in which each side's kernel reads what the other's wrote: right only in this order.
int turns(Side* sides, int rounds) {
  int expected[2] = {1, 2};
  for (int i = 0; i < kCount; ++i) sides[0].data[i] = 1, sides[1].data[i] = 2;
  const double begin = seconds();
  for (int round = 0; round < rounds; ++round) {
    for (int one = 0; one < 2; ++one) {
      CHECK(cudaSetDevice(one));
      CHECK(cudaStreamWaitEvent(sides[one].stream, sides[1 - one].done, 0));
      mix<<<kCount / 256, 256, 0, sides[one].stream>>>(sides[one].data, sides[1 - one].data);
      CHECK(cudaGetLastError());
      CHECK(cudaEventRecord(sides[one].done, sides[one].stream));
      expected[one] =
          static_cast<int>(3u * static_cast<unsigned>(expected[one]) + static_cast<unsigned>(expected[1 - one]));
    }
  }
  for (int one = 0; one < 2; ++one) CHECK(cudaStreamSynchronize(sides[one].stream));
  std::printf("%d turns: %.1f us each\n", 2 * rounds, (seconds() - begin) * 1e6 / (2 * rounds));
  for (int one = 0; one < 2; ++one) {
    for (int i = 0; i < kCount; ++i) {
      if (sides[one].data[i] != expected[one])
        return std::printf("side %d has %d, not %d\n", one, sides[one].data[i], expected[one]), 1;
    }
  }
  return 0;
}

// Both devices' streams wait for a third thing, the host, and for each other; the calls return meanwhile.
int does_not_block(Side* sides) {
  int* word;
  CHECK(cudaHostAlloc(&word, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped));
  *word = 0;
  for (Side* side = sides; side < sides + 2; ++side) std::memset(side->data, 0, kCount * sizeof(int));
  cudaEvent_t first;
  CHECK(cudaSetDevice(0));
  CHECK(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
  wait_for<<<1, 1, 0, sides[0].stream>>>(word, 1);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(first, sides[0].stream));
  CHECK(cudaSetDevice(1));
  const double begin = seconds();
  CHECK(cudaStreamWaitEvent(sides[1].stream, first, 0));
  const double took = seconds() - begin;
  add<<<kCount / 256, 256, 0, sides[1].stream>>>(sides[1].data, 5);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(sides[1].done, sides[1].stream));
  if (cudaEventQuery(sides[1].done) != cudaErrorNotReady) return std::printf("it has not waited\n"), 1;
  CHECK(cudaSetDevice(0));
  CHECK(cudaEventRecord(first, sides[0].stream));  // what was waited for is the earlier one
  CHECK(cudaStreamWaitEvent(sides[0].stream, sides[1].done, 0));
  mix<<<kCount / 256, 256, 0, sides[0].stream>>>(sides[0].data, sides[1].data);
  CHECK(cudaGetLastError());
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  CHECK(cudaStreamSynchronize(sides[0].stream));
  if (sides[0].data[7] != 5) return std::printf("data is %d\n", sides[0].data[7]), 1;
  std::printf("the call took %.3f s\n", took);
  return took < 0.5 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  Side sides[2] = {make(0), make(1)};
  const std::string what = count > 1 ? arguments[1] : "turns";
  if (what == "turns") return turns(sides, 200);
  return does_not_block(sides);
}
