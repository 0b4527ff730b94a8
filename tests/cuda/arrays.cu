// nvcc: -lcuda
// CUDA arrays: what they say of themselves, and copies of every shape from and to them.
#include <cstring>
#include <vector>

#include "check.h"
#include "parts.cuh"

static std::vector<float> numbers(size_t count, float first) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = first + static_cast<float>(i % 100003);
  return made;
}

static void descriptors() {
  cudaArray_t array;
  const auto format = cudaCreateChannelDesc<float2>();
  CHECK(cudaMallocArray(&array, &format, 200, 37));
  cudaChannelFormatDesc is;
  cudaExtent extent;
  unsigned flags = 77;
  CHECK(cudaArrayGetInfo(&is, &extent, &flags, array));
  EXPECT(is.x == 32 && is.y == 32 && is.z == 0 && is.w == 0 && is.f == cudaChannelFormatKindFloat);
  EXPECT(extent.width == 200 && extent.height == 37 && extent.depth == 0 && flags == 0);
  CUDA_ARRAY_DESCRIPTOR flat;
  CHECK_DRIVER(cuArrayGetDescriptor(&flat, reinterpret_cast<CUarray>(array)));
  EXPECT(flat.Width == 200 && flat.Height == 37 && flat.Format == CU_AD_FORMAT_FLOAT && flat.NumChannels == 2);
  CHECK(cudaFreeArray(array));
  CHECK(cudaFreeArray(nullptr));

  CUarray made;
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = 16;
  wanted.Height = 8;
  wanted.Depth = 5;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT16;
  wanted.NumChannels = 4;
  wanted.Flags = CUDA_ARRAY3D_LAYERED;
  CHECK_DRIVER(cuArray3DCreate(&made, &wanted));
  CUDA_ARRAY3D_DESCRIPTOR found;
  CHECK_DRIVER(cuArray3DGetDescriptor(&found, made));
  EXPECT(found.Width == 16 && found.Height == 8 && found.Depth == 5 && found.NumChannels == 4);
  EXPECT(found.Format == CU_AD_FORMAT_UNSIGNED_INT16 && found.Flags == CUDA_ARRAY3D_LAYERED);
  CHECK_DRIVER(cuArrayDestroy(made));
  wanted.Width = 0;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&made, &wanted));
  wanted.Width = 16;
  wanted.NumChannels = 3;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&made, &wanted));
}

