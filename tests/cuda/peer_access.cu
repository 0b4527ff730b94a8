// nvcc: -lcuda
// Devices that reach each other's memory: kernels, copies and mappings, and what of it ends with the right to. With one
// device there is nothing to reach. Where two devices do not, copies between them work all the same.
#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 3 << 18;  // not a whole number of granules
constexpr size_t kBytes = kCount * sizeof(int);

__global__ void add(int* to, const int* from, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] = from[i] + value;
}

__global__ void count(int* word) { atomicAdd_system(word, 1); }

void launch(int* to, const int* from, int value) {
  add<<<kCount / 256, 256>>>(to, from, value);
  CHECK(cudaGetLastError());
}

void on(int device) { CHECK(cudaSetDevice(device)); }

// Written by the device that is current.
int* filled(int value) {
  int* memory = nullptr;
  CHECK(cudaMalloc(&memory, kBytes));
  const std::vector<int> data(kCount, value);
  CHECK(cudaMemcpy(memory, data.data(), kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());  // the copy returns when it has read the source
  return memory;
}

void expect_all(const int* memory, int value) {
  std::vector<int> data(kCount);
  CHECK(cudaMemcpy(data.data(), memory, kBytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    if (data[i] != value) EXPECT_EQ(data[i], value);
  }
}

bool reaches(int device, int other) {
  int access = -1;
  CHECK(cudaDeviceCanAccessPeer(&access, device, other));
  int supported = -1;
  CHECK(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, device, other));
  EXPECT_EQ(supported, access);
  return access == 1;
}

// Through pointers of both devices, with and without a stream, and of boxes.
void copies(int device, int other) {
  on(other);
  int* const theirs = filled(1);
  on(device);
  int* const mine = filled(2);
  CHECK(cudaMemcpyPeer(mine, device, theirs, other, kBytes));
  expect_all(mine, 1);
  launch(mine, mine, 4);
  CHECK(cudaMemcpyPeerAsync(theirs, other, mine, device, kBytes, nullptr));
  CHECK(cudaDeviceSynchronize());
  expect_all(theirs, 5);
  cudaMemcpy3DPeerParms box{};
  box.srcDevice = other;
  box.dstDevice = device;
  box.srcPtr = make_cudaPitchedPtr(theirs, 4096, 1024, kBytes / 4096);
  box.dstPtr = make_cudaPitchedPtr(mine, 4096, 1024, kBytes / 4096);
  box.extent = make_cudaExtent(4096, kBytes / 4096, 1);
  launch(mine, mine, 7);
  CHECK(cudaMemcpy3DPeer(&box));
  CHECK(cudaDeviceSynchronize());
  expect_all(mine, 5);
  CHECK(cudaMemcpy(theirs, mine, kBytes, cudaMemcpyDefault));
  CHECK(cudaFree(theirs));
  CHECK(cudaFree(mine));
}

// A kernel here reads and writes what lies there, made before and after it may.
void kernels(int device, int other) {
  on(other);
  int* const before = filled(10);
  int* small = nullptr;
  CHECK(cudaMalloc(&small, sizeof(int)));
  CHECK(cudaMemset(small, 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  on(device);
  EXPECT_CODE(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(other));
  CHECK(cudaDeviceEnablePeerAccess(other, 0));
  EXPECT_CODE(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(other, 0));
  cudaGetLastError();
  int* const mine = filled(0);
  launch(mine, before, 1);
  launch(before, mine, 1);
  CHECK(cudaDeviceSynchronize());
  expect_all(mine, 11);
  on(other);
  expect_all(before, 12);
  int* after = filled(20);
  count<<<64, 64>>>(small);
  on(device);
  count<<<64, 64>>>(small);
  launch(after, after, 5);
  CHECK(cudaMemcpyAsync(mine, after, kBytes, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  expect_all(mine, 25);
  on(other);
  CHECK(cudaDeviceSynchronize());
  int counted = 0;
  CHECK(cudaMemcpy(&counted, small, sizeof(counted), cudaMemcpyDeviceToHost));
  EXPECT_EQ(counted, 2 * 64 * 64);
  // What comes next to the same address is other memory.
  CHECK(cudaFree(after));
  after = filled(30);
  on(device);
  launch(mine, after, 1);
  expect_all(mine, 31);
  CHECK(cudaDeviceDisablePeerAccess(other));
  EXPECT_CODE(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(other));
  cudaGetLastError();
  on(other);
  expect_all(after, 30);
  for (int* const memory : {before, small, after, mine}) CHECK(cudaFree(memory));
}

// A pool of the other device whose memory this one may access.
void pools(int device, int other) {
  on(other);
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, other};
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolCreate(&pool, &props));
  cudaMemAccessDesc access{{cudaMemLocationTypeDevice, device}, cudaMemAccessFlagsProtReadWrite};
  cudaMemAccessFlags flags{};
  CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT_EQ(flags, cudaMemAccessFlagsProtNone);
  CHECK(cudaMemPoolSetAccess(pool, &access, 1));
  CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* words = nullptr;
  for (int round = 1; round <= 3; ++round) {
    CHECK(cudaMallocFromPoolAsync(&words, kBytes, pool, stream));
    CHECK(cudaMemsetAsync(words, 0, kBytes, stream));
    CHECK(cudaStreamSynchronize(stream));
    on(device);
    launch(words, words, round);
    CHECK(cudaDeviceSynchronize());
    on(other);
    expect_all(words, round);
    CHECK(cudaFreeAsync(words, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaMemPoolDestroy(pool));
}

// Memory of the other device at addresses that were reserved here, for both.
void mappings(int device, int other) {
  on(other);
  CHECK(cudaFree(nullptr));
  on(device);
  CHECK(cudaFree(nullptr));
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, other};
  size_t unit = 0;
  CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const size_t bytes = (kBytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  CHECK_DRIVER(cuMemCreate(&memory, bytes, &prop, 0));
  CHECK_DRIVER(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK_DRIVER(cuMemMap(address, bytes, 0, memory, 0));
  const CUmemAccessDesc access[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {{CU_MEM_LOCATION_TYPE_DEVICE, other}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  CHECK_DRIVER(cuMemSetAccess(address, bytes, access, 2));
  for (const int one : {device, other}) {
    unsigned long long flags = 0;
    const CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, one};
    CHECK_DRIVER(cuMemGetAccess(&flags, &where, address));
    EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
  int* const words = reinterpret_cast<int*>(address);
  CHECK(cudaMemset(words, 0, kBytes));
  CHECK(cudaDeviceSynchronize());
  for (const int one : {device, other, device}) {
    on(one);
    launch(words, words, 3);
    CHECK(cudaDeviceSynchronize());
  }
  expect_all(words, 9);
  on(other);
  expect_all(words, 9);
  CHECK_DRIVER(cuMemUnmap(address, bytes));
  CHECK_DRIVER(cuMemAddressFree(address, bytes));
  CHECK_DRIVER(cuMemRelease(memory));
}

}  // namespace

int main() {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {
    for (int other = 0; other < devices; ++other) {
      if (other == device) continue;
      const bool access = reaches(device, other);
      std::printf("device %d %s the memory of device %d\n", device, access ? "reaches" : "does not reach", other);
      copies(device, other);
      if (!access) {
        on(device);
        EXPECT_CODE(cudaErrorPeerAccessUnsupported, cudaDeviceEnablePeerAccess(other, 0));
        cudaGetLastError();
        continue;
      }
      kernels(device, other);
      mappings(device, other);
      pools(device, other);
      copies(device, other);
    }
  }
  return passed();
}
