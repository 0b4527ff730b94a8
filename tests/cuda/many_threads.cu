// Eight threads at once, each with a stream of its own and its own default stream: launches, copies, memory and
// synchronisations of all kinds interleave, and every result is right.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

constexpr int kThreads = 8, kRounds = 60, kCount = 4096;

__global__ void step(int* data, int count, int add) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * 3 + add;
}

static int expected(int start, int from, int rounds) {
  unsigned value = static_cast<unsigned>(start);
  for (int round = 0; round < rounds; ++round) value = value * 3 + static_cast<unsigned>(from + round);
  return static_cast<int>(value);
}

// One thread's chain of work on one stream; what it waits with changes from round to round.
static void chain(int id, cudaStream_t stream, int rounds) {
  int *data, *pinned;
  std::vector<int> pageable(kCount);
  cudaEvent_t event;
  CHECK(cudaMallocAsync(&data, kCount * sizeof(int), stream));
  CHECK(cudaMallocHost(&pinned, kCount * sizeof(int)));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (int i = 0; i < kCount; ++i) pinned[i] = i + id;
  CHECK(cudaMemcpyAsync(data, pinned, kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  for (int round = 0; round < rounds; ++round) {
    step<<<(kCount + 127) / 128, 128, 0, stream>>>(data, kCount, id + round);
    CHECK(cudaGetLastError());
    if (round % 4 == 0) {
      CHECK(cudaEventRecord(event, stream));
      CHECK(cudaEventSynchronize(event));
    } else if (round % 4 == 1) {
      CHECK(cudaStreamSynchronize(stream));
    } else if (round % 4 == 2) {
      const bool to_pinned = round % 8 == 2;
      int* const to = to_pinned ? pinned : pageable.data();
      CHECK(cudaMemcpyAsync(to, data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      for (int i = 0; i < kCount; i += 97) EXPECT_EQ(to[i], expected(i + id, id, round + 1));
    } else {
      while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
    }
    if (round % 16 == 15) {  // memory comes and goes beside the work
      void* other;
      CHECK(cudaMalloc(&other, 1 << 16));
      CHECK(cudaMemsetAsync(other, round, 1 << 16, stream));
      CHECK(cudaFree(other));
    }
  }
  CHECK(cudaMemcpyAsync(pageable.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(pageable[i], expected(i + id, id, rounds));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaFreeHost(pinned));
}

int main() {
  CHECK(cudaFree(nullptr));
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([id, &finished] {
      cudaStream_t own;
      CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
      chain(id, own, kRounds);
      chain(id + 100, cudaStreamPerThread, kRounds);
      CHECK(cudaStreamDestroy(own));
      ++finished;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(finished.load(), kThreads);
  CHECK(cudaDeviceSynchronize());
  return passed();
}