static void rectangles() {
  constexpr size_t kWidth = 120, kHeight = 50, kPitch = 130;
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t a, b;
  CHECK(cudaMallocArray(&a, &format, kWidth, kHeight));
  CHECK(cudaMallocArray(&b, &format, kWidth, kHeight));
  const auto from = numbers(kPitch * kHeight, 1);
  std::vector<float> to(kPitch * kHeight, -1), zero(kWidth * kHeight, 0);
  CHECK(cudaMemcpy2DToArray(b, 0, 0, zero.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2DToArray(a, 0, 0, from.data(), kPitch * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2DArrayToArray(b, 8 * 4, 3, a, 5 * 4, 2, 100 * 4, 40, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy2DFromArray(to.data(), kPitch * 4, b, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToHost));
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kPitch; ++x) {
      const bool copied = x >= 8 && x < 108 && y >= 3 && y < 43;
      const float wanted = x >= kWidth ? -1 : copied ? from[(y - 1) * kPitch + x - 3] : 0;
      EXPECT_EQ(to[y * kPitch + x], wanted);
    }
  }
  // Pinned memory, on a stream; pitched device memory in between.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  float *pinned, *device;
  size_t pitch;
  CHECK(cudaMallocHost(&pinned, 2 * kWidth * kHeight * 4));
  CHECK(cudaMallocPitch(&device, &pitch, kWidth * 4, kHeight));
  for (size_t i = 0; i < kWidth * kHeight; ++i) pinned[i] = static_cast<float>(i) * 2;
  CHECK(cudaMemcpy2DToArrayAsync(a, 0, 0, pinned, kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpy2DFromArrayAsync(device, pitch, a, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaMemcpy2DAsync(pinned + kWidth * kHeight, kWidth * 4, device, pitch, kWidth * 4, kHeight,
                          cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(std::memcmp(pinned, pinned + kWidth * kHeight, kWidth * kHeight * 4) == 0);
  EXPECT_CODE(cudaErrorInvalidValue,
              cudaMemcpy2DToArray(a, 4, 0, from.data(), kPitch * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  EXPECT_CODE(cudaErrorInvalidValue,
              cudaMemcpy2DFromArray(to.data(), kPitch * 4, a, 0, 1, kWidth * 4, kHeight, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
  CHECK(cudaFreeArray(a));
  CHECK(cudaFreeArray(b));
}

// More than any staging buffer, rows longer than its pieces.
static void large() {
  for (const size_t width : {3000u, 30000u}) {
    const size_t height = 9000000 / width;
    const auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, width, height));
    const auto from = numbers(width * height, 3);
    std::vector<float> to(width * height);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, from.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DFromArray(to.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    EXPECT(from == to);
    CHECK(cudaFreeArray(array));
  }
}

static void boxes(unsigned flags) {
  constexpr size_t kX = 40, kY = 30, kZ = 12;
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(kX, kY, kZ), flags));
  auto from = numbers(kX * kY * kZ, 9);
  std::vector<float> to(kX * kY * kZ, 0);
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(from.data(), kX * 4, kX, kY);
  in.dstArray = array;
  in.extent = make_cudaExtent(kX, kY, kZ);
  in.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&in));
  cudaPitchedPtr device;
  CHECK(cudaMalloc3D(&device, make_cudaExtent(kX * 4, kY, kZ)));
  CHECK(cudaMemset3D(device, 0, make_cudaExtent(kX * 4, kY, kZ)));
  cudaMemcpy3DParms middle{};
  middle.srcArray = array;
  middle.srcPos = make_cudaPos(3, 4, 5);
  middle.dstPtr = device;
  middle.dstPos = make_cudaPos(0, 0, 0);
  middle.extent = make_cudaExtent(30, 20, 6);
  middle.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3D(&middle));
  cudaMemcpy3DParms out{};
  out.srcPtr = device;
  out.dstPtr = make_cudaPitchedPtr(to.data(), kX * 4, kX, kY);
  out.extent = make_cudaExtent(kX * 4, kY, kZ);
  out.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3DAsync(&out));
  CHECK(cudaDeviceSynchronize());
  for (size_t z = 0; z < kZ; ++z)
    for (size_t y = 0; y < kY; ++y)
      for (size_t x = 0; x < kX; ++x) {
        const bool copied = x < 30 && y < 20 && z < 6;
        EXPECT_EQ(to[(z * kY + y) * kX + x], copied ? from[((z + 5) * kY + y + 4) * kX + x + 3] : 0.0f);
      }
  CHECK(cudaFree(device.ptr));
  CHECK(cudaFreeArray(array));
}

static void one_dimension() {
  constexpr size_t kCount = 1000;
  CHECK(cudaFree(nullptr));
  CUDA_ARRAY_DESCRIPTOR wanted{};
  wanted.Width = kCount;
  wanted.Format = CU_AD_FORMAT_SIGNED_INT32;
  wanted.NumChannels = 1;
  CUarray a, b;
  CHECK_DRIVER(cuArrayCreate(&a, &wanted));
  CHECK_DRIVER(cuArrayCreate(&b, &wanted));
  std::vector<int> from(kCount), to(kCount, 0);
  for (size_t i = 0; i < kCount; ++i) from[i] = static_cast<int>(i * 7);
  CUdeviceptr device;
  CHECK_DRIVER(cuMemAlloc(&device, kCount * 4));
  CHECK_DRIVER(cuMemcpyHtoA(a, 0, from.data(), kCount * 4));
  CHECK_DRIVER(cuMemcpyAtoA(b, 0, a, 400, 600 * 4));
  CHECK_DRIVER(cuMemcpyHtoA(b, 600 * 4, from.data(), 400 * 4));
  CHECK_DRIVER(cuMemcpyAtoD(device + 40, b, 0, 900 * 4));
  CHECK_DRIVER(cuMemcpyDtoA(b, 80, device + 40, 900 * 4));
  CHECK_DRIVER(cuMemcpyAtoH(to.data(), b, 80, 900 * 4));
  for (size_t i = 0; i < 900; ++i) EXPECT_EQ(to[i], i < 600 ? from[i + 100] : from[i - 600]);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(a, 4, from.data(), kCount * 4));
  CHECK_DRIVER(cuMemFree(device));
  CHECK_DRIVER(cuArrayDestroy(a));
  CHECK_DRIVER(cuArrayDestroy(b));
}

static void mipmaps() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(64, 32, 0), 4));
  for (unsigned level = 0; level < 4; ++level) {
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    cudaExtent extent;
    cudaChannelFormatDesc is;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&is, &extent, &flags, array));
    EXPECT(extent.width == 64u >> level && extent.height == 32u >> level);
    const size_t count = extent.width * extent.height;
    const auto from = numbers(count, static_cast<float>(level) * 1000);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, from.data(), extent.width * 4, extent.width * 4, extent.height,
                              cudaMemcpyHostToDevice));
  }
  for (unsigned level = 0; level < 4; ++level) {
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    const size_t width = 64 >> level, height = 32 >> level;
    std::vector<float> to(width * height);
    CHECK(cudaMemcpy2DFromArray(to.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    EXPECT(to == numbers(width * height, static_cast<float>(level) * 1000));
  }
  cudaArray_t none;
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetMipmappedArrayLevel(&none, mipmap, 4));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

// Memory of arrays is the share's, and comes back.
static void again_and_again() {
  const auto format = cudaCreateChannelDesc<float>();
  for (int i = 0; i < 100; ++i) {
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, 8192, 8192));
    CHECK(cudaFreeArray(array));
  }
}

int main() {
  return run_parts({
      {"descriptors", descriptors},
      {"rectangles", rectangles},
      {"large", large},
      {"boxes", [] { boxes(0); }},
      {"layers", [] { boxes(cudaArrayLayered); }},
      {"one dimension", one_dimension},
      {"mipmaps", mipmaps},
      {"again and again", again_and_again},
  });
}
