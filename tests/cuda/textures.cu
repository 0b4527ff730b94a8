// Texture objects: every kind of resource, address modes, filters, views, and what they say of themselves.
#include <vector>

#include "check.h"
#include "parts.cuh"

constexpr int kWidth = 32, kHeight = 16, kDepth = 8;

static cudaTextureDesc sampler(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool normalized) {
  cudaTextureDesc made{};
  for (cudaTextureAddressMode& dimension : made.addressMode) dimension = mode;
  made.filterMode = filter;
  made.readMode = cudaReadModeElementType;
  made.normalizedCoords = normalized;
  return made;
}

static cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc& how) {
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeArray;
  what.res.array.array = array;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
  return texture;
}

static float *results, host[kWidth * kHeight * kDepth];

static void fetch_results() {
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(host, results, sizeof(host), cudaMemcpyDeviceToHost));
}

static cudaArray_t plane(float scale) {
  std::vector<float> values(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) values[i] = static_cast<float>(i) * scale;
  cudaArray_t array;
  const auto format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  return array;
}

__global__ void read_linear(cudaTextureObject_t texture, float* to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = tex1Dfetch<float>(texture, count - 1 - i);
}

static void linear() {
  constexpr int kCount = 512;
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) * 1.5f;
  float* device;
  CHECK(cudaMalloc(&device, kCount * 4));
  CHECK(cudaMemcpy(device, values.data(), kCount * 4, cudaMemcpyHostToDevice));
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeLinear;
  what.res.linear.devPtr = device;
  what.res.linear.desc = cudaCreateChannelDesc<float>();
  what.res.linear.sizeInBytes = kCount * 4;
  const cudaTextureDesc how = sampler(cudaAddressModeClamp, cudaFilterModePoint, false);
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
  read_linear<<<2, 256>>>(texture, results, kCount);
  fetch_results();
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(host[i], values[kCount - 1 - i]);
  cudaResourceDesc found{};
  CHECK(cudaGetTextureObjectResourceDesc(&found, texture));
  EXPECT(found.resType == cudaResourceTypeLinear && found.res.linear.devPtr == device);
  EXPECT(found.res.linear.sizeInBytes == kCount * 4);
  CHECK(cudaDestroyTextureObject(texture));
  // Programs launch with textures that they have destroyed already, and destroy them twice: COLMAP does both.
  CHECK(cudaMemset(results, 0, kCount * sizeof(float)));
  read_linear<<<2, 256>>>(texture, results, kCount);
  CHECK(cudaDestroyTextureObject(texture));
  fetch_results();
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(host[i], values[kCount - 1 - i]);
  CHECK(cudaFree(device));
}

__global__ void read_plane(cudaTextureObject_t texture, float* to, float dx, float dy, float scale_x, float scale_y) {
  const int x = threadIdx.x, y = blockIdx.x;
  to[y * kWidth + x] = tex2D<float>(texture, (x + dx) * scale_x, (y + dy) * scale_y);
}

