// nvcc: -lcuda
// Stream-ordered memory on the host's side: pools of pinned memory and of managed memory (CUDA 13).
#include <cstring>
#include <vector>

#include "check.h"

constexpr int kInts = 1 << 18;
constexpr size_t kBytes = kInts * sizeof(int);

__global__ void add(int* data, int value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += value;
}

// Writes when the word has changed.
__global__ void write_late(volatile int* go, int* data, int value, int n) {
  while (*go == 0) {
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = value;
}

static CUmemPoolProps props_of(CUmemLocationType where, CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED) {
  CUmemPoolProps props{};
  props.allocType = type;
  props.location.type = where;
  return props;
}

static CUmemoryPool make(const CUmemPoolProps& props) {
  CUmemoryPool pool;
  CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (props.allocType == CU_MEM_ALLOCATION_TYPE_PINNED) CHECK_DRIVER(cuMemPoolSetAccess(pool, &access, 1));
  return pool;
}

static int* allocate(CUmemoryPool pool, CUstream stream, size_t bytes = kBytes) {
  CUdeviceptr address = 0;
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
  return reinterpret_cast<int*>(address);
}

static CUdeviceptr number(const int* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

static unsigned long long attribute_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = ~0ull;
  CHECK_DRIVER(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

// What it was made with. Drivers of CUDA 13.0 do not tell.
static void properties(CUmemoryPool pool, CUmemLocationType where, CUmemAllocationType type) {
  constexpr auto kType = static_cast<CUmemPool_attribute>(9), kWhere = static_cast<CUmemPool_attribute>(12);
  int value = 0;
  if (cuMemPoolGetAttribute(pool, kType, &value) != CUDA_SUCCESS) return;
  EXPECT_EQ(value, static_cast<int>(type));
  CHECK_DRIVER(cuMemPoolGetAttribute(pool, kWhere, &value));
  EXPECT_EQ(value, static_cast<int>(where));
}

// Both sides write and read it, at one address.
static void use(CUmemoryPool pool, CUstream stream, bool managed) {
  int* const data = allocate(pool, stream);
  CHECK_DRIVER(cuStreamSynchronize(stream));
  for (int i = 0; i < kInts; ++i) data[i] = i;
  add<<<kInts / 256, 256, 0, stream>>>(data, 5, kInts);
  std::vector<int> copied(kInts);
  CHECK_DRIVER(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(copied.data()), number(data), kBytes, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  bool right = true;
  for (int i = 0; i < kInts; ++i) right = right && data[i] == i + 5 && copied[i] == i + 5;
  EXPECT(right);
  CUmemoryPool of = nullptr;
  unsigned type = 0, is_managed = 2;
  CHECK_DRIVER(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, number(data + 7)));
  CHECK_DRIVER(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, number(data + 7)));
  EXPECT(of == pool);
  EXPECT_EQ(is_managed, unsigned{managed});
  if (!managed) {
    CHECK_DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number(data + 7)));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  }
  CHECK_DRIVER(cuMemFreeAsync(number(data), stream));
  EXPECT(cuMemFreeAsync(number(data), stream) != CUDA_SUCCESS);
  CHECK_DRIVER(cuStreamSynchronize(stream));
}

// What was freed is used again, and given back only when the program says so.
static void reuse(CUmemoryPool pool, CUstream stream, bool managed) {
  cuuint64_t all = ~0ull;
  CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  EXPECT_EQ(attribute_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), all);
  for (int i = 0; i < 100; ++i) {
    int* const data = allocate(pool, stream, 4 << 20);
    add<<<1, 32, 0, stream>>>(data, 1, 32);
    CHECK_DRIVER(cuMemFreeAsync(number(data), stream));
  }
  CHECK_DRIVER(cuStreamSynchronize(stream));
  EXPECT_EQ(attribute_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0ull);
  const unsigned long long high = attribute_of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
  EXPECT(high >= 4ull << 20 && high < 400ull << 20);
  if (!managed) EXPECT(attribute_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4ull << 20);
  cuuint64_t reset = 0, wrong = 1;
  CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &reset));
  EXPECT(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &wrong) == CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute_of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0ull);
  CHECK_DRIVER(cuMemPoolTrimTo(pool, 0));
  if (!managed) EXPECT_EQ(attribute_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0ull);
}

