// Layered textures, cubemaps and gathers, held against the CUDA C++ Programming Guide's words.
#include <algorithm>
#include <cmath>
#include <vector>

#include "parts.cuh"
#include "texture_model.cuh"

constexpr int kSide = 16, kLayers = 5, kCubes = 3, kCount = 4096;

static cudaTextureDesc described(bool linear, bool normalized) {
  cudaTextureDesc how{};
  for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
  how.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
  how.normalizedCoords = normalized;
  return how;
}

static float value(int x, int y, int layer) { return static_cast<float>((x * 29 + y * 53 + layer * 97) % 256); }

static std::vector<float> values(int height, int layers) {
  std::vector<float> made;
  for (int layer = 0; layer < layers; ++layer)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < kSide; ++x) made.push_back(value(x, y, layer));
  return made;
}

// Reproducible numbers, 0 to 1.
static float random_number() {
  static unsigned state = 12345;
  state = state * 1664525 + 1013904223;
  return static_cast<float>(state >> 8) / (1 << 24);
}

static float *in, *out;  // of the device: 4 numbers a point, and one

template <typename Kernel>
static std::vector<float> read_points(Kernel kernel, cudaTextureObject_t texture, const std::vector<float>& points) {
  CHECK(cudaMalloc(&in, points.size() * 4));
  CHECK(cudaMalloc(&out, points.size() * 4));
  CHECK(cudaMemcpy(in, points.data(), points.size() * 4, cudaMemcpyHostToDevice));
  kernel<<<kCount / 128, 128>>>(texture, in, out);
  std::vector<float> found(points.size());
  CHECK(cudaMemcpy(found.data(), out, found.size() * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  return found;
}

__global__ void read_layers_1d(cudaTextureObject_t texture, const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = tex1DLayered<float>(texture, in[4 * i], static_cast<int>(in[4 * i + 3]));
}

__global__ void read_layers_2d(cudaTextureObject_t texture, const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = tex2DLayered<float>(texture, in[4 * i], in[4 * i + 1], static_cast<int>(in[4 * i + 3]));
}

// The layer is taken as it is, and clamped; nothing is filtered between layers.
static void layers(bool flat) {
  const auto texels = values(flat ? 1 : kSide, kLayers);
  const cudaArray_t array =
      filled_array(texels.data(), cudaCreateChannelDesc<float>(), kSide, flat ? 0 : kSide, kLayers, cudaArrayLayered);
  const cudaTextureObject_t texture = texture_of(array, described(true, false));
  std::vector<float> points(4 * kCount);
  for (int i = 0; i < kCount; ++i) {
    points[4 * i] = std::floor(random_number() * 1280 - 128) / 64;
    points[4 * i + 1] = std::floor(random_number() * 1280 - 128) / 64;
    points[4 * i + 3] = static_cast<float>(i % (kLayers + 2));
  }
  const auto found = read_points(flat ? read_layers_1d : read_layers_2d, texture, points);
  for (int i = 0; i < kCount; ++i) {
    const int layer = std::min(i % (kLayers + 2), kLayers - 1);
    std::vector<std::vector<Tap>> axes{taps(points[4 * i], kSide, Mode::kClamp, true, false)};
    if (!flat) axes.push_back(taps(points[4 * i + 1], kSide, Mode::kClamp, true, false));
    const double wanted = filtered(axes, [layer](int x, int y, int) { return value(x, y, layer); });
    EXPECT(std::fabs(found[i] - wanted) < 1e-3);
  }
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

__global__ void read_cube(cudaTextureObject_t texture, const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = texCubemap<float>(texture, in[4 * i], in[4 * i + 1], in[4 * i + 2]);
}

__global__ void read_cubes(cudaTextureObject_t texture, const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = texCubemapLayered<float>(texture, in[4 * i], in[4 * i + 1], in[4 * i + 2], static_cast<int>(in[4 * i + 3]));
}

// The guide's table: face, m, s, t by the largest coordinate.
static int face_of(float x, float y, float z, float* s, float* t) {
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  float m;
  int face;
  if (ax > ay && ax > az) {
    face = x >= 0 ? 0 : 1, m = ax, *s = x >= 0 ? -z : z, *t = -y;
  } else if (ay > ax && ay > az) {
    face = y >= 0 ? 2 : 3, m = ay, *s = x, *t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5, m = az, *s = z >= 0 ? x : -x, *t = -y;
  }
  *s = (*s / m + 1) / 2;
  *t = (*t / m + 1) / 2;
  return face;
}

static void cubes(bool layered) {
  const int faces = layered ? 6 * kCubes : 6;
  const auto texels = values(kSide, faces);
  const cudaArray_t array = filled_array(texels.data(), cudaCreateChannelDesc<float>(), kSide, kSide, faces,
                                         cudaArrayCubemap | (layered ? cudaArrayLayered : 0));
  const cudaTextureObject_t texture = texture_of(array, described(false, true));
  std::vector<float> points(4 * kCount);
  for (int i = 0; i < kCount; ++i) {
    for (int c = 0; c < 3; ++c) points[4 * i + c] = random_number() * 4 - 2;
    points[4 * i + 3] = static_cast<float>(i % kCubes);
  }
  const auto found = read_points(layered ? read_cubes : read_cube, texture, points);
  int checked = 0;
  for (int i = 0; i < kCount; ++i) {
    float s, t;
    const int face = face_of(points[4 * i], points[4 * i + 1], points[4 * i + 2], &s, &t);
    s *= kSide;
    t *= kSide;
    // What lies at the edge of a texel depends on the division's last bit.
    const auto near_edge = [](float at) { return std::fabs(at - std::round(at)) < 0.01f; };
    if (near_edge(s) || near_edge(t)) continue;
    ++checked;
    EXPECT_EQ(found[i], value(static_cast<int>(s), static_cast<int>(t), face + (layered ? i % kCubes * 6 : 0)));
  }
  EXPECT(checked > kCount / 2);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

// Where two faces meet, a seamless filter takes half of each; without, a face ends at its edge.
static void edges() {
  std::vector<float> texels;
  for (int face = 0; face < 6; ++face) texels.insert(texels.end(), kSide * kSide, static_cast<float>(face));
  const cudaArray_t array =
      filled_array(texels.data(), cudaCreateChannelDesc<float>(), kSide, kSide, 6, cudaArrayCubemap);
  const float normals[6][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
  std::vector<float> points(4 * kCount);
  for (int i = 0; i < kCount; ++i) {
    const int a = i % 6, b = i / 6 % 6;
    // A hair on a's side of the edge to b.
    for (int c = 0; c < 3; ++c) points[4 * i + c] = normals[a][c] + 0.9999f * normals[b][c];
  }
  for (const bool seamless : {false, true}) {
    cudaTextureDesc how = described(true, true);
    how.seamlessCubemap = seamless;
    const cudaTextureObject_t texture = texture_of(array, how);
    const auto found = read_points(read_cube, texture, points);
    for (int i = 0; i < kCount; ++i) {
      const int a = i % 6, b = i / 6 % 6;
      if (a / 2 == b / 2) continue;
      EXPECT(std::fabs(found[i] - (seamless ? (a + b) / 2.0f : static_cast<float>(a))) < 0.05f);
    }
    CHECK(cudaDestroyTextureObject(texture));
  }
  CHECK(cudaFreeArray(array));
}

__global__ void gather(cudaTextureObject_t texture, const float* in, float4* out, int component) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = in[2 * i], y = in[2 * i + 1];
  out[i] = component == 0   ? tex2Dgather<float4>(texture, x, y, 0)
           : component == 1 ? tex2Dgather<float4>(texture, x, y, 1)
                            : tex2Dgather<float4>(texture, x, y, 3);
}

// The four texels of a linear filter, of one component: below left, below right, above right, above left.
static void gathers() {
  std::vector<float4> texels;
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x)
      texels.push_back(make_float4(value(x, y, 0), value(x, y, 1), value(x, y, 2), value(x, y, 3)));
  const cudaArray_t array =
      filled_array(texels.data(), cudaCreateChannelDesc<float4>(), kSide, kSide, 0, cudaArrayTextureGather);
  const cudaTextureObject_t texture = texture_of(array, described(false, false));
  std::vector<float> points(2 * 256);
  for (size_t i = 0; i < points.size(); ++i) points[i] = std::floor(random_number() * kSide * 8) / 8 + 1.0f / 16;
  float4* got;
  CHECK(cudaMalloc(&in, points.size() * 4));
  CHECK(cudaMalloc(&got, 256 * sizeof(float4)));
  CHECK(cudaMemcpy(in, points.data(), points.size() * 4, cudaMemcpyHostToDevice));
  for (const int component : {0, 1, 3}) {
    gather<<<2, 128>>>(texture, in, got, component);
    std::vector<float4> found(256);
    CHECK(cudaMemcpy(found.data(), got, 256 * sizeof(float4), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; ++i) {
      const auto x = taps(points[2 * i], kSide, Mode::kClamp, true, false);
      const auto y = taps(points[2 * i + 1], kSide, Mode::kClamp, true, false);
      const auto at = [&](int a, int b) { return value(x[a].texel, y[b].texel, component); };
      EXPECT(found[i].x == at(0, 1) && found[i].y == at(1, 1) && found[i].z == at(1, 0) && found[i].w == at(0, 0));
    }
  }
  CHECK(cudaFree(in));
  CHECK(cudaFree(got));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}

int main() {
  return run_parts({
      {"rows", [] { layers(true); }},
      {"planes", [] { layers(false); }},
      {"cube", [] { cubes(false); }},
      {"cubes", [] { cubes(true); }},
      {"edges", edges},
      {"gathers", gathers},
  });
}