// Rows and columns of the plane at (x, y) by each mode's rule.
static void planes() {
  cudaArray_t array = plane(1);
  cudaTextureObject_t texture = texture_of(array, sampler(cudaAddressModeClamp, cudaFilterModePoint, false));
  read_plane<<<kHeight, kWidth>>>(texture, results, 3.5f, 2.5f, 1, 1);
  fetch_results();
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      const int column = x + 3 < kWidth ? x + 3 : kWidth - 1, row = y + 2 < kHeight ? y + 2 : kHeight - 1;
      EXPECT_EQ(host[y * kWidth + x], static_cast<float>(row * kWidth + column));
    }
  CHECK(cudaDestroyTextureObject(texture));

  texture = texture_of(array, sampler(cudaAddressModeBorder, cudaFilterModePoint, false));
  read_plane<<<kHeight, kWidth>>>(texture, results, 3.5f, 2.5f, 1, 1);
  fetch_results();
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      const bool inside = x + 3 < kWidth && y + 2 < kHeight;
      EXPECT_EQ(host[y * kWidth + x], inside ? static_cast<float>((y + 2) * kWidth + x + 3) : 0.0f);
    }
  CHECK(cudaDestroyTextureObject(texture));

  texture = texture_of(array, sampler(cudaAddressModeWrap, cudaFilterModePoint, true));
  read_plane<<<kHeight, kWidth>>>(texture, results, 3.5f, 2.5f, 1.0f / kWidth, 1.0f / kHeight);
  fetch_results();
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      EXPECT_EQ(host[y * kWidth + x], static_cast<float>((y + 2) % kHeight * kWidth + (x + 3) % kWidth));
    }
  CHECK(cudaDestroyTextureObject(texture));

  // Halfway between four elements is their mean.
  texture = texture_of(array, sampler(cudaAddressModeClamp, cudaFilterModeLinear, false));
  read_plane<<<kHeight, kWidth>>>(texture, results, 1, 1, 1, 1);
  fetch_results();
  for (int y = 0; y + 1 < kHeight; ++y)
    for (int x = 0; x + 1 < kWidth; ++x) EXPECT_EQ(host[y * kWidth + x], (y + 0.5f) * kWidth + x + 0.5f);
  cudaTextureDesc how{};
  CHECK(cudaGetTextureObjectTextureDesc(&how, texture));
  EXPECT(how.addressMode[0] == cudaAddressModeClamp && how.filterMode == cudaFilterModeLinear);
  EXPECT(how.normalizedCoords == 0 && how.readMode == cudaReadModeElementType);
  cudaResourceViewDesc view{};
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetTextureObjectResourceViewDesc(&view, texture));
  cudaGetLastError();
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

static void pitched() {
  std::vector<float> values(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) values[i] = static_cast<float>(i) * 4;
  float* device;
  size_t pitch;
  CHECK(cudaMallocPitch(&device, &pitch, kWidth * 4, kHeight));
  CHECK(cudaMemcpy2D(device, pitch, values.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  cudaResourceDesc what{};
  what.resType = cudaResourceTypePitch2D;
  what.res.pitch2D.devPtr = device;
  what.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  what.res.pitch2D.width = kWidth;
  what.res.pitch2D.height = kHeight;
  what.res.pitch2D.pitchInBytes = pitch;
  const cudaTextureDesc how = sampler(cudaAddressModeClamp, cudaFilterModeLinear, false);
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
  read_plane<<<kHeight, kWidth>>>(texture, results, 1, 0.5f, 1, 1);
  fetch_results();
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x + 1 < kWidth; ++x) EXPECT_EQ(host[y * kWidth + x], 4 * (y * kWidth + x + 0.5f));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(device));
}

__global__ void read_colours(cudaTextureObject_t texture, float* to) {
  const float4 colour = tex2D<float4>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
  to[blockIdx.x * kWidth + threadIdx.x] = colour.x + 10 * colour.y + 100 * colour.z + 1000 * colour.w;
}

// Bytes read as numbers from 0 to 1.
static void colours() {
  std::vector<uchar4> values(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) values[i] = make_uchar4(i % 2 * 255, i % 3 ? 255 : 0, 255, 0);
  cudaArray_t array;
  const auto format = cudaCreateChannelDesc<uchar4>();
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  cudaTextureDesc how = sampler(cudaAddressModeClamp, cudaFilterModePoint, false);
  how.readMode = cudaReadModeNormalizedFloat;
  const cudaTextureObject_t texture = texture_of(array, how);
  read_colours<<<kHeight, kWidth>>>(texture, results);
  fetch_results();
  for (int i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(host[i], i % 2 + (i % 3 ? 10.0f : 0.0f) + 100);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

__global__ void read_box(cudaTextureObject_t texture, float* to, bool layered) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  to[(z * kHeight + y) * kWidth + x] = layered ? tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, z)
                                               : tex3D<float>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
}

