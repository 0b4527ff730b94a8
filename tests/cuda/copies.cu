// Linear copies of many sizes and offsets, in every direction, synchronous and not.
// vm: yes
#include <cstring>
#include <vector>

#include "check.h"

static void round_trip(size_t bytes, size_t offset) {
  std::vector<unsigned char> from(bytes + 64), to(bytes + 64, 0xee);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + bytes);
  unsigned char *a, *b;
  CHECK(cudaMalloc(&a, bytes + 64));
  CHECK(cudaMalloc(&b, bytes + 64));
  CHECK(cudaMemcpy(a + offset, from.data() + offset, bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b + offset, a + offset, bytes, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(to.data() + offset, b + offset, bytes, cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(to.data() + offset, from.data() + offset, bytes) == 0);
  EXPECT(to[offset + bytes] == 0xee && (offset == 0 || to[offset - 1] == 0xee));

  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  std::memset(to.data(), 0xdd, to.size());
  CHECK(cudaMemsetAsync(a, 0, bytes + 64, stream));
  CHECK(cudaMemcpyAsync(a + offset, from.data() + offset, bytes, cudaMemcpyDefault, stream));
  CHECK(cudaMemcpyAsync(b + offset, a + offset, bytes, cudaMemcpyDefault, stream));
  CHECK(cudaMemcpyAsync(to.data() + offset, b + offset, bytes, cudaMemcpyDefault, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(std::memcmp(to.data() + offset, from.data() + offset, bytes) == 0);
  CHECK(cudaMemcpyPeer(b, 0, a, 0, bytes + 64));
  CHECK(cudaMemcpy(to.data(), b, bytes + 64, cudaMemcpyDefault));
  EXPECT(std::memcmp(to.data() + offset, from.data() + offset, bytes) == 0);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
}

int main() {
  for (const size_t bytes : {1, 3, 4, 100, 4095, 4096, 4097, 8192, 8193, 65536, 262145, 1 << 20, (9 << 20) + 5})
    for (const size_t offset : {0, 1, 13, 60}) round_trip(bytes, offset);
  // The source of a copy from pageable memory may change as soon as the call is back.
  int* device;
  CHECK(cudaMalloc(&device, 64 << 20));
  std::vector<int> host(16 << 20, 1);
  CHECK(cudaMemcpyAsync(device, host.data(), 64 << 20, cudaMemcpyHostToDevice, 0));
  std::memset(host.data(), 0, 64 << 20);
  CHECK(cudaMemcpy(host.data(), device, 64 << 20, cudaMemcpyDeviceToHost));
  for (const int value : host) EXPECT_EQ(value, 1);
  CHECK(cudaMemcpy(device, host.data(), 0, cudaMemcpyHostToDevice));
  EXPECT_CODE(cudaErrorInvalidMemcpyDirection, cudaMemcpy(device, host.data(), 4, static_cast<cudaMemcpyKind>(17)));
  EXPECT(cudaMemcpy(device + (16 << 20) - 1, host.data(), 4096, cudaMemcpyHostToDevice) != cudaSuccess);
  CHECK(cudaFree(device));
  return passed();
}
