// Stream-ordered allocation, pools and their attributes.
#include "check.h"

__global__ void put(int* at, int value) { *at = value; }

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* memory;
  CHECK(cudaMallocAsync(&memory, 1 << 20, stream));
  put<<<1, 1, 0, stream>>>(memory + 1000, 42);
  int got = 0;
  CHECK(cudaMemcpyAsync(&got, memory + 1000, 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(memory, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(got, 42);

  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long threshold = ~0ull, read = 0;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
  EXPECT_EQ(read, threshold);
  for (int i = 0; i < 100; ++i) {  // memory freed in stream order is used again
    CHECK(cudaMallocAsync(&memory, 4 << 20, stream));
    put<<<1, 1, 0, stream>>>(memory, i);
    CHECK(cudaFreeAsync(memory, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  unsigned long long used = 1, reserved = 0, high = 0;
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  EXPECT_EQ(used, 0ull);
  EXPECT(reserved >= 4ull << 20 && high >= 4ull << 20 && high < 400ull << 20);
  CHECK(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT_EQ(reserved, 0ull);

  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t own;
  CHECK(cudaMemPoolCreate(&own, &props));
  CHECK(cudaMallocFromPoolAsync(&memory, 12345, own, stream));
  CHECK(cudaMemsetAsync(memory, 1, 12345, stream));
  CHECK(cudaFree(memory));
  CHECK(cudaMemPoolDestroy(own));
  for (const auto handles : {cudaMemHandleTypeNone, cudaMemHandleTypePosixFileDescriptor}) {
    props.handleTypes = handles;
    props.maxSize = 64 << 20;
    CHECK(cudaMemPoolCreate(&own, &props));
    int* rest = nullptr;
    CHECK(cudaMallocFromPoolAsync(&memory, 48 << 20, own, stream));
    EXPECT_CODE(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&rest, 48 << 20, own, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaMallocFromPoolAsync(&rest, 48 << 20, own, stream));
    CHECK(cudaFreeAsync(rest, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(own));
  }
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
