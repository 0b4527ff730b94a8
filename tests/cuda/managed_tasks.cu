// Thousands of small tasks over managed matrices, from four threads with streams of their own: matrix times vector,
// some on the device, some in loops of the host beside the others' kernels, and the result of each is checked. vm: yes
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "check.h"

constexpr int kThreads = 4, kTasks = 400;

__global__ void multiply(const double* matrix, const double* vector, double* result, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  double sum = 0;
  for (int column = 0; column < n; ++column) sum += matrix[column * n + row] * vector[column];
  result[row] = sum;
}

static void multiply_on_host(const double* matrix, const double* vector, double* result, int n) {
  for (int row = 0; row < n; ++row) {
    result[row] = 0;
    for (int column = 0; column < n; ++column) result[row] += matrix[column * n + row] * vector[column];
  }
}

struct Task {
  double *matrix = nullptr, *vector = nullptr, *result = nullptr;
  int size = 0, seed = 0;

  double entry(int row, int column) const { return (row * 31 + column * 17 + seed) % 64; }
  void make(int n, int number) {
    size = n;
    seed = number;
    CHECK(cudaMallocManaged(&matrix, sizeof(double) * n * n));
    CHECK(cudaMallocManaged(&vector, sizeof(double) * n));
    CHECK(cudaMallocManaged(&result, sizeof(double) * n));
    for (int column = 0; column < n; ++column) {
      vector[column] = column % 5 + number % 7;
      for (int row = 0; row < n; ++row) matrix[column * n + row] = entry(row, column);
    }
  }
  void attach(cudaStream_t stream, unsigned flags) const {
    for (double* const memory : {matrix, vector, result}) CHECK(cudaStreamAttachMemAsync(stream, memory, 0, flags));
  }
  void check() const {
    for (int row = 0; row < size; ++row) {
      double sum = 0;
      for (int column = 0; column < size; ++column) sum += entry(row, column) * (column % 5 + seed % 7);
      EXPECT_EQ(result[row], sum);
    }
  }
  void drop() const {
    for (double* const memory : {matrix, vector, result}) CHECK(cudaFree(memory));
  }
};

// `attach`: tasks are attached to a stream or to the host, as programs for old devices do; else all is everybody's.
static void work(int thread, bool attach) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int number = thread; number < kTasks; number += kThreads) {
    Task task;
    task.make(number % 8 < 2 ? 400 : 16 + number * 37 % 240, number);  // those of 400 have device memory of their own
    const bool on_host = task.size < 100;
    if (attach) task.attach(stream, on_host ? cudaMemAttachHost : cudaMemAttachSingle);
    if (on_host) {
      CHECK(cudaStreamSynchronize(stream));
      multiply_on_host(task.matrix, task.vector, task.result, task.size);
    } else {
      multiply<<<(task.size + 63) / 64, 64, 0, stream>>>(task.matrix, task.vector, task.result, task.size);
      CHECK(cudaGetLastError());
      CHECK(cudaStreamSynchronize(stream));
    }
    task.check();
    task.drop();
  }
  CHECK(cudaStreamDestroy(stream));
}

// One allocation, of which each thread has a part: neighbours' pages lie in one block.
__global__ void step(int* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += i;
}

static void parts_of_one() {
  constexpr int kEach = 3000, kRounds = 100;
  int* data;
  CHECK(cudaMallocManaged(&data, sizeof(int) * kEach * kThreads));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      int* const own = data + t * kEach;
      cudaStream_t stream;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      for (int i = 0; i < kEach; ++i) own[i] = t;
      for (int round = 0; round < kRounds; ++round) {
        step<<<(kEach + 127) / 128, 128, 0, stream>>>(own, kEach);
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < kEach; i += 7) own[i] += 1;
      }
      for (int i = 0; i < kEach; ++i) EXPECT_EQ(own[i], t + kRounds * (i + (i % 7 == 0)));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cudaFree(data));
}

int main() {
  CHECK(cudaFree(nullptr));
  for (const bool attach : {true, false}) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t, attach);
    for (std::thread& thread : threads) thread.join();
  }
  parts_of_one();
  return passed();
}
