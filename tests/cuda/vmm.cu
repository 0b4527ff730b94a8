// nvcc: -lcuda
// Virtual memory management: addresses are reserved, memory is created, the one is mapped at the other, in pieces,
// twice, and again; what was not reserved or mapped is refused.
#include <vector>

#include "check.h"
#include "parts.cuh"

static CUmemAllocationProp prop;
static size_t granule;

__global__ void add(int* data, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += what + i;
}

static CUmemAccessDesc read_write() {
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

static void add_and_check(CUdeviceptr at, size_t bytes, int what, int before) {
  const int count = static_cast<int>(bytes / sizeof(int));
  add<<<(count + 255) / 256, 256>>>(reinterpret_cast<int*>(at), count, what);
  CHECK(cudaGetLastError());
  std::vector<int> values(count);
  CHECK(cudaMemcpy(values.data(), reinterpret_cast<void*>(at), bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; ++i) EXPECT_EQ(values[i], before + what + i);
}

// Grows as PyTorch's expandable segments do: one reservation, memory mapped piece by piece, used as one.
static void pieces() {
  constexpr size_t kPieces = 5;
  CUdeviceptr base = 0;
  CHECK_DRIVER(cuMemAddressReserve(&base, 64 * granule, 0, 0, 0));
  EXPECT(base != 0 && base % granule == 0);
  const CUmemAccessDesc access = read_write();
  for (size_t i = 0; i < kPieces; ++i) {
    CUmemGenericAllocationHandle memory;
    CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
    CHECK_DRIVER(cuMemMap(base + i * granule, granule, 0, memory, 0));
    CHECK_DRIVER(cuMemSetAccess(base + i * granule, granule, &access, 1));
    CHECK_DRIVER(cuMemRelease(memory));  // the mapping holds it
  }
  CHECK(cudaMemset(reinterpret_cast<void*>(base), 0, kPieces * granule));
  add_and_check(base, kPieces * granule, 3, 0);
  unsigned long long flags = 0;
  CHECK_DRIVER(cuMemGetAccess(&flags, &prop.location, base + granule));
  EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUdeviceptr start = 0;
  size_t size = 0;
  CHECK_DRIVER(cuMemGetAddressRange(&start, &size, base + granule + 100));
  EXPECT(start == base + granule && size == granule);
  // One in the middle is exchanged; its neighbours keep what they have.
  CHECK_DRIVER(cuMemUnmap(base + 2 * granule, granule));
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
  CHECK_DRIVER(cuMemMap(base + 2 * granule, granule, 0, memory, 0));
  CHECK_DRIVER(cuMemRelease(memory));
  CHECK_DRIVER(cuMemSetAccess(base + 2 * granule, granule, &access, 1));
  CHECK(cudaMemset(reinterpret_cast<void*>(base + 2 * granule), 0, granule));
  add_and_check(base + 2 * granule, granule, 7, 0);
  int value = 0;
  CHECK(cudaMemcpy(&value, reinterpret_cast<void*>(base + granule), sizeof(value), cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 3 + static_cast<int>(granule / sizeof(int)));
  for (size_t i = 0; i < kPieces; ++i) CHECK_DRIVER(cuMemUnmap(base + i * granule, granule));
  CHECK_DRIVER(cuMemAddressFree(base, 64 * granule));
}

// The same memory at two addresses.
static void twice() {
  CUdeviceptr a = 0, b = 0;
  CUmemGenericAllocationHandle memory, found;
  const CUmemAccessDesc access = read_write();
  CHECK_DRIVER(cuMemAddressReserve(&a, granule, granule, 0, 0));
  CHECK_DRIVER(cuMemAddressReserve(&b, granule, granule, 0, 0));
  EXPECT(a != b);
  CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
  for (const CUdeviceptr at : {a, b}) {
    CHECK_DRIVER(cuMemMap(at, granule, 0, memory, 0));
    CHECK_DRIVER(cuMemSetAccess(at, granule, &access, 1));
  }
  CHECK(cudaMemset(reinterpret_cast<void*>(a), 0, granule));
  add_and_check(b, granule, 10, 0);
  std::vector<int> values(granule / sizeof(int));
  CHECK(cudaMemcpy(values.data(), reinterpret_cast<void*>(a), granule, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], 10 + static_cast<int>(i));
  CHECK_DRIVER(cuMemRetainAllocationHandle(&found, reinterpret_cast<void*>(b + 12)));
  EXPECT(found == memory);
  CUmemAllocationProp is{};
  CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&is, memory));
  EXPECT(is.type == CU_MEM_ALLOCATION_TYPE_PINNED && is.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK_DRIVER(cuMemRelease(found));
  CHECK_DRIVER(cuMemUnmap(a, granule));
  CHECK_DRIVER(cuMemUnmap(b, granule));
  // Still there: mapped again it has what it had.
  CHECK_DRIVER(cuMemMap(a, granule, 0, memory, 0));
  CHECK_DRIVER(cuMemSetAccess(a, granule, &access, 1));
  int value = 0;
  CHECK(cudaMemcpy(&value, reinterpret_cast<void*>(a + 40), sizeof(value), cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 20);
  CHECK_DRIVER(cuMemUnmap(a, granule));
  CHECK_DRIVER(cuMemRelease(memory));
  CHECK_DRIVER(cuMemAddressFree(a, granule));
  CHECK_DRIVER(cuMemAddressFree(b, granule));
}

static void refusals() {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle memory;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&base, 0, 0, 0, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, granule / 2, &prop, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, 0, &prop, 0));
  CHECK_DRIVER(cuMemAddressReserve(&base, 4 * granule, 0, 0, 0));
  CHECK_DRIVER(cuMemCreate(&memory, 2 * granule, &prop, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + granule / 2, 2 * granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 3 * granule, 0, memory, 0));
  CHECK_DRIVER(cuMemMap(base, 2 * granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + granule, 2 * granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, granule));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + granule, 2 * granule));
  CHECK_DRIVER(cuMemUnmap(base + 2 * granule, granule));  // where nothing is
  EXPECT(cudaFree(reinterpret_cast<void*>(base)) != cudaSuccess);
  cudaGetLastError();
  CHECK_DRIVER(cuMemUnmap(base, 3 * granule));
  CHECK_DRIVER(cuMemRelease(memory));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 2 * granule));
  CHECK_DRIVER(cuMemAddressFree(base, 4 * granule));
}

// Memory counts against the share for as long as it is there, and then no longer.
static void share() {
  const size_t bytes = granule * 256;
  for (int i = 0; i < 60; ++i) {
    CUmemGenericAllocationHandle memory;
    CHECK_DRIVER(cuMemCreate(&memory, bytes, &prop, 0));
    CHECK_DRIVER(cuMemRelease(memory));
  }
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  CUmemGenericAllocationHandle memory;
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&memory, (total / granule + 1) * granule, &prop, 0));
}

static void prepare() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  int supported = 0;
  CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  EXPECT(supported == 1);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t recommended = 0;
  CHECK_DRIVER(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_DRIVER(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT(granule != 0 && recommended % granule == 0);
}

template <void (*part)()>
static void prepared() {
  prepare();
  part();
}

int main() {
  return run_parts({
      {"pieces", prepared<pieces>},
      {"twice", prepared<twice>},
      {"refusals", prepared<refusals>},
      {"share", prepared<share>},
  });
}
