// Bits of filtered texels: each case fetches at random places of random texels, by every address mode, and the hash of
// what comes out is an H200's. With the argument "print" the hashes of some seeds are printed instead.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "parts.cuh"

constexpr int kCount = 256;

enum Geometry { kRow, kPlane, kVolume, kRows, kPlanes, kCube, kLevels, kVolumeLevels, kGeometries };
enum Kind { kFloat, kHalf, kUnsigned8, kSigned8, kUnsigned16, kSigned16, kSrgb, kKinds };

struct Case {
  Kind kind;
  Geometry geometry;
  uint32_t seed;
  uint64_t hash;
};

// Seeds that meet none of the rare sums and directions that the software device rounds in another way (devices.md).
const Case kCases[] = {
    {kFloat, kRow, 1, 0x9571b2d3e4b6ccb7},         {kFloat, kPlane, 1, 0xea3332ab6c085492},
    {kFloat, kVolume, 1, 0xcfa74a87e8d46402},      {kFloat, kRows, 1, 0x3484ec8d2c8fcda6},
    {kFloat, kPlanes, 1, 0x276b0e55d70c072f},      {kFloat, kCube, 1, 0xcccaee17dc682da6},
    {kFloat, kLevels, 1, 0xe775ebd83e66ad89},      {kFloat, kVolumeLevels, 1, 0xc2e9e13fd49b3431},
    {kHalf, kRow, 1, 0xfd7a88b5b0ee0383},          {kHalf, kPlane, 1, 0xa7202fff3ddc4383},
    {kHalf, kVolume, 1, 0x7c50be57a004e383},       {kHalf, kRows, 1, 0xa04cc65bcb56e383},
    {kHalf, kPlanes, 1, 0xee43695f9b1aa383},       {kHalf, kCube, 1, 0x8180c69a48c0e383},
    {kHalf, kLevels, 1, 0x01216933ab00c383},       {kHalf, kVolumeLevels, 1, 0x86dc177365e88383},
    {kUnsigned8, kRow, 1, 0x757d38e3a2905b27},     {kUnsigned8, kPlane, 1, 0x894c415d7fe5d215},
    {kUnsigned8, kVolume, 1, 0x25703451e4882f7e},  {kUnsigned8, kRows, 1, 0xa1a375a10b29e4c7},
    {kUnsigned8, kPlanes, 1, 0x3a2bc4db4315429d},  {kUnsigned8, kCube, 1, 0x6d1717c7426bda40},
    {kUnsigned8, kLevels, 1, 0xf10c93e2aa095627},  {kUnsigned8, kVolumeLevels, 1, 0x871e2d7e002e57a6},
    {kSigned8, kRow, 1, 0x4afd20098bb94f68},       {kSigned8, kPlane, 1, 0x780560415696d17c},
    {kSigned8, kVolume, 1, 0x9877b0887fe58354},    {kSigned8, kRows, 1, 0x789d62953000051e},
    {kSigned8, kPlanes, 1, 0x8a2ce87eb6889302},    {kSigned8, kCube, 1, 0xbdca5127ba5cef17},
    {kSigned8, kLevels, 1, 0x574ca64ad03eec2f},    {kSigned8, kVolumeLevels, 1, 0x30eeddd0c14ab93d},
    {kUnsigned16, kRow, 1, 0x780f04266ca60e01},    {kUnsigned16, kPlane, 1, 0x0f18290af7e2e2b5},
    {kUnsigned16, kVolume, 1, 0xd5fb2b6b6ffdc923}, {kUnsigned16, kRows, 1, 0x79903c04ccfb33fa},
    {kUnsigned16, kPlanes, 1, 0x15df54f0744e0baf}, {kUnsigned16, kCube, 1, 0xfc2cfc6e1fcb583e},
    {kUnsigned16, kLevels, 1, 0x3d9254c12d035e0c}, {kUnsigned16, kVolumeLevels, 1, 0xa0e3c17f8c70ba8a},
    {kSigned16, kRow, 1, 0x790653baef3fe56f},      {kSigned16, kPlane, 1, 0x2ee1daf3e8f3a5a2},
    {kSigned16, kVolume, 1, 0x8900b06c61670938},   {kSigned16, kRows, 1, 0xe841af6913a9b201},
    {kSigned16, kPlanes, 1, 0xc9de643b5a0511f4},   {kSigned16, kCube, 1, 0x5c1fd1835249f223},
    {kSigned16, kLevels, 1, 0x2aff04e2e2ca7f0b},   {kSigned16, kVolumeLevels, 1, 0x339b947f12aaaaa6},
    {kSrgb, kRow, 1, 0x44d4a090b5e39e08},          {kSrgb, kPlane, 1, 0x5251907188caec27},
    {kSrgb, kRows, 1, 0x463b3303a38db834},         {kSrgb, kPlanes, 1, 0xc24f32ed4a697cc0},
    {kSrgb, kCube, 1, 0xe3e71ecfd7c59bfd},
};

