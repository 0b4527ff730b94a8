// Advice on managed memory is kept by pages and read back; discarded memory takes what is written next. vm: yes
#include <vector>

#include "check.h"

constexpr size_t kPart = 1 << 20, kBytes = 4 * kPart;

__global__ void put(int* data, int count, int what) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] = what;
}

static int read_back(cudaMemRangeAttribute attribute, const void* data, size_t bytes) {
  int value = -100;
  CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, data, bytes));
  return value;
}

static void advice(char* data) {
  const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
  EXPECT_EQ(read_back(cudaMemRangeAttributeReadMostly, data, kBytes), 0);
  EXPECT_EQ(read_back(cudaMemRangeAttributePreferredLocation, data, kBytes), cudaInvalidDeviceId);
  EXPECT_EQ(read_back(cudaMemRangeAttributeLastPrefetchLocation, data, kBytes), cudaInvalidDeviceId);
  CHECK(cudaMemAdvise(data + kPart, kPart, cudaMemAdviseSetReadMostly, device));
  EXPECT_EQ(read_back(cudaMemRangeAttributeReadMostly, data + kPart, kPart), 1);
  EXPECT_EQ(read_back(cudaMemRangeAttributeReadMostly, data, 2 * kPart), 0);
  EXPECT_EQ(read_back(cudaMemRangeAttributeReadMostly, data + 2 * kPart, kPart), 0);
  CHECK(cudaMemAdvise(data, 2 * kPart, cudaMemAdviseSetPreferredLocation, device));
  CHECK(cudaMemAdvise(data + 2 * kPart, 2 * kPart, cudaMemAdviseSetPreferredLocation, host));
  EXPECT_EQ(read_back(cudaMemRangeAttributePreferredLocation, data, 2 * kPart), 0);
  EXPECT_EQ(read_back(cudaMemRangeAttributePreferredLocation, data + 2 * kPart, kPart), cudaCpuDeviceId);
  EXPECT_EQ(read_back(cudaMemRangeAttributePreferredLocation, data, kBytes), cudaInvalidDeviceId);
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetAccessedBy, host));
  CHECK(cudaMemAdvise(data, kPart, cudaMemAdviseSetAccessedBy, device));
  int who[3];
  CHECK(cudaMemRangeGetAttribute(who, sizeof(who), cudaMemRangeAttributeAccessedBy, data, kPart));
  EXPECT(who[0] == 0 && who[1] == cudaCpuDeviceId && who[2] == cudaInvalidDeviceId);
  CHECK(cudaMemRangeGetAttribute(who, sizeof(who), cudaMemRangeAttributeAccessedBy, data, kBytes));
  EXPECT(who[0] == cudaCpuDeviceId && who[1] == cudaInvalidDeviceId);
  CHECK(cudaMemPrefetchAsync(data, kPart, device, 0, nullptr));
  CHECK(cudaMemPrefetchAsync(data + kPart, kPart, host, 0, nullptr));
  EXPECT_EQ(read_back(cudaMemRangeAttributeLastPrefetchLocation, data, kPart), 0);
  EXPECT_EQ(read_back(cudaMemRangeAttributeLastPrefetchLocation, data + kPart, kPart), cudaCpuDeviceId);
  EXPECT_EQ(read_back(cudaMemRangeAttributeLastPrefetchLocation, data, 2 * kPart), cudaInvalidDeviceId);
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseUnsetPreferredLocation, host));
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseUnsetReadMostly, host));
  EXPECT_EQ(read_back(cudaMemRangeAttributePreferredLocation, data, kPart), cudaInvalidDeviceId);
  EXPECT_EQ(read_back(cudaMemRangeAttributeReadMostly, data + kPart, kPart), 0);
  EXPECT_CODE(cudaErrorInvalidValue, cudaMemAdvise(data, kBytes + 4096, cudaMemAdviseSetReadMostly, device));
  cudaGetLastError();
}

#if CUDART_VERSION >= 13000
static void discard(int* data, cudaStream_t stream) {
  void* from[] = {data};
  size_t bytes[] = {kBytes};
  const int count = static_cast<int>(kBytes / sizeof(int));
  for (int round = 1; round < 6; ++round) {
    put<<<64, 256, 0, stream>>>(data, count, round);
    if (round % 2) EXPECT_EQ(data[count / 2], round);
    CHECK(cudaMemDiscardBatchAsync(from, bytes, 1, 0, stream));
    if (round < 4) {  // the program writes it next, a part at a time
      for (int i = count - 1; i >= 0; --i) data[i] = -round;
      EXPECT_EQ(data[7], -round);
    }
    put<<<64, 256, 0, stream>>>(data, count / 2, 10 * round);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(data[count / 2 - 1], 10 * round);
    if (round < 4) EXPECT_EQ(data[count / 2], -round);
  }
}
#endif

int main() {
  char* data = nullptr;
  CHECK(cudaMallocManaged(&data, kBytes));
  advice(data);
  CHECK(cudaFree(data));
  CHECK(cudaMallocManaged(&data, kBytes));
  EXPECT_EQ(read_back(cudaMemRangeAttributeLastPrefetchLocation, data, kBytes), cudaInvalidDeviceId);
#if CUDART_VERSION >= 13000
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  discard(reinterpret_cast<int*>(data), stream);
  CHECK(cudaStreamDestroy(stream));
#endif
  CHECK(cudaFree(data));
  return passed();
}