static void boxes(bool layered) {
  std::vector<float> values(kWidth * kHeight * kDepth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.25f;
  cudaArray_t array;
  const auto format = cudaCreateChannelDesc<float>();
  const cudaExtent extent = make_cudaExtent(kWidth, kHeight, kDepth);
  CHECK(cudaMalloc3DArray(&array, &format, extent, layered ? cudaArrayLayered : 0));
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(values.data(), kWidth * 4, kWidth, kHeight);
  in.dstArray = array;
  in.extent = extent;
  in.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&in));
  const cudaTextureObject_t texture = texture_of(array, sampler(cudaAddressModeClamp, cudaFilterModePoint, false));
  read_box<<<dim3(kHeight, kDepth), kWidth>>>(texture, results, layered);
  fetch_results();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(host[i], values[i]);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

__global__ void read_level(cudaTextureObject_t texture, float* to, float level) {
  to[threadIdx.x] = tex2DLod<float>(texture, (threadIdx.x + 0.5f) / blockDim.x, 0.5f, level);
}

static void mipmaps() {
  constexpr unsigned kLevels = 4;
  cudaMipmappedArray_t mipmap;
  const auto format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kWidth, kHeight, 0), kLevels));
  for (unsigned level = 0; level < kLevels; ++level) {
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    const int width = kWidth >> level, height = kHeight >> level;
    std::vector<float> values(width * height, static_cast<float>(level) * 8);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
  }
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeMipmappedArray;
  what.res.mipmap.mipmap = mipmap;
  cudaTextureDesc how = sampler(cudaAddressModeClamp, cudaFilterModeLinear, true);
  how.mipmapFilterMode = cudaFilterModeLinear;
  how.maxMipmapLevelClamp = kLevels - 1;
  cudaResourceViewDesc view{};
  view.format = cudaResViewFormatFloat1;
  view.width = kWidth;
  view.height = kHeight;
  view.lastMipmapLevel = kLevels - 1;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &what, &how, &view));
  for (const float level : {0.0f, 1.0f, 1.5f, 3.0f}) {
    read_level<<<1, 16>>>(texture, results, level);
    fetch_results();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(host[i], level * 8);
  }
  cudaResourceViewDesc found{};
  CHECK(cudaGetTextureObjectResourceViewDesc(&found, texture));
  EXPECT(found.format == view.format && found.width == kWidth && found.lastMipmapLevel == kLevels - 1);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

// Two at a time are told apart, and one that is gone leaves the other alone.
static void several() {
  cudaArray_t a = plane(1), b = plane(2);
  const cudaTextureDesc how = sampler(cudaAddressModeClamp, cudaFilterModePoint, false);
  const cudaTextureObject_t one = texture_of(a, how), two = texture_of(b, how);
  EXPECT(one != two);
  CHECK(cudaDestroyTextureObject(one));
  read_plane<<<kHeight, kWidth>>>(two, results, 0.5f, 0.5f, 1, 1);
  fetch_results();
  for (int i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(host[i], 2.0f * i);
  CHECK(cudaDestroyTextureObject(two));
  for (int i = 0; i < 1000; ++i) CHECK(cudaDestroyTextureObject(texture_of(a, how)));
  CHECK(cudaFreeArray(a));
  CHECK(cudaFreeArray(b));
}

template <bool layered>
static void boxes_of() {
  boxes(layered);
}

template <void (*part)()>
static void with_results() {
  CHECK(cudaMalloc(&results, sizeof(host)));
  part();
  CHECK(cudaFree(results));
}

int main() {
  return run_parts({
      {"linear", with_results<linear>},
      {"planes", with_results<planes>},
      {"pitched", with_results<pitched>},
      {"colours", with_results<colours>},
      {"boxes", with_results<boxes_of<false>>},
      {"layers", with_results<boxes_of<true>>},
      {"mipmaps", with_results<mipmaps>},
      {"several", with_results<several>},
  });
}
