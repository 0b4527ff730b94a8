// Managed memory that is attached to streams, three times as much as the virtual GPU has: each part comes to the device
// for its own stream's kernels, and others leave. What is charged is what is on the device.
// native: no
// alone: yes
#include <thread>
#include <vector>

#include "check.h"

__global__ void add(int* data, size_t count, int what) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) data[i] += what;
}

struct Part {
  int* data = nullptr;
  cudaStream_t stream = nullptr;
  int value = 0;
};

static void launch(Part* part, size_t count, int what) {
  add<<<64, 256, 0, part->stream>>>(part->data, count, what);
  CHECK(cudaGetLastError());
  part->value += what;
}

static void expect_all(const Part& part, size_t count) {
  for (size_t i = 0; i < count; i += 4099) EXPECT_EQ(part.data[i], part.value + static_cast<int>(i));
}

int main() {
  size_t free_before = 0, free_now = 0, total = 0;
  CHECK(cudaFree(nullptr));
  const size_t bytes = 32u << 20, count = bytes / sizeof(int), room = 4 * bytes + (8u << 20);
  // Leaves so much: four parts, and a little for kernels that are cut.
  CHECK(cudaMemGetInfo(&free_before, &total));
  void* ballast = nullptr;
  CHECK(cudaMalloc(&ballast, ((free_before - room) >> 21) << 21));
  CHECK(cudaMemGetInfo(&free_before, &total));
  std::vector<Part> parts(12);
  for (Part& part : parts) {
    CHECK(cudaMallocManaged(&part.data, bytes, cudaMemAttachHost));
    CHECK(cudaStreamCreateWithFlags(&part.stream, cudaStreamNonBlocking));
    CHECK(cudaStreamAttachMemAsync(part.stream, part.data, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(part.stream));
    for (size_t i = 0; i < count; ++i) part.data[i] = static_cast<int>(i);
  }
  CHECK(cudaMemGetInfo(&free_now, &total));
  EXPECT(free_now + (8u << 20) >= free_before);  // on the host it takes nothing

  // Round and round, with and without the program's own touch in between.
  for (int round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < parts.size(); ++i) {
      launch(&parts[i], count, round);
      if ((i + static_cast<size_t>(round)) % 3 == 0) {
        CHECK(cudaStreamSynchronize(parts[i].stream));
        expect_all(parts[i], count);
        parts[i].data[0] = parts[i].value;
      }
    }
  }
  // Neighbours stay, and prefetching and copies make room, too.
  std::vector<int> copy(1000);
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    launch(&parts[i], count, 5);
    const cudaMemLocation device{cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemPrefetchAsync(parts[i + 1].data, bytes, device, 0, parts[i + 1].stream));
    CHECK(cudaMemcpyAsync(copy.data(), parts[i].data + 7, 4000, cudaMemcpyDefault, parts[i].stream));
    CHECK(cudaStreamSynchronize(parts[i].stream));
    for (size_t k = 0; k < copy.size(); ++k) EXPECT_EQ(copy[k], parts[i].value + static_cast<int>(k) + 7);
  }
  for (const Part& part : parts) CHECK(cudaStreamSynchronize(part.stream));

  // Device memory drives managed memory out, and leaves it whole.
  void* plain = nullptr;
  CHECK(cudaMalloc(&plain, bytes * 3));
  CHECK(cudaMemset(plain, 7, bytes * 3));
  CHECK(cudaDeviceSynchronize());
  for (Part& part : parts) {
    expect_all(part, count);
    launch(&part, count, 9);
  }
  for (const Part& part : parts) CHECK(cudaStreamSynchronize(part.stream));
  for (const Part& part : parts) expect_all(part, count);
  CHECK(cudaFree(plain));

  // Two host threads, each with half of the parts.
  const auto half = [&](size_t first) {
    for (int round = 0; round < 4; ++round) {
      for (size_t i = first; i < parts.size(); i += 2) {
        launch(&parts[i], count, 2);
        CHECK(cudaStreamSynchronize(parts[i].stream));
        expect_all(parts[i], count);
      }
    }
  };
  std::thread other(half, 0);
  half(1);
  other.join();

  // More than there is room for, for one stream's work: it is refused, and nothing is lost.
  for (Part& part : parts) CHECK(cudaStreamAttachMemAsync(parts[0].stream, part.data, 0, cudaMemAttachSingle));
  CHECK(cudaStreamSynchronize(parts[0].stream));
  add<<<64, 256, 0, parts[0].stream>>>(parts[0].data, count, 1);
  EXPECT_CODE(cudaErrorMemoryAllocation, cudaGetLastError());
  for (const Part& part : parts) expect_all(part, count);
  for (Part& part : parts) CHECK(cudaStreamAttachMemAsync(part.stream, part.data, 0, cudaMemAttachSingle));
  for (Part& part : parts) launch(&part, count, 3);
  for (const Part& part : parts) CHECK(cudaStreamSynchronize(part.stream));
  for (const Part& part : parts) expect_all(part, count);

  for (const Part& part : parts) {
    CHECK(cudaFree(part.data));
    CHECK(cudaStreamDestroy(part.stream));
  }
  CHECK(cudaMemGetInfo(&free_now, &total));
  EXPECT(free_now + (8u << 20) >= free_before);
  CHECK(cudaFree(ballast));
  return passed();
}
