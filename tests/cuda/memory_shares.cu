// nvcc: -lcuda
// Every kind of memory counts against the share: up to it and no further, with the right error, and what was freed can
// be had again. On a whole GPU, which others use too, it is only allocated and freed.
// alone: yes
#include <functional>
#include <string>
#include <vector>

#include "check.h"

static size_t share = 0, block = 0;
static bool is_share = false;  // as opposed to a whole GPU
static CUcontext context;
static CUdevice device;

__global__ void put(int* at, int value) { *at = value; }

static size_t free_now() {
  size_t left = 0, all = 0;
  CHECK(cudaMemGetInfo(&left, &all));
  EXPECT_EQ(all, share);
  return left;
}

static void expect_free(const char* what, size_t wanted) {
  const size_t left = free_now();
  if (!is_share || left == wanted) return;
  std::printf("%s: %zu bytes are free, expected %zu\n", what, left, wanted);
  std::exit(1);
}

// Nothing is lost: kernels run, memory can be had.
static void works() {
  int *at = nullptr, got = 0;
  CHECK(cudaMalloc(&at, sizeof(int)));
  put<<<1, 1>>>(at, 7);
  CHECK(cudaMemcpy(&got, at, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 7);
  CHECK(cudaFree(at));
  CHECK(cudaGetLastError());
}

// One kind of memory. `take` allocates about `block` bytes and says what came of it; `give_back` frees all of it.
static void fill(const char* kind, const std::function<int()>& take, const std::function<void()>& give_back) {
  const int first = take();
  if (first == CUDA_ERROR_NOT_SUPPORTED) {
    cudaGetLastError();
    return;
  }
  EXPECT_CODE(CUDA_SUCCESS, first);
  give_back();
  const size_t before = free_now();
  for (int round = 0; round < 2; ++round) {
    size_t taken = 0;
    int code = CUDA_SUCCESS;
    const size_t most = is_share ? 12 : 1;
    while (taken < most && (code = take()) == CUDA_SUCCESS) ++taken;
    std::printf("%s: %zu blocks of %zu MiB, then code %d\n", kind, taken, block >> 20, code);
    cudaGetLastError();
    if (is_share) {
      EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, code);
      EXPECT(taken >= 4 && taken <= 8);
      EXPECT(free_now() <= before - taken * block);
    }
    give_back();
    expect_free(kind, before);
    works();
  }
}

static void plain() {
  std::vector<void*> blocks;
  const auto give_back = [&] {
    for (void* each : blocks) CHECK(cudaFree(each));
    blocks.clear();
  };
  const auto keep = [&](void* memory, cudaError_t error) {
    if (error == cudaSuccess) blocks.push_back(memory);
    return static_cast<int>(error);
  };
  fill(
      "plain",
      [&] {
        void* memory = nullptr;
        const cudaError_t error = cudaMalloc(&memory, block);
        return keep(memory, error);
      },
      give_back);
  fill(
      "pitched",
      [&] {
        void* memory = nullptr;
        size_t pitch = 0;
        const cudaError_t error = cudaMallocPitch(&memory, &pitch, 1000, block / 1024 + 1);
        return keep(memory, error);
      },
      give_back);
}

// Managed memory may be more than the share: what finds no room stays in the program's memory, where kernels use it.
static void managed_beyond(std::vector<void*>* blocks) {
  constexpr int kBlocks = 8, kFit = 4;
  void* filler = nullptr;
  CHECK(cudaMalloc(&filler, free_now() - kFit * block));
  const size_t before = free_now();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      int* memory = nullptr;
      CHECK(cudaMallocManaged(&memory, block));
      blocks->push_back(memory);
      put<<<1, 1>>>(memory, i);
    }
    EXPECT(free_now() < 2 * block);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(*static_cast<int*>((*blocks)[static_cast<size_t>(i)]), i);
    for (void* each : *blocks) CHECK(cudaFree(each));
    blocks->clear();
    expect_free("managed", before);
  }
  CHECK(cudaFree(filler));
}

// A large share is filled with other memory first, because the program has less.
static void managed() {
  if (!is_share) return;
  const size_t whole = block, left = free_now(), room = size_t{512} << 20;
  void* filler = nullptr;
  if (left > 2 * room) {
    CHECK(cudaMalloc(&filler, left - room));
    block = room / 8 >> 21 << 21;
  }
  std::vector<void*> blocks;
  int concurrent = 0;
  CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  if (!concurrent) managed_beyond(&blocks);
  if (concurrent)
    fill(
        "managed",
        [&] {
          void* memory = nullptr;
          const cudaError_t error = cudaMallocManaged(&memory, block);
          if (error == cudaSuccess) blocks.push_back(memory);
          return static_cast<int>(error);
        },
        [&] {
          for (void* each : blocks) CHECK(cudaFree(each));
          blocks.clear();
        });
  if (filler) CHECK(cudaFree(filler));
  block = whole;
}

