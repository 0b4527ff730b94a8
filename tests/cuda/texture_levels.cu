// Levels of mipmapped textures: given, by gradients, between two levels, moved, clamped, and a part of them by a view.
#include <cmath>
#include <vector>

#include "parts.cuh"
#include "texture_model.cuh"

constexpr int kSide = 32, kLevels = 5;

// Level i holds 10 * i everywhere; level 0 also counts.
static cudaMipmappedArray_t pyramid() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kSide, kSide, 0), kLevels));
  for (int level = 0; level < kLevels; ++level) {
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    const int side = kSide >> level;
    const std::vector<float> texels(static_cast<size_t>(side) * side, 10.0f * level);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), side * 4, side * 4, side, cudaMemcpyHostToDevice));
  }
  return mipmap;
}

struct Levels {
  bool between = false;
  float bias = 0, least = 0, most = kLevels;
  int first = 0, last = kLevels - 1;
};

// A view gets the size of the whole array, whichever level it begins with: of `view_side` texels.
static cudaError_t create(cudaTextureObject_t* texture, cudaMipmappedArray_t mipmap, const Levels& levels,
                          size_t view_side = kSide) {
  cudaTextureDesc how{};
  how.filterMode = cudaFilterModeLinear;
  how.normalizedCoords = 1;
  how.mipmapFilterMode = levels.between ? cudaFilterModeLinear : cudaFilterModePoint;
  how.mipmapLevelBias = levels.bias;
  how.minMipmapLevelClamp = levels.least;
  how.maxMipmapLevelClamp = levels.most;
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeMipmappedArray;
  what.res.mipmap.mipmap = mipmap;
  cudaResourceViewDesc view{};
  view.format = cudaResViewFormatFloat1;
  view.width = view.height = view_side;
  view.firstMipmapLevel = levels.first;
  view.lastMipmapLevel = levels.last;
  const bool part = levels.first != 0 || levels.last != kLevels - 1;
  return cudaCreateTextureObject(texture, &what, &how, part ? &view : nullptr);
}

static cudaTextureObject_t texture_of(cudaMipmappedArray_t mipmap, const Levels& levels) {
  cudaTextureObject_t texture;
  CHECK(create(&texture, mipmap, levels));
  return texture;
}

__global__ void read_levels(cudaTextureObject_t texture, float* out, float step) {
  out[threadIdx.x] = tex2DLod<float>(texture, 0.3f, 0.7f, threadIdx.x * step - 1);
}

// A step of 2^k texels along one of the axes is level k.
__global__ void read_gradients(cudaTextureObject_t texture, float* out) {
  const float length = exp2f(threadIdx.x * 0.25f) / kSide;
  const float2 none = make_float2(0, 0), x = make_float2(length, 0), y = make_float2(0, -length);
  out[threadIdx.x] = tex2DGrad<float>(texture, 0.3f, 0.7f, threadIdx.x % 2 ? x : none, threadIdx.x % 2 ? none : y);
}

static float wanted(float asked, const Levels& levels) {
  float level = std::fmin(std::fmax(asked + levels.bias, levels.least), levels.most);
  level = std::fmin(std::fmax(level, 0.0f), static_cast<float>(levels.last - levels.first));
  if (!levels.between) level = std::floor(level + 0.5f);
  return 10 * (static_cast<float>(levels.first) + level);
}

static void check(cudaMipmappedArray_t mipmap, const Levels& levels) {
  const cudaTextureObject_t texture = texture_of(mipmap, levels);
  // A GPU rounds each of eight weights between two levels, and takes a logarithm of its own.
  const bool exact = !levels.between || on_software_device();
  const float by_number = exact ? 0.05f : 0.1f, by_gradient = exact ? 0.3f : 1.0f;
  float *device, found[64];
  CHECK(cudaMalloc(&device, sizeof(found)));
  read_levels<<<1, 64>>>(texture, device, 0.125f);
  CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) {
    const float asked = static_cast<float>(i) * 0.125f - 1, by_bias = asked + levels.bias;
    if (!levels.between && by_bias - std::floor(by_bias) == 0.5f) continue;  // halfway, either may be nearest
    EXPECT(std::fabs(found[i] - wanted(asked, levels)) <= by_number);
  }
  read_gradients<<<1, 24>>>(texture, device);
  CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 24; ++i) {
    const float asked = static_cast<float>(i) * 0.25f - static_cast<float>(levels.first), by_bias = asked + levels.bias;
    if (!levels.between && by_bias - std::floor(by_bias) == 0.5f) continue;
    EXPECT(std::fabs(found[i] - wanted(asked, levels)) <= by_gradient);
  }
  CHECK(cudaFree(device));
  CHECK(cudaDestroyTextureObject(texture));
}

