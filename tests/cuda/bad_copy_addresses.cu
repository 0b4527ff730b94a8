// nvcc: -lcuda
// Copies and fills at device addresses that are none are refused when they are asked for, in every form; nothing of
// them is left behind.
#include <vector>

#include "bad_input.cuh"

constexpr size_t kBytes = 4 << 20;
static std::vector<char> host(kBytes, 1);

static void refused_synchronous(CUdeviceptr bad, CUdeviceptr good, size_t bytes) {
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(bad, host.data(), bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host.data(), bad, bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(bad, good, bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(good, bad, bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(bad, 0, bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(bad, 0, bytes / 4));
}

static void refused_asynchronous(CUdeviceptr bad, CUdeviceptr good, size_t bytes, void* pinned, CUstream stream) {
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(bad, host.data(), bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host.data(), bad, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(bad, pinned, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(pinned, bad, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(bad, good, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(good, bad, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(bad, 0, bytes, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8Async(bad, 512, 0, 256, bytes / 512, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
}

static void refused_boxes(CUdeviceptr bad, CUdeviceptr good, CUstream stream) {
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = host.data();
  flat.srcPitch = 256;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = bad;
  flat.dstPitch = 512;
  flat.WidthInBytes = 200;
  flat.Height = 30;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DUnaligned(&flat));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(&flat, stream));
  flat.dstDevice = good;
  flat.dstPitch = 100;  // less than a row
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = bad;
  box.srcPitch = 512;
  box.srcHeight = 16;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = host.data();
  box.dstPitch = 256;
  box.dstHeight = 16;
  box.WidthInBytes = 200;
  box.Height = 10;
  box.Depth = 4;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&box));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DAsync(&box, stream));
  box.srcDevice = good;
  box.Depth = 4096;  // behind the end of the allocation
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&box));
  CHECK_DRIVER(cuStreamSynchronize(stream));
}

int main() {
  CHECK(cudaFree(nullptr));
  CUdeviceptr good, freed;
  CUstream stream;
  void* pinned;
  CHECK_DRIVER(cuMemAlloc(&good, kBytes));
  CHECK_DRIVER(cuMemAlloc(&freed, kBytes));
  CHECK_DRIVER(cuMemAllocHost(&pinned, kBytes));
  CHECK_DRIVER(cuMemFree(freed));
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr behind = good + kBytes - 4096;  // starts inside, ends outside
  // Addresses that nobody ever had, beside those that somebody has, and those that somebody had; few bytes and many.
  for (const CUdeviceptr bad : {kWild, good + (CUdeviceptr{1} << 33), freed, behind}) {
    for (const size_t bytes : {size_t{8192}, kBytes}) {
      refused_synchronous(bad, good, bytes);
      refused_asynchronous(bad, good, bytes, pinned, stream);
      refused_asynchronous(bad, good, bytes, pinned, nullptr);
    }
    if (bad != behind) refused_boxes(bad, good, stream);
  }
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(0, host.data(), 16));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(good, nullptr, 16));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(nullptr, good, 16));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(good, host.data(), ~size_t{0}));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(good + 1, host.data(), ~size_t{0} - good));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(good + 2, 0, 4));  // not aligned
  CHECK_DRIVER(cuMemcpyHtoD(good, host.data(), 0));
  CHECK_DRIVER(cuMemFreeHost(pinned));
  CHECK_DRIVER(cuMemFree(good));
  CHECK_DRIVER(cuStreamDestroy(stream));
  real_work();
  return passed();
}
