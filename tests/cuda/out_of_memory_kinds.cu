// nvcc: -lcuda
// More memory than there is, asked for in every way that there is: refused with CUDA's code, and nothing is lost by it.
// alone: yes
#include "bad_input.cuh"

constexpr size_t kHuge = size_t{1} << 46, kAbsurd = ~size_t{0} / 2;

static void plain(size_t bytes) {
  CUdeviceptr address;
  void* host;
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, bytes));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, bytes, 0));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocHost(&host, bytes));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&address, bytes, nullptr));
  CHECK_DRIVER(cuStreamSynchronize(nullptr));
}

static void pitched() {
  CUdeviceptr address;
  size_t pitch;
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&address, &pitch, 1 << 20, 1 << 30, 4));
  EXPECT_ONE_OF(cuMemAllocPitch(&address, &pitch, ~size_t{0} / 4, 1 << 20, 4), CUDA_ERROR_OUT_OF_MEMORY,
                CUDA_ERROR_INVALID_VALUE);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&address, &pitch, 100, 100, 5));
}

static void pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  props.maxSize = 64 << 20;
  CUmemoryPool pool;
  CUdeviceptr fits, address;
  CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&fits, 16 << 20, pool, nullptr));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&address, 128 << 20, pool, nullptr));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&address, kHuge, pool, nullptr));
  CHECK_DRIVER(cuMemsetD8Async(fits, 1, 16 << 20, nullptr));
  CHECK_DRIVER(cuMemFreeAsync(fits, nullptr));
  CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void mapped() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  size_t granularity;
  const CUresult there = cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (there == CUDA_ERROR_NOT_SUPPORTED) return;  // this device has none
  CHECK_DRIVER(there);
  CUmemGenericAllocationHandle memory;
  CUdeviceptr address;
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&memory, kHuge, &prop, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, granularity + 1, &prop, 0));
  EXPECT_ONE_OF(cuMemAddressReserve(&address, size_t{1} << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY,
                CUDA_ERROR_INVALID_VALUE);
}

static void arrays() {
  CUDA_ARRAY3D_DESCRIPTOR huge{16384, 16384, 16384, CU_AD_FORMAT_FLOAT, 4, 0};
  CUarray array;
  const CUresult refused = cuArray3DCreate(&array, &huge);
  if (refused != CUDA_ERROR_NOT_SUPPORTED) EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, refused);
  huge.Width = size_t{1} << 40;
  EXPECT_REFUSED(cuArray3DCreate(&array, &huge));
}

static void graph_memory() {
  CUgraph graph;
  CUgraphNode node;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = kHuge;
  CUresult result = cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
  CUgraphExec exec;
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&exec, graph, 0);  // addresses alone may be had
  if (result == CUDA_SUCCESS) {
    result = cuGraphLaunch(exec, nullptr);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
    CHECK_DRIVER(cuGraphExecDestroy(exec));
  }
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, result);
  CHECK_DRIVER(cuGraphDestroy(graph));
}

__global__ void allocate_until_null(int* count) {
  while (malloc(1 << 20)) ++*count;
}

static void inside_kernels() {
  EXPECT_ONE_OF(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, kHuge), CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE);
  int *count, got = 0;
  CHECK(cudaMallocManaged(&count, sizeof *count));
  *count = 0;
  allocate_until_null<<<1, 1>>>(count);
  CHECK(cudaDeviceSynchronize());
  got = *count;
  EXPECT(got >= 1 && got <= 8);  // of the 8 MiB that there are by default
  CHECK(cudaFree(count));
}

int main() {
  CHECK(cudaFree(nullptr));
  size_t before, after, total;
  CHECK_DRIVER(cuMemGetInfo(&before, &total));
  for (const size_t bytes : {kHuge, kAbsurd}) plain(bytes);
  CUdeviceptr address;
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, total + 1));
  pitched();
  pool();
  mapped();
  arrays();
  graph_memory();
  CHECK_DRIVER(cuCtxSynchronize());
  CHECK_DRIVER(cuMemGetInfo(&after, &total));
  std::printf("free before %zu, after %zu\n", before, after);
  EXPECT(after + (4 << 20) >= before);
  inside_kernels();
  real_work();
  return passed();
}