static void pools() {
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t own, usual;
  CHECK(cudaMemPoolCreate(&own, &props));
  CHECK(cudaDeviceGetDefaultMemPool(&usual, 0));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (cudaMemPool_t pool : {usual, own}) {
    std::vector<void*> blocks;
    fill(
        pool == own ? "own pool" : "default pool",
        [&] {
          void* memory = nullptr;
          const cudaError_t error = cudaMallocFromPoolAsync(&memory, block, pool, stream);
          if (error == cudaSuccess) blocks.push_back(memory);
          return static_cast<int>(error);
        },
        [&] {
          for (void* each : blocks) CHECK(cudaFreeAsync(each, stream));
          blocks.clear();
          CHECK(cudaStreamSynchronize(stream));
          CHECK(cudaMemPoolTrimTo(pool, 0));
        });
  }
  // What a pool keeps counts, until it is trimmed or somebody needs it.
  unsigned long long keep_all = ~0ull;
  void* memory = nullptr;
  const size_t before = free_now();
  CHECK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &keep_all));
  for (const bool trim : {true, false}) {
    CHECK(cudaMallocFromPoolAsync(&memory, 2 * block, own, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (is_share) EXPECT(free_now() <= before - 2 * block);
    if (trim) {
      CHECK(cudaMemPoolTrimTo(own, 0));
      expect_free("a trimmed pool", before);
    } else if (is_share) {
      CHECK(cudaMalloc(&memory, before - block));
      CHECK(cudaFree(memory));
    }
  }
  CHECK(cudaMemPoolTrimTo(own, 0));
  expect_free("pools", before);
  CHECK(cudaMemPoolDestroy(own));
  CHECK(cudaStreamDestroy(stream));
}

static void modules() {
  const std::string ptx = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 16 .b8 room[" +
                          std::to_string(block) + "];\n";
  std::vector<CUmodule> loaded;
  fill(
      "globals of modules",
      [&] {
        CUmodule module = nullptr;
        const CUresult result = cuModuleLoadData(&module, ptx.c_str());
        if (result == CUDA_SUCCESS) loaded.push_back(module);
        return result;
      },
      [&] {
        for (CUmodule each : loaded) CHECK_DRIVER(cuModuleUnload(each));
        loaded.clear();
      });
}

static void contexts() {
  const size_t before = free_now();
  CUcontext other = nullptr;
  CHECK_DRIVER(cuCtxCreate(&other, nullptr, 0, device));
  CHECK_DRIVER(cuCtxSetCurrent(context));
  if (is_share) EXPECT(free_now() < before);
  CHECK_DRIVER(cuCtxDestroy(other));
  CHECK_DRIVER(cuCtxSetCurrent(context));
  expect_free("contexts", before);
}

static void arrays() {
  CUDA_ARRAY3D_DESCRIPTOR asked{};
  asked.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  asked.NumChannels = 4;
  asked.Width = 4096;
  asked.Height = (block >> 20) / 8 * 8;
  asked.Depth = 16;  // a row of all layers is 1 MiB
  if (asked.Height == 0 || asked.Height > 16384) return;
  const size_t whole = block;
  block = asked.Height << 20;
  std::vector<CUarray> made;
  fill(
      "arrays",
      [&] {
        CUarray array = nullptr;
        const CUresult result = cuArray3DCreate(&array, &asked);
        if (result == CUDA_SUCCESS) made.push_back(array);
        return result;
      },
      [&] {
        for (CUarray each : made) CHECK_DRIVER(cuArrayDestroy(each));
        made.clear();
      });
  std::vector<CUmipmappedArray> mipmaps;
  fill(
      "mipmapped arrays",
      [&] {
        CUmipmappedArray mipmap = nullptr;
        const CUresult result = cuMipmappedArrayCreate(&mipmap, &asked, 1);
        if (result == CUDA_SUCCESS) mipmaps.push_back(mipmap);
        return result;
      },
      [&] {
        for (CUmipmappedArray each : mipmaps) CHECK_DRIVER(cuMipmappedArrayDestroy(each));
        mipmaps.clear();
      });
  block = whole;
}

static void physical() {
  int supported = 0;
  CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
  if (!supported) return;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  std::vector<CUmemGenericAllocationHandle> made;
  fill(
      "physical memory",
      [&] {
        CUmemGenericAllocationHandle memory = 0;
        const CUresult result = cuMemCreate(&memory, block, &prop, 0);
        if (result == CUDA_SUCCESS) made.push_back(memory);
        return result;
      },
      [&] {
        for (CUmemGenericAllocationHandle each : made) CHECK_DRIVER(cuMemRelease(each));
        made.clear();
      });
}

int main() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  works();  // loads the program's own code
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  size_t left = 0;
  CHECK(cudaMemGetInfo(&left, &share));
  size_t total = 0;
  CHECK_DRIVER(cuDeviceTotalMem(&total, device));
  EXPECT_EQ(total, share);
  is_share = share < (size_t{64} << 30);
  block = (is_share ? left / 8 : size_t{256} << 20) >> 21 << 21;
  plain();
  managed();
  pools();
  modules();
  contexts();
  arrays();
  physical();
  expect_free("in the end", left);
  works();
  return passed();
}
