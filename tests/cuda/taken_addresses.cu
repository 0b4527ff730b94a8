// A program that had memory, before its first call, where the library would like to have addresses of its own: an
// allocator may choose any by chance.
// vm: yes
#include <sys/mman.h>

#include <cstdint>

#include "check.h"

__global__ void fill(int* words, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) words[i] = 3 * i;
}

int main() {
  constexpr size_t kBytes = size_t{1} << 30;
  for (const uintptr_t at : {uintptr_t{0x200000000000}, uintptr_t{0x600040000000}}) {
    void* const wanted = reinterpret_cast<void*>(at);
    EXPECT(mmap(wanted, kBytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == wanted);
  }
  constexpr int kCount = 100000;
  int *words = nullptr, *pinned = nullptr;
  CHECK(cudaMalloc(&words, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&pinned, kCount * sizeof(int)));
  fill<<<(kCount + 255) / 256, 256>>>(words, kCount);
  CHECK(cudaMemcpy(pinned, words, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(pinned[i], 3 * i);
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(words));
  return passed();
}
