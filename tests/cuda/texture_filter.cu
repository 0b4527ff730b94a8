// nvcc: -lcuda
// Filters, address modes, border colours and formats of textures, held against the formulas of the CUDA C++ Programming
// Guide (appendix "Texture Fetching"). Coordinates are such that weights of 8 bits are exact.
#include <cuda_fp16.h>

#include <cmath>
#include <vector>

#include "check.h"
#include "parts.cuh"
#include "texture_model.cuh"

constexpr int kN = 16, kM = 8, kSteps = 64;  // texels, and coordinates to a texel

__global__ void read_row(cudaTextureObject_t texture, float4* to, int count, float first, float step, float y,
                         int axes) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = first + i * step;
  if (axes == 1) to[i] = make_float4(tex1D<float>(texture, x), 0, 0, 0);
  if (axes == 2) to[i] = tex2D<float4>(texture, x, y);
  if (axes == 3) to[i] = make_float4(tex3D<float>(texture, x, y, x), 0, 0, 0);
}

static std::vector<float4> row(cudaTextureObject_t texture, int count, float first, float step, float y, int axes) {
  float4* device;
  CHECK(cudaMalloc(&device, count * sizeof(float4)));
  read_row<<<(count + 63) / 64, 64>>>(texture, device, count, first, step, y, axes);
  std::vector<float4> made(count);
  CHECK(cudaMemcpy(made.data(), device, count * sizeof(float4), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  return made;
}

static float value(int x, int y = 0, int z = 0) { return static_cast<float>((x * 37 + y * 101 + z * 59) % 64); }

static cudaTextureDesc described(Mode x, Mode y, bool linear, bool normalized, float border = 0) {
  cudaTextureDesc how{};
  how.addressMode[0] = how.addressMode[2] = static_cast<cudaTextureAddressMode>(x);
  how.addressMode[1] = static_cast<cudaTextureAddressMode>(y);
  how.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
  how.normalizedCoords = normalized;
  for (float& channel : how.borderColor) channel = border;
  return how;
}

static void check_row(const std::vector<float4>& found, float first, float step, float y, int axes, Mode mode_x,
                      Mode mode_y, bool linear, bool normalized, float border) {
  for (size_t i = 0; i < found.size(); ++i) {
    const float x = first + i * step;
    const auto read = [&](int a, int b, int c) { return a < 0 || b < 0 || c < 0 ? border : value(a, b, c); };
    std::vector<std::vector<Tap>> each{taps(x, kN, mode_x, linear, normalized)};
    if (axes > 1) each.push_back(taps(y, kM, mode_y, linear, normalized));
    if (axes > 2) each.push_back(taps(x, kM, mode_x, linear, normalized));
    const double wanted = filtered(each, read);
    if (!(std::fabs(found[i].x - wanted) <= 1e-4)) {
      std::printf("axes %d modes %d %d linear %d normalized %d at %g %g: %g, expected %g\n", axes, int(mode_x),
                  int(mode_y), linear, normalized, x, y, found[i].x, wanted);
      std::exit(1);
    }
  }
}

static void modes(int axes) {
  const int height = axes > 1 ? kM : 0, depth = axes > 2 ? kM : 0;
  std::vector<float> single;
  std::vector<float4> colours;
  for (int z = 0; z < (depth ? depth : 1); ++z)
    for (int y = 0; y < (height ? height : 1); ++y)
      for (int x = 0; x < kN; ++x) {
        single.push_back(value(x, y, z));
        colours.push_back(make_float4(value(x, y, z), 1, 2, 3));
      }
  cudaArray_t array;
  const auto format = axes == 2 ? cudaCreateChannelDesc<float4>() : cudaCreateChannelDesc<float>();
  const void* data = axes == 2 ? static_cast<const void*>(colours.data()) : single.data();
  array = filled_array(data, format, kN, height, depth, 0);
  for (const bool linear : {false, true})
    for (const bool normalized : {false, true})
      for (const Mode mode_x : {Mode::kWrap, Mode::kClamp, Mode::kMirror, Mode::kBorder})
        for (const Mode mode_y : {Mode::kClamp, Mode::kWrap}) {
          if (!normalized && (mode_x == Mode::kWrap || mode_x == Mode::kMirror || mode_y == Mode::kWrap)) continue;
          const cudaTextureDesc how = described(mode_x, mode_y, linear, normalized, 5);
          const cudaTextureObject_t texture = texture_of(array, how);
          // Odd steps: never on the edge of a texel.
          const float scale = normalized ? 1.0f / kN : 1.0f;
          const float step = 2.0f / kSteps * scale, first = (-2.0f * kN + 1.0f / kSteps) * scale;
          const int count = 5 * kN * kSteps / 2;
          for (const float y : {1.0f + 1.0f / kSteps, 6.75f + 1.0f / kSteps}) {
            const float at = y * (normalized ? 1.0f / kM : 1.0f);
            check_row(row(texture, count, first, step, at, axes), first, step, at, axes, mode_x, mode_y, linear,
                      normalized, 5);
          }
          CHECK(cudaDestroyTextureObject(texture));
        }
  CHECK(cudaFreeArray(array));
}

template <typename T>
static void format(const cudaChannelFormatDesc& how_stored, float (*wanted)(T), T (*make)(int), bool normalized_values,
                   bool srgb = false) {
  std::vector<T> texels;
  for (int i = 0; i < kN; ++i) texels.push_back(make(i));
  const cudaArray_t array = filled_array(texels.data(), how_stored, kN, 0, 0, 0);
  cudaTextureDesc how = described(Mode::kClamp, Mode::kClamp, true, false);
  how.readMode = normalized_values ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
  how.sRGB = srgb;
  const cudaTextureObject_t texture = texture_of(array, how);
  const auto found = row(texture, 4 * (kN - 1), 0.5f, 0.25f, 0, 1);
  for (int i = 0; i < 4 * (kN - 1); ++i) {
    const float a = wanted(texels[i / 4]), b = wanted(texels[i / 4 + 1]), weight = 0.25f * (i % 4);
    // Small formats are filtered in numbers of few bits, and sRGB is a table of eight (texture_bits.cu has them
    // exactly).
    const float of_format = srgb ? 1e-2f : sizeof(T) == 4 ? 1e-6f : normalized_values ? 1e-4f : 1e-3f;
    const float filtered = (1 - weight) * a + weight * b;
    // The least of a signed format is below -1, where the filter reads it, and not in what it gives.
    EXPECT(std::fabs(found[i].x - (normalized_values ? std::max(filtered, -1.0f) : filtered)) <= of_format);
  }
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

static float linear_of_srgb(unsigned char byte) {
  const double v = byte / 255.0;
  return static_cast<float>(v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
}

static void formats() {
  format<unsigned char>(
      cudaCreateChannelDesc<unsigned char>(), [](unsigned char v) { return v / 255.0f; },
      [](int i) { return static_cast<unsigned char>(i * 17); }, true);
  format<signed char>(
      cudaCreateChannelDesc<signed char>(), [](signed char v) { return v / 127.0f; },
      [](int i) { return static_cast<signed char>(i == 0 ? -128 : i * 16 - 127); }, true);
  format<unsigned short>(
      cudaCreateChannelDesc<unsigned short>(), [](unsigned short v) { return v / 65535.0f; },
      [](int i) { return static_cast<unsigned short>(i * 4369); }, true);
  format<short>(
      cudaCreateChannelDesc<short>(), [](short v) { return v / 32767.0f; },
      [](int i) { return static_cast<short>(i * 4096 - 32768); }, true);
  format<__half>(
      cudaCreateChannelDescHalf(), [](__half v) { return __half2float(v); },
      [](int i) { return __float2half(i * 0.375f - 2); }, false);
  format<float>(cudaCreateChannelDesc<float>(), [](float v) { return v; }, [](int i) { return i * 1.5f; }, false);
  format<unsigned char>(
      cudaCreateChannelDesc<unsigned char>(), linear_of_srgb, [](int i) { return static_cast<unsigned char>(i * 17); },
      true, true);
}

template <typename T>
__global__ void read_integers(cudaTextureObject_t texture, T* to) {
  to[threadIdx.x] = tex1D<T>(texture, threadIdx.x + 0.5f);
}

// Whole numbers come as they are.
template <typename T, typename Make>
static void integers(Make make) {
  std::vector<T> texels, found(kN);
  for (int i = 0; i < kN; ++i) texels.push_back(make(i));
  const cudaArray_t array = filled_array(texels.data(), cudaCreateChannelDesc<T>(), kN, 0, 0, 0);
  const cudaTextureObject_t texture = texture_of(array, described(Mode::kClamp, Mode::kClamp, false, false));
  T* device;
  CHECK(cudaMalloc(&device, kN * sizeof(T)));
  read_integers<<<1, kN>>>(texture, device);
  CHECK(cudaMemcpy(found.data(), device, kN * sizeof(T), cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(found.data(), texels.data(), kN * sizeof(T)) == 0);
  CHECK(cudaFree(device));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

static void whole_numbers() {
  integers<unsigned char>([](int i) { return static_cast<unsigned char>(255 - i); });
  integers<char2>([](int i) { return make_char2(static_cast<signed char>(-i), 7); });
  integers<short4>([](int i) { return make_short4(-1, static_cast<short>(i * -1000), 3, 4); });
  integers<ushort2>([](int i) { return make_ushort2(65535, static_cast<unsigned short>(i)); });
  integers<int>([](int i) { return i * -123456; });
  integers<uint4>([](int i) { return make_uint4(0xffffffffu, i, 1u << i, 9); });
}

__global__ void read_between(cudaTextureObject_t texture, unsigned char* along, unsigned char* down) {
  const float at = 2 + threadIdx.x / 8.0f;
  along[threadIdx.x] = tex2D<unsigned char>(texture, at, 3.5f);
  down[threadIdx.x] = tex2D<unsigned char>(texture, 4.5f, at);
}

// Bytes that are filtered and read as integers, which the runtime refuses and the driver takes: rounded, halves
// upwards.
static void filtered_bytes() {
  constexpr int kSide = 64, kRead = 16;
  std::vector<unsigned char> texels;
  for (int i = 0; i < kSide * kSide; ++i) texels.push_back(static_cast<unsigned char>(i % kSide * 16 + i / kSide * 3));
  CUDA_RESOURCE_DESC what{};
  what.resType = CU_RESOURCE_TYPE_PITCH2D;
  auto& plane = what.res.pitch2D;
  void* memory;
  CHECK(cudaMallocPitch(&memory, &plane.pitchInBytes, kSide, kSide));
  CHECK(cudaMemcpy2D(memory, plane.pitchInBytes, texels.data(), kSide, kSide, kSide, cudaMemcpyHostToDevice));
  plane.devPtr = reinterpret_cast<CUdeviceptr>(memory);
  plane.format = CU_AD_FORMAT_UNSIGNED_INT8;
  plane.numChannels = 1, plane.width = plane.height = kSide;
  CUDA_TEXTURE_DESC how{};
  how.filterMode = CU_TR_FILTER_MODE_LINEAR;
  how.flags = CU_TRSF_READ_AS_INTEGER;
  how.addressMode[0] = how.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  CUtexObject texture;
  CHECK_DRIVER(cuTexObjectCreate(&texture, &what, &how, nullptr));
  unsigned char *device, found[2][kRead];
  CHECK(cudaMalloc(&device, sizeof(found)));
  read_between<<<1, kRead>>>(texture, device, device + kRead);
  CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
  const unsigned char down[kRead] = {69, 69, 69, 70, 70, 70, 71, 71, 72, 72, 72, 73, 73, 73, 74, 74};
  for (int i = 0; i < kRead; ++i) {
    EXPECT_EQ(int{found[0][i]}, 33 + 2 * i);
    EXPECT_EQ(int{found[1][i]}, int{down[i]});
  }
  CHECK_DRIVER(cuTexObjectDestroy(texture));
  CHECK(cudaFree(device));
  CHECK(cudaFree(memory));
}

int main() {
  return run_parts({
      {"one dimension", [] { modes(1); }},
      {"two dimensions", [] { modes(2); }},
      {"three dimensions", [] { modes(3); }},
      {"formats", formats},
      {"whole numbers", whole_numbers},
      {"filtered bytes", filtered_bytes},
  });
}