// What a stream may still write is nobody else's.
static void order(CUmemoryPool pool, CUstream stream, int* go) {
  CUstream other;
  CHECK_DRIVER(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  *go = 0;
  int* const first = allocate(pool, stream);
  write_late<<<1, 256, 0, stream>>>(go, first, 1, kInts);
  CHECK_DRIVER(cuMemFreeAsync(number(first), stream));
  int* const second = allocate(pool, other);
  CHECK_DRIVER(cuMemsetD32Async(number(second), 2, kInts, other));
  *reinterpret_cast<volatile int*>(go) = 1;
  CHECK_DRIVER(cuStreamSynchronize(stream));
  CHECK_DRIVER(cuStreamSynchronize(other));
  bool right = true;
  for (int i = 0; i < kInts; ++i) right = right && second[i] == 2;
  EXPECT(right);
  CHECK_DRIVER(cuMemFreeAsync(number(second), other));
  CHECK_DRIVER(cuStreamSynchronize(other));
  CHECK_DRIVER(cuStreamDestroy(other));
}

static void limits(CUstream stream) {
  CUmemPoolProps props = props_of(CU_MEM_LOCATION_TYPE_HOST);
  props.maxSize = 64 << 20;
  CUmemoryPool pool = make(props);
  int* const data = allocate(pool, stream, 48 << 20);
  CUdeviceptr more = 0;
  EXPECT(cuMemAllocFromPoolAsync(&more, 48 << 20, pool, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_DRIVER(cuMemFreeAsync(number(data), stream));
  int* const again = allocate(pool, stream, 48 << 20);
  CHECK_DRIVER(cuMemPoolDestroy(pool));  // what it gave lives on
  add<<<1, 32, 0, stream>>>(again, 0, 32);
  CHECK_DRIVER(cuMemFreeAsync(number(again), stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));

  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT(cuMemPoolCreate(&pool, &props) == CUDA_ERROR_INVALID_VALUE);
  props = props_of(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
  EXPECT(cuMemPoolCreate(&pool, &props) == CUDA_ERROR_INVALID_VALUE);
  props = props_of(CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_MANAGED);
  props.maxSize = 64 << 20;
  EXPECT(cuMemPoolCreate(&pool, &props) == CUDA_ERROR_INVALID_VALUE);
}

static void access() {
  const CUmemPoolProps props = props_of(CU_MEM_LOCATION_TYPE_HOST);
  CUmemoryPool pool;
  CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
  CUmemLocation host{}, device{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccess_flags flags;
  CHECK_DRIVER(cuMemPoolGetAccess(&flags, pool, &host));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_DRIVER(cuMemPoolGetAccess(&flags, pool, &device));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK_DRIVER(cuMemPoolDestroy(pool));
  pool = make(props);
  CHECK_DRIVER(cuMemPoolGetAccess(&flags, pool, &device));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_DRIVER(cuMemPoolDestroy(pool));
}

// Each place has a pool of its own, and who sets another gets it until it goes.
static void current_pools(CUmemLocationType where, CUmemAllocationType type) {
  const CUmemPoolProps props = props_of(where, type);
  CUmemLocation location = props.location;
  CUmemoryPool standard = nullptr, now = nullptr;
  CHECK_DRIVER(cuMemGetDefaultMemPool(&standard, &location, type));
  CHECK_DRIVER(cuMemGetMemPool(&now, &location, type));
  EXPECT(standard && now == standard);
  CUmemoryPool own = make(props);
  CHECK_DRIVER(cuMemSetMemPool(&location, type, own));
  CHECK_DRIVER(cuMemGetMemPool(&now, &location, type));
  EXPECT(now == own);
  if (type == CU_MEM_ALLOCATION_TYPE_PINNED) EXPECT(cuDeviceSetMemPool(0, own) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemPoolDestroy(standard) != CUDA_SUCCESS);
  CHECK_DRIVER(cuMemPoolDestroy(own));
  CHECK_DRIVER(cuMemGetMemPool(&now, &location, type));
  EXPECT(now == standard);
}

static void from_default(CUmemLocationType where, CUmemAllocationType type, CUstream stream) {
  CUmemLocation location{};
  location.type = where;
  CUmemoryPool pool;
  CHECK_DRIVER(cuMemGetDefaultMemPool(&pool, &location, type));
  CUdeviceptr data = 0;
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&data, 100, pool, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  std::memset(reinterpret_cast<void*>(data), 3, 100);
  EXPECT_EQ(reinterpret_cast<unsigned char*>(data)[99], 3);
  CHECK_DRIVER(cuMemFree(data));
}

static void all_of(CUmemLocationType where, CUmemAllocationType type, CUstream stream, int* go) {
  const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  CUmemoryPool pool = make(props_of(where, type));
  properties(pool, where, type);
  use(pool, stream, managed);
  reuse(pool, stream, managed);
  order(pool, stream, go);
  CHECK_DRIVER(cuMemPoolDestroy(pool));
  current_pools(where, type);
  from_default(where, type, stream);
}

int main() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  int pinned = 0;
  CHECK_DRIVER(cuDeviceGetAttribute(&pinned, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
  EXPECT(pinned);
  CUstream stream;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  int* go;
  CHECK(cudaMallocHost(&go, sizeof(int)));
  for (const CUmemLocationType where : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA})
    all_of(where, CU_MEM_ALLOCATION_TYPE_PINNED, stream, go);
  for (const CUmemLocationType where : {CU_MEM_LOCATION_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE,
                                        CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA})
    all_of(where, CU_MEM_ALLOCATION_TYPE_MANAGED, stream, go);
  limits(stream);
  access();
  CHECK(cudaFreeHost(go));
  CHECK_DRIVER(cuStreamDestroy(stream));
  return passed();
}
