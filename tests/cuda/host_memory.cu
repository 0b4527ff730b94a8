// Pinned and mapped host memory: one pointer for both sides.
#include "check.h"

__global__ void increment(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += i;
}

int main() {
  constexpr int kCount = 100000;
  int *pinned, *mapped, *view, *device;
  CHECK(cudaMallocHost(&pinned, kCount * sizeof(int)));
  CHECK(cudaMalloc(&device, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) pinned[i] = 2 * i;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpyAsync(device, pinned, kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  increment<<<(kCount + 127) / 128, 128, 0, stream>>>(device, kCount);
  CHECK(cudaMemcpyAsync(pinned, device, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(pinned[i], 3 * i);

  CHECK(cudaHostAlloc(&mapped, kCount * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
  for (int i = 0; i < kCount; ++i) mapped[i] = 1;
  CHECK(cudaHostGetDevicePointer(&view, mapped, 0));
  increment<<<(kCount + 127) / 128, 128>>>(view, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(mapped[i], i + 1);
  increment<<<(kCount + 127) / 128, 128>>>(pinned, kCount);  // unified addressing: usable as it is
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(pinned[i], 4 * i);
  unsigned flags = 0;
  CHECK(cudaHostGetFlags(&flags, mapped));
  EXPECT(flags & cudaHostAllocMapped);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, mapped + 5));
  EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == mapped + 5);
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFreeHost(mapped));
  EXPECT(cudaFreeHost(mapped) != cudaSuccess);
  CHECK(cudaFree(device));
  return passed();
}
