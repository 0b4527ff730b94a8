// Threads with streams of their own, each with managed memory of many sizes that only its stream uses, in far less
// device memory than all of it takes: what one needs, others give up all the time, and everybody finds what it has
// written last.
// native: no
// alone: yes
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

constexpr int kThreads = 4, kRounds = 220;
constexpr size_t kRoom = 48u << 20;

__global__ void add(int* data, size_t count, int what) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) data[i] += what;
}

class Worker {
 public:
  explicit Worker(unsigned number) : random_(number + 1) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void run() {
    for (size_t i = 0; i < 3; ++i) pieces_.push_back(make(i));
    for (int round = 0; round < kRounds; ++round) {
      const size_t which = below(pieces_.size());
      if (below(16) == 0) {
        check(pieces_[which]);
        CHECK(cudaFree(pieces_[which].data));
        pieces_[which] = make(which);
      }
      use(&pieces_[which]);
    }
    for (const Piece& piece : pieces_) check(piece);
    for (const Piece& piece : pieces_) CHECK(cudaFree(piece.data));
    CHECK(cudaStreamDestroy(stream_));
  }

 private:
  struct Piece {
    int* data = nullptr;
    std::vector<int> expected;
  };
  size_t below(size_t limit) { return random_() % limit; }

  // One with memory of its own, two that share it with others'.
  Piece make(size_t which) {
    const size_t bytes = which == 0 ? (17u << 20) + below(3u << 20) : 4096 + below(which << 20);
    Piece piece;
    piece.expected.assign(bytes / sizeof(int), 0);
    CHECK(cudaMallocManaged(&piece.data, bytes, cudaMemAttachHost));
    std::memset(piece.data, 0, bytes);
    CHECK(cudaStreamAttachMemAsync(stream_, piece.data, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(stream_));
    return piece;
  }

  void check(const Piece& piece) {
    CHECK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(std::memcmp(piece.data, piece.expected.data(), piece.expected.size() * sizeof(int)), 0);
  }

  void use(Piece* piece) {
    const int value = static_cast<int>(below(1000));
    const size_t count = piece->expected.size(), bytes = count * sizeof(int);
    switch (below(6)) {
      case 0:
      case 1:
        add<<<8, 128, 0, stream_>>>(piece->data, count, value);
        CHECK(cudaGetLastError());
        for (int& one : piece->expected) one += value;
        break;
      case 2:
        CHECK(cudaStreamSynchronize(stream_));
        for (size_t i = value; i < count; i += 997) piece->data[i] = piece->expected[i] = value;
        break;
      case 3:
        CHECK(cudaMemsetAsync(piece->data, value & 255, bytes, stream_));
        std::memset(piece->expected.data(), value & 255, bytes);
        break;
      case 4: {  // read by a copy, and by the program beside it
        std::vector<int> copy(count);
        CHECK(cudaStreamSynchronize(stream_));
        const int first = piece->data[0];
        CHECK(cudaMemcpyAsync(copy.data(), piece->data, bytes, cudaMemcpyDefault, stream_));
        EXPECT_EQ(piece->data[count - 1], piece->expected[count - 1]);
        CHECK(cudaStreamSynchronize(stream_));
        EXPECT(first == copy[0] && copy == piece->expected);
        break;
      }
      default: {
        const cudaMemLocation place{below(2) ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost, 0};
        if (below(2)) CHECK(cudaMemAdvise(piece->data, bytes, cudaMemAdviseSetReadMostly, place));
        CHECK(cudaMemPrefetchAsync(piece->data, bytes, place, 0, stream_));
      }
    }
  }

  std::mt19937 random_;
  cudaStream_t stream_ = nullptr;
  std::vector<Piece> pieces_;
};

int main() {
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  void* ballast = nullptr;
  CHECK(cudaMalloc(&ballast, ((free_bytes - kRoom) >> 21) << 21));
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kThreads; ++number) {
    threads.emplace_back([number] { Worker(number).run(); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cudaFree(ballast));
  return passed();
}
