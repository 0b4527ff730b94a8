// Registering memory that the program allocated itself.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"

__global__ void twice(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= 2;
}

// Ranges that have pages in common, as what lies side by side on the heap: each is registered and used by itself.
static void neighbours() {
  constexpr size_t kPages = 40, kWords = kPages * 1024;
  auto* const memory = static_cast<int*>(std::aligned_alloc(4096, kWords * sizeof(int)));
  for (size_t i = 0; i < kWords; ++i) memory[i] = static_cast<int>(i);
  // In words: two that meet within a page, two in one page, one that lies between them, and ends with theirs.
  struct Part {
    size_t first, count;
  } const parts[] = {{5, 9000}, {9005, 8000}, {20490, 100}, {20600, 50}, {17100, 3390}};
  int* device;
  cudaStream_t stream;
  CHECK(cudaMalloc(&device, kWords * sizeof(int)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const Part& part : parts) CHECK(cudaHostRegister(memory + part.first, part.count * sizeof(int), 0));
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, 20000 * sizeof(int), 0));
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory + 9000, 4, 0));
  std::vector<int> times(kWords, 1);
  const auto use = [&](const Part& part) {
    int *const data = memory + part.first, *view = nullptr;
    const int count = static_cast<int>(part.count);
    CHECK(cudaHostGetDevicePointer(&view, data, 0));
    twice<<<(count + 255) / 256, 256, 0, stream>>>(view, count);
    CHECK(cudaMemcpyAsync(device, data, part.count * sizeof(int), cudaMemcpyHostToDevice, stream));
    twice<<<(count + 255) / 256, 256, 0, stream>>>(device, count);
    CHECK(cudaMemcpyAsync(data, device, part.count * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = part.first; i < part.first + part.count; ++i) times[i] *= 4;
  };
  for (const Part& part : parts) use(part);
  // The first goes, and its pages with it, but for those that others have.
  CHECK(cudaHostUnregister(memory + parts[0].first));
  for (size_t i = 0; i < 5000; ++i) memory[i] += 1;
  for (size_t which : {1, 4, 2}) use(parts[which]);
  CHECK(cudaHostUnregister(memory + parts[2].first));
  use(parts[3]);
  CHECK(cudaHostRegister(memory + parts[0].first, parts[0].count * sizeof(int), 0));
  use(parts[0]);
  for (size_t which : {4, 3, 0, 1}) CHECK(cudaHostUnregister(memory + parts[which].first));
  for (size_t i = 0; i < kWords; ++i) {
    const bool changed = i < 5000, twice_used = changed && i >= 5;
    const int wanted = twice_used ? (static_cast<int>(i) * 4 + 1) * 4 : static_cast<int>(i) * times[i] + changed;
    EXPECT_EQ(memory[i], wanted);
  }
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  std::free(memory);
}

int main() {
  neighbours();
  constexpr int kCount = 300000;
  constexpr size_t kBytes = kCount * sizeof(int);
  int* memory = static_cast<int*>(std::aligned_alloc(4096, (kBytes + 4095) / 4096 * 4096));
  for (int i = 0; i < kCount; ++i) memory[i] = i;
  CHECK(cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], i);
  int* view;
  CHECK(cudaHostGetDevicePointer(&view, memory, 0));
  twice<<<(kCount + 255) / 256, 256>>>(view, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], 2 * i);
  int can = 0;
  CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
  if (can) {
    twice<<<(kCount + 255) / 256, 256>>>(memory, kCount);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], 4 * i);
  }
  int* device;
  CHECK(cudaMalloc(&device, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMemcpyAsync(device, memory, kBytes, cudaMemcpyHostToDevice, stream));
  twice<<<(kCount + 255) / 256, 256, 0, stream>>>(device, kCount);
  CHECK(cudaMemcpyAsync(memory, device, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], (can ? 8 : 4) * i);
  CHECK(cudaHostUnregister(memory));
  EXPECT_CODE(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
  memory[0] = 5;  // ordinary memory again, with its content
  EXPECT_EQ(memory[1], can ? 8 : 4);
  CHECK(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaFree(device));
  std::free(memory);
  return passed();
}
