// Tiled matrix multiplication: each product feeds on the last one's buffers, the last is checked row by row.
#include "program.h"

constexpr int kTile = 32;

__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int at = 0; at < n; at += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[size_t(row) * n + at + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[size_t(at + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[size_t(row) * n + column] = sum;
}

// Small whole numbers, so that every sum is exact in float.
static std::vector<float> whole_numbers(int n, uint64_t seed) {
  Random random(seed);
  std::vector<float> all(size_t(n) * n);
  for (float& each : all) each = static_cast<int>(random.below(9)) - 4;
  return all;
}

static bool rows_right(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c, int n) {
  std::vector<float> want(n);
  for (int sample = 0; sample < 8; ++sample) {
    const size_t row = size_t(n - 1) * sample / 7;
    std::fill(want.begin(), want.end(), 0.f);
    for (int k = 0; k < n; ++k)
      for (int column = 0; column < n; ++column) want[column] += a[row * n + k] * b[size_t(k) * n + column];
    if (!std::equal(want.begin(), want.end(), c.begin() + row * n)) return false;
  }
  return true;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int n = scale.of(4096, 2 * kTile, kTile), repeats = scale.of(60, 2);
  const auto a = whole_numbers(n, 1), b = whole_numbers(n, 2);
  const DeviceBuffer<float> device_a(a.size()), device_b(a.size()), device_c(a.size());
  const double begin = begin_steady();
  device_a.put(a);
  device_b.put(b);
  for (int i = 0; i < repeats; ++i)
    multiply<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(device_a.get(), device_b.get(), device_c.get(), n);
  CHECK(cudaGetLastError());
  const auto c = device_c.fetch();
  return finish(now_us() - begin, rows_right(a, b, c, n));
}
