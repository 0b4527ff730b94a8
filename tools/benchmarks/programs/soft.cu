// The software device against the same algorithms in C++ on the same cores: tiled matrix multiply, vector add,
// reduction.
#include <thread>

#include "measure.h"

constexpr int kTile = 16;

__global__ void multiply_device(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int at = 0; at < n; at += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + at + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void add_device(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void sum_device(const float* data, int n, float* total) {
  float mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += data[i];
  for (int by = 16; by; by /= 2) mine += __shfl_down_sync(0xffffffffu, mine, by);
  if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}

// The same tiles, copied and multiplied block by block as the kernel does.
static void multiply_host(const float* a, const float* b, float* c, int n, int first_block, int last_block) {
  for (int block = first_block; block < last_block; ++block)
    for (int column = 0; column < n; column += kTile) {
      float tile_a[kTile][kTile], tile_b[kTile][kTile], sum[kTile][kTile] = {};
      const int row = block * kTile;
      for (int at = 0; at < n; at += kTile) {
        for (int y = 0; y < kTile; ++y)
          for (int x = 0; x < kTile; ++x) {
            tile_a[y][x] = a[(row + y) * n + at + x];
            tile_b[y][x] = b[(at + y) * n + column + x];
          }
        for (int y = 0; y < kTile; ++y)
          for (int k = 0; k < kTile; ++k)
            for (int x = 0; x < kTile; ++x) sum[y][x] += tile_a[y][k] * tile_b[k][x];
      }
      for (int y = 0; y < kTile; ++y)
        for (int x = 0; x < kTile; ++x) c[(row + y) * n + column + x] = sum[y][x];
    }
}

// Runs part(first, last) of `count` on every core.
template <typename Part>
static void on_all_cores(int count, Part part) {
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int core = 0; core < cores; ++core)
    threads.emplace_back([=] { part(count / cores * core, core == cores - 1 ? count : count / cores * (core + 1)); });
  for (auto& thread : threads) thread.join();
}

static void matrix(int n) {
  std::vector<float> a(n * n), b(n * n), c(n * n), got(n * n);
  for (int i = 0; i < n * n; ++i) a[i] = i % 13 - 6, b[i] = i % 7 - 3;
  float *da, *db, *dc;
  CHECK(cudaMalloc(&da, n * n * 4));
  CHECK(cudaMalloc(&db, n * n * 4));
  CHECK(cudaMalloc(&dc, n * n * 4));
  CHECK(cudaMemcpy(da, a.data(), n * n * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * n * 4, cudaMemcpyHostToDevice));
  std::vector<double> device, host;
  for (int i = 0; i < 5; ++i) {
    device.push_back(median_us(1, [&] {
      multiply_device<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(da, db, dc, n);
      CHECK(cudaDeviceSynchronize());
    }));
    host.push_back(median_us(1, [&] {
      on_all_cores(n / kTile,
                   [&](int first, int last) { multiply_host(a.data(), b.data(), c.data(), n, first, last); });
    }));
  }
  CHECK(cudaMemcpy(got.data(), dc, n * n * 4, cudaMemcpyDeviceToHost));
  if (got != c) std::fprintf(stderr, "wrong product\n"), std::exit(1);
  const double d = median(device), h = median(host);
  report("matrix multiply 1024, time", d / 1e3, "ms", h / 1e3, "C++, same tiles", d / h, "<= 8");
}

static void stream() {
  constexpr int kCount = 1 << 24;
  std::vector<float> a(kCount, 1), b(kCount, 2), c(kCount);
  float *da, *db, *dc, *total;
  CHECK(cudaMalloc(&da, kCount * 4));
  CHECK(cudaMalloc(&db, kCount * 4));
  CHECK(cudaMalloc(&dc, kCount * 4));
  CHECK(cudaMalloc(&total, 4));
  CHECK(cudaMemcpy(da, a.data(), kCount * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), kCount * 4, cudaMemcpyHostToDevice));
  std::vector<double> device, host, sums, host_sums;
  volatile float sink = 0;
  for (int i = 0; i < 11; ++i) {
    device.push_back(median_us(1, [&] {
      add_device<<<kCount / 256, 256>>>(da, db, dc, kCount);
      CHECK(cudaDeviceSynchronize());
    }));
    host.push_back(median_us(1, [&] {
      on_all_cores(kCount, [&](int first, int last) {
        const float* __restrict x = a.data();
        const float* __restrict y = b.data();
        float* __restrict z = c.data();
        for (int k = first; k < last; ++k) z[k] = x[k] + y[k];
      });
    }));
    sums.push_back(median_us(1, [&] {
      sum_device<<<64, 256>>>(da, kCount, total);
      CHECK(cudaDeviceSynchronize());
    }));
    host_sums.push_back(median_us(1, [&] {
      on_all_cores(kCount, [&](int first, int last) {
        float part[16] = {};
        for (int k = first; k + 16 <= last; k += 16)
          for (int j = 0; j < 16; ++j) part[j] += a[k + j];
        float all = 0;
        for (float each : part) all += each;
        sink = sink + all;
      });
    }));
  }
  const double bytes = 3.0 * 4 * kCount, d = median(device), h = median(host);
  report("vector add 16 Mi, bandwidth", bytes / d / 1e3, "GB/s", bytes / h / 1e3, "STREAM-like loop", h / d, ">= 0.5");
  const double s = median(sums), hs = median(host_sums);
  report("reduction 16 Mi, time", s / 1e3, "ms", hs / 1e3, "C++ loop", s / hs, "");
}

int main() {
  matrix(1024);
  stream();
  return 0;
}
