// Surfaces by every size of access, cubemaps' faces, and what lies outside of a surface.
#include <cstring>
#include <vector>

#include "parts.cuh"
#include "texture_model.cuh"

constexpr int kWidth = 16, kHeight = 8;

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeArray;
  what.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &what));
  return surface;
}

template <typename T>
__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
  T value;
  surf2Dread(&value, from, threadIdx.x * sizeof(T), blockIdx.x);
  surf2Dwrite(value, to, (kWidth - 1 - threadIdx.x) * sizeof(T), kHeight - 1 - blockIdx.x);
}

template <typename T>
static void size() {
  std::vector<T> texels(kWidth * kHeight), found(kWidth * kHeight);
  auto* bytes = reinterpret_cast<unsigned char*>(texels.data());
  for (size_t i = 0; i < texels.size() * sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 250);
  const auto format = cudaCreateChannelDesc<T>();
  const cudaArray_t a = filled_array(texels.data(), format, kWidth, kHeight, 0, cudaArraySurfaceLoadStore);
  const cudaArray_t b = filled_array(texels.data(), format, kWidth, kHeight, 0, cudaArraySurfaceLoadStore);
  const cudaSurfaceObject_t from = surface_of(a), to = surface_of(b);
  turn<T><<<kHeight, kWidth>>>(from, to);
  CHECK(cudaMemcpy2DFromArray(found.data(), kWidth * sizeof(T), b, 0, 0, kWidth * sizeof(T), kHeight,
                              cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < texels.size(); ++i)
    EXPECT(std::memcmp(&found[i], &texels[texels.size() - 1 - i], sizeof(T)) == 0);
  CHECK(cudaDestroySurfaceObject(from));
  CHECK(cudaDestroySurfaceObject(to));
  CHECK(cudaFreeArray(a));
  CHECK(cudaFreeArray(b));
}

static void sizes() {
  size<unsigned char>();
  size<short>();
  size<uchar4>();
  size<float>();
  size<ushort4>();
  size<int2>();
  size<float4>();
}

__global__ void read_outside(cudaSurfaceObject_t surface, int* to, bool clamp) {
  const int x = static_cast<int>(threadIdx.x) - 4, y = static_cast<int>(blockIdx.x) - 2;
  to[blockIdx.x * blockDim.x + threadIdx.x] = clamp ? surf2Dread<int>(surface, x * 4, y, cudaBoundaryModeClamp)
                                                    : surf2Dread<int>(surface, x * 4, y, cudaBoundaryModeZero);
}

__global__ void write_outside(cudaSurfaceObject_t surface) {
  surf2Dwrite(static_cast<int>(threadIdx.x), surface, (static_cast<int>(threadIdx.x) - 4) * 4, 3, cudaBoundaryModeZero);
}

__global__ void write_trapping(cudaSurfaceObject_t surface, int row) { surf2Dwrite(1, surface, threadIdx.x * 4, row); }

static cudaArray_t numbered(std::vector<int>* texels) {
  for (int i = 0; i < kWidth * kHeight; ++i) texels->push_back(i + 1);
  return filled_array(texels->data(), cudaCreateChannelDesc<int>(), kWidth, kHeight, 0, cudaArraySurfaceLoadStore);
}

static void outside() {
  std::vector<int> texels;
  const cudaArray_t array = numbered(&texels);
  const cudaSurfaceObject_t surface = surface_of(array);
  constexpr int kColumns = kWidth + 8, kRows = kHeight + 4;
  std::vector<int> found(kColumns * kRows);
  int* device;
  CHECK(cudaMalloc(&device, found.size() * 4));
  for (const bool clamp : {false, true}) {
    read_outside<<<kRows, kColumns>>>(surface, device, clamp);
    CHECK(cudaMemcpy(found.data(), device, found.size() * 4, cudaMemcpyDeviceToHost));
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        const int x = column - 4, y = row - 2;
        const bool inside = x >= 0 && x < kWidth && y >= 0 && y < kHeight;
        const int near_x = x < 0 ? 0 : x < kWidth ? x : kWidth - 1, near_y = y < 0 ? 0 : y < kHeight ? y : kHeight - 1;
        EXPECT_EQ(found[row * kColumns + column], inside || clamp ? near_y * kWidth + near_x + 1 : 0);
      }
  }
  write_outside<<<1, kColumns>>>(surface);
  std::vector<int> now(kWidth * kHeight);
  CHECK(cudaMemcpy2DFromArray(now.data(), kWidth * 4, array, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kWidth * kHeight; ++i) EXPECT_EQ(now[i], i / kWidth == 3 ? i % kWidth + 4 : i + 1);
  CHECK(cudaFree(device));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}

// By default a kernel that leaves a surface ends.
static void trapping() {
  std::vector<int> texels;
  const cudaSurfaceObject_t surface = surface_of(numbered(&texels));
  write_trapping<<<1, kWidth>>>(surface, kHeight - 1);
  CHECK(cudaDeviceSynchronize());
  write_trapping<<<1, kWidth>>>(surface, kHeight);
  EXPECT(cudaDeviceSynchronize() != cudaSuccess);
  EXPECT(cudaFree(nullptr) != cudaSuccess || cudaGetLastError() != cudaSuccess);
}

__global__ void write_faces(cudaSurfaceObject_t surface, int cubes) {
  const int x = threadIdx.x, y = blockIdx.x, face = blockIdx.y;
  const float value = static_cast<float>(face * 1000 + y * 10 + x);
  if (cubes == 1) surfCubemapwrite(value, surface, x * 4, y, face);
  if (cubes > 1) surfCubemapLayeredwrite(value, surface, x * 4, y, face);
}

static void faces(int cubes) {
  const std::vector<float> zeros(kHeight * kHeight * 6 * cubes);
  const cudaArray_t array =
      filled_array(zeros.data(), cudaCreateChannelDesc<float>(), kHeight, kHeight, 6 * cubes,
                   cudaArraySurfaceLoadStore | cudaArrayCubemap | (cubes > 1 ? cudaArrayLayered : 0));
  const cudaSurfaceObject_t surface = surface_of(array);
  write_faces<<<dim3(kHeight, 6 * cubes), kHeight>>>(surface, cubes);
  std::vector<float> found(zeros.size());
  cudaMemcpy3DParms out{};
  out.srcArray = array;
  out.dstPtr = make_cudaPitchedPtr(found.data(), kHeight * 4, kHeight, kHeight);
  out.extent = make_cudaExtent(kHeight, kHeight, 6 * cubes);
  out.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&out));
  for (int i = 0; i < static_cast<int>(found.size()); ++i)
    EXPECT_EQ(found[i], static_cast<float>(i / 64 * 1000 + i / 8 % 8 * 10 + i % 8));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}

// The guide asks for cudaArraySurfaceLoadStore, but drivers make a surface of an array without it too.
static void without_flag() {
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 8, 8));
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeArray;
  what.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &what));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}

// Only arrays can be surfaces.
static void refused() {
  float* device;
  CHECK(cudaMalloc(&device, 4096));
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeLinear;
  what.res.linear.devPtr = device;
  what.res.linear.desc = cudaCreateChannelDesc<float>();
  what.res.linear.sizeInBytes = 4096;
  cudaSurfaceObject_t surface;
  EXPECT(cudaCreateSurfaceObject(&surface, &what) != cudaSuccess);
  CHECK(cudaFree(device));
}

int main() {
  return run_parts({
      {"sizes", sizes},
      {"outside", outside},
      {"trapping", trapping},
      {"cube", [] { faces(1); }},
      {"cubes", [] { faces(2); }},
      {"without flag", without_flag},
      {"refused", refused},
  });
}