static void levels() {
  const cudaMipmappedArray_t mipmap = pyramid();
  for (const bool between : {false, true}) {
    check(mipmap, {between});
    check(mipmap, {between, 1.25f});
    check(mipmap, {between, 0, 1.5f, 3});
  }
  CHECK(cudaFreeMipmappedArray(mipmap));
}

// The guide does not say from which level a view's numbers and gradients count: only the software device is asked.
static void views() {
  const cudaMipmappedArray_t mipmap = pyramid();
  cudaTextureObject_t texture;
  for (const bool between : {false, true}) {
    const Levels part{between, 0, 0, kLevels, 1, 3};
    EXPECT_CODE(cudaErrorInvalidValue, create(&texture, mipmap, part, kSide >> part.first));
    if (on_software_device()) check(mipmap, part);
    CHECK(create(&texture, mipmap, part));
    CHECK(cudaDestroyTextureObject(texture));
  }
  CHECK(cudaFreeMipmappedArray(mipmap));
}

__global__ void read_line(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1DLod<float>(texture, (threadIdx.x + 0.5f) / 4, 3);
}

// Each level of a row is read by its own size.
static void rows() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kSide, 0, 0), 6));
  cudaArray_t array;
  CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, 3));
  const float texels[4] = {5, 6, 7, 8};
  CHECK(cudaMemcpy2DToArray(array, 0, 0, texels, 16, 16, 1, cudaMemcpyHostToDevice));
  const cudaTextureObject_t texture = texture_of(mipmap, {});
  float *device, found[4];
  CHECK(cudaMalloc(&device, sizeof(found)));
  read_line<<<1, 4>>>(texture, device);
  CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(found, texels, sizeof(found)) == 0);
  CHECK(cudaFree(device));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

__global__ void read_beyond(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1DLod<float>(texture, 0.375f * static_cast<float>(threadIdx.x) - 0.25f, 3);
}

// Coordinates of what has levels are normalized though the texture does not say so. They repeat only if it does.
static void unnormalized() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kSide, 0, 0), 6));
  cudaArray_t array;
  CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, 3));
  const float texels[4] = {5, 6, 7, 8};
  CHECK(cudaMemcpy2DToArray(array, 0, 0, texels, 16, 16, 1, cudaMemcpyHostToDevice));
  float *device, found[5];
  CHECK(cudaMalloc(&device, sizeof(found)));
  for (const auto mode : {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder}) {
    cudaTextureDesc how{};
    for (auto& each : how.addressMode) each = mode;
    how.maxMipmapLevelClamp = kLevels;
    cudaResourceDesc what{};
    what.resType = cudaResourceTypeMipmappedArray;
    what.res.mipmap.mipmap = mipmap;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
    read_beyond<<<1, 5>>>(texture, device);
    CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
    const bool border = mode == cudaAddressModeBorder;
    const float wanted[5] = {border ? 0.0f : 5, 5, 7, 8, border ? 0.0f : 8};  // at -0.25, 0.125, 0.5, 0.875, 1.25
    for (int i = 0; i < 5; ++i) EXPECT_EQ(found[i], wanted[i]);
    CHECK(cudaDestroyTextureObject(texture));
  }
  CHECK(cudaFree(device));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

int main() { return run_parts({{"levels", levels}, {"views", views}, {"rows", rows}, {"unnormalized", unnormalized}}); }
