// Surfaces: kernels write arrays, which copies, textures and other surfaces then read.
#include <vector>

#include "check.h"
#include "parts.cuh"

constexpr int kWidth = 64, kHeight = 24, kDepth = 6;

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeArray;
  what.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &what));
  return surface;
}

__global__ void write_plane(cudaSurfaceObject_t surface, float factor) {
  const int x = threadIdx.x, y = blockIdx.x;
  surf2Dwrite(factor * (y * kWidth + x), surface, x * static_cast<int>(sizeof(float)), y);
}

__global__ void add_plane(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
  const int x = threadIdx.x * static_cast<int>(sizeof(float)), y = blockIdx.x;
  surf2Dwrite(surf2Dread<float>(from, x, y) + surf2Dread<float>(to, x, y), to, x, y);
}

__global__ void read_texture(cudaTextureObject_t texture, float* to) {
  to[blockIdx.x * kWidth + threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}

static std::vector<float> content(cudaArray_t array, int width, int height) {
  std::vector<float> values(width * height);
  CHECK(cudaMemcpy2DFromArray(values.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
  return values;
}

static void planes() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t a, b;
  CHECK(cudaMallocArray(&a, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  CHECK(cudaMallocArray(&b, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  const cudaSurfaceObject_t from = surface_of(a), to = surface_of(b);
  write_plane<<<kHeight, kWidth>>>(from, 1);
  write_plane<<<kHeight, kWidth>>>(to, 10);
  add_plane<<<kHeight, kWidth>>>(from, to);
  const std::vector<float> sum = content(b, kWidth, kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(sum[i], 11.0f * i);
  cudaResourceDesc found{};
  CHECK(cudaGetSurfaceObjectResourceDesc(&found, to));
  EXPECT(found.resType == cudaResourceTypeArray && found.res.array.array == b);

  cudaTextureDesc how{};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &found, &how, nullptr));
  float* results;
  CHECK(cudaMalloc(&results, kWidth * kHeight * 4));
  read_texture<<<kHeight, kWidth>>>(texture, results);
  std::vector<float> read(kWidth * kHeight);
  CHECK(cudaMemcpy(read.data(), results, kWidth * kHeight * 4, cudaMemcpyDeviceToHost));
  EXPECT(read == sum);
  CHECK(cudaFree(results));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaDestroySurfaceObject(from));
  CHECK(cudaDestroySurfaceObject(to));
  CHECK(cudaFreeArray(a));
  CHECK(cudaFreeArray(b));
}

__global__ void write_box(cudaSurfaceObject_t surface, bool layered) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  const int value = (z * kHeight + y) * kWidth + x;
  if (layered) {
    surf2DLayeredwrite(value, surface, x * 4, y, z);
  } else {
    surf3Dwrite(value, surface, x * 4, y, z);
  }
}

static void boxes(bool layered) {
  const auto format = cudaCreateChannelDesc<int>();
  cudaArray_t array;
  const cudaExtent extent = make_cudaExtent(kWidth, kHeight, kDepth);
  CHECK(cudaMalloc3DArray(&array, &format, extent, cudaArraySurfaceLoadStore | (layered ? cudaArrayLayered : 0)));
  const cudaSurfaceObject_t surface = surface_of(array);
  write_box<<<dim3(kHeight, kDepth), kWidth>>>(surface, layered);
  std::vector<int> values(kWidth * kHeight * kDepth);
  cudaMemcpy3DParms out{};
  out.srcArray = array;
  out.dstPtr = make_cudaPitchedPtr(values.data(), kWidth * 4, kWidth, kHeight);
  out.extent = extent;
  out.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&out));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int>(i));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}

static void levels() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(2 * kWidth, 2 * kHeight, 0), 2,
                                 cudaArraySurfaceLoadStore));
  cudaArray_t level;
  CHECK(cudaGetMipmappedArrayLevel(&level, mipmap, 1));
  const cudaSurfaceObject_t surface = surface_of(level);
  write_plane<<<kHeight, kWidth>>>(surface, 3);
  const std::vector<float> values = content(level, kWidth, kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(values[i], 3.0f * i);
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

int main() {
  return run_parts({
      {"planes", planes},
      {"boxes", [] { boxes(false); }},
      {"layers", [] { boxes(true); }},
      {"levels", levels},
  });
}