static uint32_t state;
static uint32_t random_number() {
  state = state * 1664525 + 1013904223;
  return state >> 8;
}
static float between(float least, float most) { return least + (most - least) * random_number() / (1 << 24); }

struct Place {
  float at[3];
  int layer;
  float level;
};

__global__ void fetch(cudaTextureObject_t texture, Geometry geometry, const Place* places, float4* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Place p = places[i];
  const float x = p.at[0], y = p.at[1], z = p.at[2];
  out[i] = geometry == kRow      ? tex1D<float4>(texture, x)
           : geometry == kPlane  ? tex2D<float4>(texture, x, y)
           : geometry == kVolume ? tex3D<float4>(texture, x, y, z)
           : geometry == kRows   ? tex1DLayered<float4>(texture, x, p.layer)
           : geometry == kPlanes ? tex2DLayered<float4>(texture, x, y, p.layer)
           : geometry == kCube   ? texCubemap<float4>(texture, x, y, z)
           : geometry == kLevels ? tex2DLod<float4>(texture, x, y, p.level)
                                 : tex3DLod<float4>(texture, x, y, z, p.level);
}

static cudaChannelFormatDesc format_of(Kind kind) {
  switch (kind) {
    case kFloat:
      return cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat);
    case kHalf:
      return cudaCreateChannelDesc(16, 16, 0, 0, cudaChannelFormatKindFloat);
    case kUnsigned8:
    case kSrgb:
      return cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
    case kSigned8:
      return cudaCreateChannelDesc(8, 8, 0, 0, cudaChannelFormatKindSigned);
    case kUnsigned16:
      return cudaCreateChannelDesc(16, 0, 0, 0, cudaChannelFormatKindUnsigned);
    default:
      return cudaCreateChannelDesc(16, 16, 16, 16, cudaChannelFormatKindSigned);
  }
}

static void fill(cudaArray_t array, Kind kind, size_t width, size_t height, size_t depth) {
  const cudaChannelFormatDesc format = format_of(kind);
  const size_t row = width * (format.x + format.y + format.z + format.w) / 8;
  std::vector<unsigned char> bytes(row * height * depth);
  if (kind == kFloat) {
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const float value = between(-100, 100);
      std::memcpy(&bytes[i], &value, sizeof value);
    }
  } else {
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random_number() >> 8);
    for (size_t i = 1; kind == kHalf && i < bytes.size(); i += 2) bytes[i] = (bytes[i] & 0x83) | 0x3c;
  }
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(bytes.data(), row, width, height);
  in.dstArray = array;
  in.extent = make_cudaExtent(width, height, depth);
  in.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&in));
}

class Hash {
 public:
  Hash() {
    CHECK(cudaMalloc(&places_, kCount * sizeof(Place)));
    CHECK(cudaMalloc(&out_, kCount * sizeof(float4)));
  }
  ~Hash() {
    CHECK(cudaFree(places_));
    CHECK(cudaFree(out_));
  }
  void add(const cudaResourceDesc& what, const cudaTextureDesc& how, Geometry geometry,
           const std::vector<Place>& places) {
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
    CHECK(cudaMemcpy(places_, places.data(), kCount * sizeof(Place), cudaMemcpyHostToDevice));
    fetch<<<kCount / 64, 64>>>(texture, geometry, places_, out_);
    uint32_t words[4 * kCount];
    CHECK(cudaMemcpy(words, out_, sizeof words, cudaMemcpyDeviceToHost));
    for (const uint32_t word : words) value = (value ^ word) * 1099511628211ull;
    CHECK(cudaDestroyTextureObject(texture));
  }
  uint64_t value = 1469598103934665603ull;

 private:
  Place* places_;
  float4* out_;
};

