// nvcc: -lcuda
// Batches of prefetches and discards of managed memory.
#include <initializer_list>

#include "check.h"

__global__ void increment(int* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i]++;
}

int location_of(const int* data, size_t bytes) {
  int where = -5;
  CHECK(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributeLastPrefetchLocation, data, bytes));
  return where;
}

int main() {
  constexpr size_t kCount = 1 << 16, kBytes = kCount * sizeof(int);
  int* data[3];
  CUdeviceptr addresses[3];
  size_t sizes[3] = {kBytes, kBytes, kBytes};
  for (int k = 0; k < 3; k++) {
    CHECK(cudaMallocManaged(&data[k], kBytes));
    for (size_t i = 0; i < kCount; i++) data[k][i] = k + static_cast<int>(i);
    addresses[k] = reinterpret_cast<CUdeviceptr>(data[k]);
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CUmemLocation locations[2] = {};
  locations[0].type = CU_MEM_LOCATION_TYPE_DEVICE;
  locations[0].id = 0;
  locations[1].type = CU_MEM_LOCATION_TYPE_HOST;
  size_t firsts[2] = {0, 2};
  CHECK_DRIVER(cuMemPrefetchBatchAsync(addresses, sizes, 3, locations, firsts, 2, 0, stream));
  for (int k = 0; k < 3; k++) increment<<<kCount / 256, 256, 0, stream>>>(data[k], kCount);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(location_of(data[0], kBytes), 0);
  EXPECT_EQ(location_of(data[1], kBytes), 0);
  EXPECT_EQ(location_of(data[2], kBytes), cudaCpuDeviceId);
  for (int k = 0; k < 3; k++) {
    for (size_t i = 0; i < kCount; i++) EXPECT_EQ(data[k][i], k + static_cast<int>(i) + 1);
  }
  // What was discarded is written before it is read.
  CHECK_DRIVER(cuMemDiscardBatchAsync(addresses, sizes, 1, 0, stream));
  CHECK_DRIVER(cuMemDiscardAndPrefetchBatchAsync(addresses + 1, sizes, 1, locations, firsts, 1, 0, stream));
  for (int k = 0; k < 2; k++) CHECK(cudaMemsetAsync(data[k], 0, kBytes, stream));
  increment<<<kCount / 256, 256, 0, stream>>>(data[0], kCount);
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < kCount; i++) EXPECT_EQ(data[0][i] * 10 + data[1][i], 10);
  EXPECT_EQ(data[2][7], 10);

  size_t wrong[2] = {1, 2};
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(addresses, sizes, 3, locations, wrong, 2, 0, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(addresses, sizes, 0, locations, firsts, 1, 0, stream));
  return passed();
}
