// Managed memory used from both sides at once: threads with streams of their own work on interleaved parts of the same
// allocations, which share pages and blocks, and on small ones that come and go. Each finds what it has written last.
// vm: yes
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

constexpr int kThreads = 6, kRounds = 150, kSlice = 700, kTurns = 24;  // a thread has every sixth slice of each
constexpr int kCount = kSlice * kThreads * kTurns;

__global__ void add(int* data, int count, int what) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += what;
}

class Worker {
 public:
  Worker(int number, const std::vector<int*>& shared)
      : number_(number), random_(static_cast<unsigned>(number) + 1), shared_(shared) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    expected_.assign(shared.size() * kTurns, std::vector<int>(kSlice, 0));
  }
  void run() {
    for (int round = 0; round < kRounds; ++round) {
      const size_t allocation = below(shared_.size()), turn = below(kTurns);
      use(slice(allocation, turn), &expected_[allocation * kTurns + turn]);
      if (round % 10 == 0) small();
    }
    CHECK(cudaStreamSynchronize(stream_));
    for (size_t allocation = 0; allocation < shared_.size(); ++allocation) {
      for (size_t turn = 0; turn < kTurns; ++turn) same(slice(allocation, turn), expected_[allocation * kTurns + turn]);
    }
    CHECK(cudaStreamDestroy(stream_));
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  int* slice(size_t allocation, size_t turn) const {
    return shared_[allocation] + (turn * kThreads + static_cast<size_t>(number_)) * kSlice;
  }
  static void same(const int* data, const std::vector<int>& expected) {
    EXPECT_EQ(std::memcmp(data, expected.data(), expected.size() * sizeof(int)), 0);
  }

  void use(int* data, std::vector<int>* expected) {
    const int value = static_cast<int>(below(1000));
    const size_t bytes = expected->size() * sizeof(int);
    const cudaMemLocation place{below(2) ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost, 0};
    switch (below(8)) {
      case 0:
      case 1:  // many kernels in a row, then a touch while they may run
        for (size_t i = 0, launches = 1 + below(3); i < launches; ++i) {
          add<<<4, 128, 0, stream_>>>(data, static_cast<int>(expected->size()), value);
          for (int& one : *expected) one += value;
        }
        break;
      case 2:  // the program writes after its own stream's work
        CHECK(cudaStreamSynchronize(stream_));
        for (size_t i = 0; i < expected->size(); i += 3) data[i] = (*expected)[i] = value;
        break;
      case 3:
        CHECK(cudaStreamSynchronize(stream_));
        same(data, *expected);
        break;
      case 4:
        CHECK(cudaMemPrefetchAsync(data, bytes, place, 0, stream_));
        break;
      case 5:
        CHECK(cudaMemsetAsync(data, value & 255, bytes, stream_));
        std::memset(expected->data(), value & 255, bytes);
        break;
      case 6: {
        std::vector<int> copy(expected->size());
        CHECK(cudaMemcpyAsync(copy.data(), data, bytes, cudaMemcpyDefault, stream_));
        CHECK(cudaStreamSynchronize(stream_));
        same(copy.data(), *expected);
        break;
      }
      default: {
        std::vector<int> copy(expected->size(), value);
        CHECK(cudaMemcpyAsync(data, copy.data(), bytes, cudaMemcpyDefault, stream_));
        CHECK(cudaStreamSynchronize(stream_));
        *expected = copy;
      }
    }
  }

  // Memory that was another thread's a moment ago.
  void small() {
    const int count = 1 + static_cast<int>(below(60000)), value = static_cast<int>(below(1000));
    int* data = nullptr;
    CHECK(cudaMallocManaged(&data, sizeof(int) * static_cast<size_t>(count)));
    const bool attached = below(2);
    for (int i = 0; i < count; ++i) data[i] = i;
    if (attached) CHECK(cudaStreamAttachMemAsync(stream_, data, 0, cudaMemAttachSingle));
    add<<<8, 128, 0, stream_>>>(data, count, value);
    CHECK(cudaStreamSynchronize(stream_));
    for (int i = 0; i < count; i += 11) EXPECT_EQ(data[i], i + value);
    add<<<8, 128, 0, stream_>>>(data, count, value);  // freed while it may run
    if (below(2)) EXPECT_EQ(data[count - 1], count - 1 + 2 * value);
    CHECK(cudaFree(data));
  }

  const int number_;
  std::mt19937 random_;
  const std::vector<int*>& shared_;
  cudaStream_t stream_ = nullptr;
  std::vector<std::vector<int>> expected_;  // of each slice
};

int main() {
  std::vector<int*> shared(3);
  for (int*& data : shared) {
    CHECK(cudaMallocManaged(&data, sizeof(int) * kCount));
    std::memset(data, 0, sizeof(int) * kCount);
  }
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&shared, number] { Worker(number, shared).run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int* const data : shared) CHECK(cudaFree(data));
  return passed();
}
