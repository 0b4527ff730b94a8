// Memory of one process that another opens, perhaps on another device. `give` says its handle, and checks what is there
// after a line has come; `take` reads the handle and adds to it.
#include <cstring>
#include <string>
#include <vector>

#include "../cuda/check.h"

namespace {

constexpr int kCount = 1 << 20;

__global__ void add(int* data, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] += value;
}

int give() {
  int* memory = nullptr;
  CHECK(cudaMalloc(&memory, kCount * sizeof(int)));
  CHECK(cudaMemset(memory, 0, kCount * sizeof(int)));
  add<<<kCount / 256, 256>>>(memory, 3);
  CHECK(cudaDeviceSynchronize());
  cudaIpcMemHandle_t handle;
  CHECK(cudaIpcGetMemHandle(&handle, memory));
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
  std::getchar();
  std::vector<int> data(kCount);
  CHECK(cudaMemcpy(data.data(), memory, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (const int one : data) EXPECT_EQ(one, 10);
  return passed();
}

int take() {
  char text[2 * sizeof(cudaIpcMemHandle_t) + 1] = {};
  EXPECT_EQ(std::fread(text, 1, sizeof(text) - 1, stdin), sizeof(text) - 1);
  cudaIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof(handle); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  }
  void* memory = nullptr;
  CHECK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  add<<<kCount / 256, 256>>>(static_cast<int*>(memory), 7);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaIpcCloseMemHandle(memory));
  return passed();
}

}  // namespace

int main(int count, char** words) { return count > 1 && !std::strcmp(words[1], "give") ? give() : take(); }