static std::vector<Place> random_places(Geometry geometry, const size_t (&sides)[3], bool normalized) {
  std::vector<Place> places(kCount);
  for (Place& place : places) {
    for (int i = 0; i < 3; ++i) {
      const float side = normalized ? 1.0f : static_cast<float>(sides[i] ? sides[i] : 1);
      place.at[i] = geometry == kCube ? between(-2, 2) : between(-0.6f, 1.6f) * side;
      if (random_number() & 1) place.at[i] = std::floor(place.at[i] * 512) / 512;
    }
    place.layer = static_cast<int>(random_number() % 7) - 2;
    place.level = between(-1.5f, 6);
  }
  return places;
}

static uint64_t hash_of(Kind kind, Geometry geometry, uint32_t seed) {
  constexpr int kSteps = 4;
  state = seed * 7919 + kind * 131 + geometry;
  const bool mipmapped = geometry >= kLevels, volume = geometry == kVolume || geometry == kVolumeLevels;
  const bool flat = geometry == kRow || geometry == kRows, layered = geometry == kRows || geometry == kPlanes;
  const bool cube = geometry == kCube;
  const size_t sides[3] = {mipmapped ? 16u
                           : cube    ? 4u
                                     : 7u,
                           flat        ? 0u
                           : mipmapped ? 8u
                           : cube      ? 4u
                                       : 5u,
                           volume    ? 8u
                           : cube    ? 6u
                           : layered ? 3u
                                     : 0u};
  const unsigned flags = layered ? cudaArrayLayered : cube ? cudaArrayCubemap : cudaArrayDefault;
  const cudaExtent extent = make_cudaExtent(sides[0], sides[1], sides[2]);
  const cudaChannelFormatDesc format = format_of(kind);
  cudaResourceDesc what{};
  if (mipmapped) {
    what.resType = cudaResourceTypeMipmappedArray;
    CHECK(cudaMallocMipmappedArray(&what.res.mipmap.mipmap, &format, extent, kSteps, flags));
    for (int i = 0; i < kSteps; ++i) {
      cudaArray_t array;
      CHECK(cudaGetMipmappedArrayLevel(&array, what.res.mipmap.mipmap, i));
      fill(array, kind, sides[0] >> i, sides[1] >> i, volume ? sides[2] >> i : 1);
    }
  } else {
    what.resType = cudaResourceTypeArray;
    CHECK(cudaMalloc3DArray(&what.res.array.array, &format, extent, flags));
    fill(what.res.array.array, kind, sides[0], sides[1] ? sides[1] : 1, sides[2] ? sides[2] : 1);
  }
  Hash hash;
  for (int i = 0; i < 16; ++i) {
    cudaTextureDesc how{};
    for (auto& mode : how.addressMode) mode = static_cast<cudaTextureAddressMode>(i & 3);
    how.filterMode = i & 4 ? cudaFilterModeLinear : cudaFilterModePoint;
    how.normalizedCoords = cube || i >> 3;
    how.readMode = kind <= kHalf ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
    how.sRGB = kind == kSrgb;
    for (float& colour : how.borderColor) colour = between(-1, 1);
    how.mipmapFilterMode = i & 8 ? cudaFilterModeLinear : cudaFilterModePoint;
    how.mipmapLevelBias = between(-1, 1);
    how.minMipmapLevelClamp = i & 1 ? 0 : 0.7f;
    how.maxMipmapLevelClamp = i & 2 ? 2.3f : 100;
    hash.add(what, how, geometry, random_places(geometry, sides, how.normalizedCoords || mipmapped));
  }
  CHECK(mipmapped ? cudaFreeMipmappedArray(what.res.mipmap.mipmap) : cudaFreeArray(what.res.array.array));
  return hash.value;
}

static void print() {
  for (int kind = 0; kind < kKinds; ++kind)
    for (int geometry = 0; geometry < kGeometries; ++geometry)
      for (uint32_t seed = 1; seed <= 8; ++seed) {
        const uint64_t hash = hash_of(static_cast<Kind>(kind), static_cast<Geometry>(geometry), seed);
        std::printf("%d %d %u %016llx\n", kind, geometry, seed, static_cast<unsigned long long>(hash));
      }
}

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "print") == 0) return print(), 0;
  for (const Case& c : kCases) {
    const uint64_t found = hash_of(c.kind, c.geometry, c.seed);
    if (found == c.hash) continue;
    std::printf("kind %d, geometry %d: %016llx\n", c.kind, c.geometry, static_cast<unsigned long long>(found));
    return 1;
  }
  return passed();
}
