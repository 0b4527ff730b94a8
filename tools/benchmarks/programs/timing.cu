// Small kernels, most of which do one thing over and over: what the timing model of the software device is held
// against. Prints for each how many cycles an SM was at it, the longest of all SMs.
//
// nvcc: -lineinfo
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../../../tests/cuda/check.h"

namespace {

constexpr int kSms = 132, kMostSms = 1024;
constexpr int kTurns = 256;

// When the first block on an SM began and the last one ended, by that SM's clock.
struct Clocks {
  long long* begin;
  long long* end;
};

__device__ unsigned this_sm() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

__device__ void begins(Clocks clocks) {
  if (threadIdx.x == 0) atomicMin(clocks.begin + this_sm(), clock64());
}

__device__ void ends(Clocks clocks) {
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(clocks.end + this_sm(), clock64());
}

}  // namespace

// One warp that waits for each result.
extern "C" __global__ void add_chain(Clocks clocks, int* out, int a, int b) {
  begins(clocks);
  int x = threadIdx.x;
#pragma unroll 16
  for (int i = 0; i < 16 * kTurns; ++i) x = (x ^ a) + b;
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
  ends(clocks);
}

template <class T>
__device__ void multiply_in_turn(Clocks clocks, T* out, T a, T b) {
  begins(clocks);
  T x = threadIdx.x;
#pragma unroll 16
  for (int i = 0; i < 16 * kTurns; ++i) x = fma(x, a, b);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
  ends(clocks);
}
extern "C" __global__ void fma_chain(Clocks clocks, float* out, float a, float b) {
  multiply_in_turn(clocks, out, a, b);
}
extern "C" __global__ void double_chain(Clocks clocks, double* out, double a, double b) {
  multiply_in_turn(clocks, out, a, b);
}

extern "C" __global__ void special_chain(Clocks clocks, float* out) {
  begins(clocks);
  float x = 1 + threadIdx.x;
#pragma unroll 16
  for (int i = 0; i < 16 * kTurns; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
  ends(clocks);
}

// Four independent chains a thread, in as many warps as there is room for.
extern "C" __global__ void fma_many(Clocks clocks, float* out, float a, float b) {
  begins(clocks);
  float x = threadIdx.x, y = x + 1, z = x + 2, w = x + 3;
#pragma unroll 8
  for (int i = 0; i < 4 * kTurns; ++i) {
    x = fmaf(x, a, b);
    y = fmaf(y, a, b);
    z = fmaf(z, a, b);
    w = fmaf(w, a, b);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x + y + z + w;
  ends(clocks);
}

extern "C" __global__ void double_many(Clocks clocks, double* out, double a, double b) {
  begins(clocks);
  double x = threadIdx.x, y = x + 1;
#pragma unroll 8
  for (int i = 0; i < 2 * kTurns; ++i) {
    x = fma(x, a, b);
    y = fma(y, a, b);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
  ends(clocks);
}

extern "C" __global__ void special_many(Clocks clocks, float* out) {
  begins(clocks);
  float x = 1 + threadIdx.x, y = x + 1;
#pragma unroll 8
  for (int i = 0; i < 2 * kTurns; ++i) {
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(y));
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
  ends(clocks);
}

// One warp that follows offsets through shared memory.
extern "C" __global__ void shared_chase(Clocks clocks, int* out, int step) {
  __shared__ int ring[1024];
  begins(clocks);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) ring[i] = (i + step) & 1023;
  __syncthreads();
  int at = threadIdx.x;
#pragma unroll 8
  for (int i = 0; i < 8 * kTurns; ++i) at = ring[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
  ends(clocks);
}

// Each lane's word `apart` words from the next one's: as many turns of the banks.
template <int apart>
__device__ void read_banks(Clocks clocks, int* out) {
  __shared__ volatile int words[1024];
  begins(clocks);
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) words[i] = i;
  __syncthreads();
  int sum = 0;
#pragma unroll 8
  for (int i = 0; i < kTurns; ++i) sum += words[(lane * apart + i) & 1023];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  ends(clocks);
}
extern "C" __global__ void shared_banks_1(Clocks clocks, int* out) { read_banks<1>(clocks, out); }
extern "C" __global__ void shared_banks_4(Clocks clocks, int* out) { read_banks<4>(clocks, out); }
extern "C" __global__ void shared_banks_32(Clocks clocks, int* out) { read_banks<32>(clocks, out); }

// One warp that follows indices of lines, `lines` of them for each block, `turns` times around.
struct Rings {
  const int* first;
  int lines, turns;
};

__device__ void follow(Clocks clocks, Rings rings, int* out) {
  begins(clocks);
  const int* ring = rings.first + size_t(blockIdx.x) * rings.lines * 32;
  int at = 0;
#pragma unroll 4
  for (int i = 0; i < rings.lines * rings.turns; ++i) at = ring[at];
  if (threadIdx.x == 0) out[blockIdx.x] = at;
  ends(clocks);
}
extern "C" __global__ void chase_l1(Clocks clocks, Rings rings, int* out) { follow(clocks, rings, out); }
extern "C" __global__ void chase_l2(Clocks clocks, Rings rings, int* out) { follow(clocks, rings, out); }
extern "C" __global__ void chase_dram(Clocks clocks, Rings rings, int* out) { follow(clocks, rings, out); }

extern "C" __global__ void read_stream(Clocks clocks, const float4* in, float* out, int count) {
  begins(clocks);
  float sum = 0;
#pragma unroll 4
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const float4 v = in[i];
    sum += v.x + v.y + v.z + v.w;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  ends(clocks);
}

extern "C" __global__ void copy_stream(Clocks clocks, const float4* in, float4* out, int count) {
  begins(clocks);
#pragma unroll 4
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = in[i];
  ends(clocks);
}

// Each lane a sector of its own.
extern "C" __global__ void read_sectors(Clocks clocks, const float* in, float* out, int count) {
  begins(clocks);
  float sum = 0;
#pragma unroll 4
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i * 8];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  ends(clocks);
}

extern "C" __global__ void atomics_one(Clocks clocks, int* out) {
  begins(clocks);
  for (int i = 0; i < 16; ++i) atomicAdd(out, static_cast<int>(threadIdx.x) + i);
  ends(clocks);
}

extern "C" __global__ void atomics_spread(Clocks clocks, int* out) {
  begins(clocks);
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned i = 0; i < 16; ++i) atomicAdd(out + (first * 33 + i * 977) % (1 << 16), 1);
  ends(clocks);
}

extern "C" __global__ void barriers(Clocks clocks, int* out) {
  begins(clocks);
  for (int i = 0; i < kTurns; ++i) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
  ends(clocks);
}

// Programs in small.
constexpr int kTile = 16;

extern "C" __global__ void matrix_tiles(Clocks clocks, const float* a, const float* b, float* c, int n) {
  __shared__ float as[kTile][kTile], bs[kTile][kTile];
  begins(clocks);
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile, tiles = n / kTile;
  const int row = blockIdx.x / tiles * kTile + y, column = blockIdx.x % tiles * kTile + x;
  float sum = 0;
  for (int at = 0; at < n; at += kTile) {
    as[y][x] = a[row * n + at + x];
    bs[y][x] = b[(at + y) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum = fmaf(as[y][k], bs[k][x], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
  ends(clocks);
}

extern "C" __global__ void transpose(Clocks clocks, const float* in, float* out, int n) {
  begins(clocks);
  const int x = threadIdx.x % 32, y = threadIdx.x / 32, tiles = n / 32;
  const int row = blockIdx.x / tiles * 32, column = blockIdx.x % tiles * 32;
  for (int i = y; i < 32; i += blockDim.x / 32) out[(column + x) * n + row + i] = in[(row + i) * n + column + x];
  ends(clocks);
}

extern "C" __global__ void transpose_tiles(Clocks clocks, const float* in, float* out, int n) {
  __shared__ float tile[32][33];
  begins(clocks);
  const int x = threadIdx.x % 32, y = threadIdx.x / 32, tiles = n / 32;
  const int row = blockIdx.x / tiles * 32, column = blockIdx.x % tiles * 32;
  for (int i = y; i < 32; i += blockDim.x / 32) tile[i][x] = in[(row + i) * n + column + x];
  __syncthreads();
  for (int i = y; i < 32; i += blockDim.x / 32) out[(column + i) * n + row + x] = tile[x][i];
  ends(clocks);
}

extern "C" __global__ void stencil(Clocks clocks, const float* in, float* out, int n) {
  begins(clocks);
  const int at = blockIdx.x * blockDim.x + threadIdx.x, row = at / n, column = at % n;
  if (row > 0 && row < n - 1 && column > 0 && column < n - 1)
    out[at] = 0.2f * (in[at] + in[at - 1] + in[at + 1] + in[at - n] + in[at + n]);
  ends(clocks);
}

extern "C" __global__ void reduce(Clocks clocks, const float* in, float* out, int count) {
  __shared__ float sums[256];
  begins(clocks);
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i];
  sums[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
  ends(clocks);
}

extern "C" __global__ void bodies(Clocks clocks, const float4* at, float4* force, int count) {
  __shared__ float4 some[256];
  begins(clocks);
  const float4 mine = at[blockIdx.x * blockDim.x + threadIdx.x];
  float x = 0, y = 0, z = 0;
  for (int first = 0; first < count; first += blockDim.x) {
    some[threadIdx.x] = at[first + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 256; ++k) {
      const float4 other = some[k];
      const float dx = other.x - mine.x, dy = other.y - mine.y, dz = other.z - mine.z;
      const float inverse = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f))));
      const float pull = other.w * inverse * inverse * inverse;
      x = fmaf(dx, pull, x);
      y = fmaf(dy, pull, y);
      z = fmaf(dz, pull, z);
    }
    __syncthreads();
  }
  force[blockIdx.x * blockDim.x + threadIdx.x] = {x, y, z, 0};
  ends(clocks);
}

extern "C" __global__ void histogram(Clocks clocks, const unsigned* in, unsigned* out, int count) {
  __shared__ unsigned bins[256];
  begins(clocks);
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[in[i] & 255], 1u);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
  ends(clocks);
}

// A row of a sparse matrix for each thread, with sixteen columns anywhere.
extern "C" __global__ void sparse_rows(Clocks clocks, const int* columns, const float* values, const float* vector,
                                       float* out, int rows) {
  begins(clocks);
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum = fmaf(values[i * rows + row], vector[columns[i * rows + row]], sum);
  out[row] = sum;
  ends(clocks);
}

namespace {

class Bench {
 public:
  explicit Bench(int runs) : runs_(runs) {
    CHECK(cudaMalloc(&clocks_.begin, kMostSms * sizeof(long long)));
    CHECK(cudaMalloc(&clocks_.end, kMostSms * sizeof(long long)));
    if (runs_ > 1) CHECK(cudaMalloc(&others_, kOthers));
  }

  // Caches are cold each time. The median of the runs.
  template <class Launch>
  void run(const char* name, Launch launch) {
    std::vector<long long> each;
    for (int i = 0; i < runs_; ++i) {
      if (others_) CHECK(cudaMemset(others_, i, kOthers));
      CHECK(cudaMemset(clocks_.begin, 0x7f, kMostSms * sizeof(long long)));
      CHECK(cudaMemset(clocks_.end, 0, kMostSms * sizeof(long long)));
      launch(clocks_);
      CHECK(cudaGetLastError());
      CHECK(cudaDeviceSynchronize());
      each.push_back(longest());
    }
    std::sort(each.begin(), each.end());
    std::printf("{\"kernel\": \"%s\", \"cycles\": %lld, \"least\": %lld, \"most\": %lld}\n", name,
                each[each.size() / 2], each.front(), each.back());
  }

 private:
  static constexpr size_t kOthers = size_t{256} << 20;

  long long longest() const {
    std::vector<long long> begin(kMostSms), end(kMostSms);
    CHECK(cudaMemcpy(begin.data(), clocks_.begin, kMostSms * sizeof(long long), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(end.data(), clocks_.end, kMostSms * sizeof(long long), cudaMemcpyDeviceToHost));
    long long most = 0;
    for (int i = 0; i < kMostSms; ++i) most = std::max(most, end[i] - begin[i]);
    return most;
  }

  const int runs_;
  Clocks clocks_{};
  char* others_ = nullptr;
};

template <class T>
T* filled(const std::vector<T>& values) {
  T* memory = nullptr;
  CHECK(cudaMalloc(&memory, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

// `blocks` rings of `lines` lines each, in random order.
Rings rings(int blocks, int lines, int turns) {
  std::mt19937 random(7);
  std::vector<int> all(size_t(blocks) * lines * 32), order(lines);
  for (int block = 0; block < blocks; ++block) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin() + 1, order.end(), random);
    int* const ring = all.data() + size_t(block) * lines * 32;
    for (int i = 0; i < lines; ++i) ring[order[i] * 32] = order[(i + 1) % lines] * 32;
  }
  return {filled(all), lines, turns};
}

void arithmetic(Bench* bench, float* out) {
  const auto ints = reinterpret_cast<int*>(out);
  const auto doubles = reinterpret_cast<double*>(out);
  bench->run("add_chain", [&](Clocks c) { add_chain<<<kSms, 32>>>(c, ints, 3, 5); });
  bench->run("fma_chain", [&](Clocks c) { fma_chain<<<kSms, 32>>>(c, out, 0.5f, 1.0f); });
  bench->run("double_chain", [&](Clocks c) { double_chain<<<kSms, 32>>>(c, doubles, 0.5, 1.0); });
  bench->run("special_chain", [&](Clocks c) { special_chain<<<kSms, 32>>>(c, out); });
  bench->run("fma_many", [&](Clocks c) { fma_many<<<kSms * 2, 1024>>>(c, out, 0.5f, 1.0f); });
  bench->run("double_many", [&](Clocks c) { double_many<<<kSms * 2, 1024>>>(c, doubles, 0.5, 1.0); });
  bench->run("special_many", [&](Clocks c) { special_many<<<kSms * 2, 1024>>>(c, out); });
  bench->run("barriers", [&](Clocks c) { barriers<<<kSms, 256>>>(c, ints); });
}

void shared(Bench* bench, int* out) {
  bench->run("shared_chase", [&](Clocks c) { shared_chase<<<kSms, 32>>>(c, out, 33); });
  bench->run("shared_banks_1", [&](Clocks c) { shared_banks_1<<<kSms, 256>>>(c, out); });
  bench->run("shared_banks_4", [&](Clocks c) { shared_banks_4<<<kSms, 256>>>(c, out); });
  bench->run("shared_banks_32", [&](Clocks c) { shared_banks_32<<<kSms, 256>>>(c, out); });
}

void memory(Bench* bench, float* out) {
  const auto ints = reinterpret_cast<int*>(out);
  const Rings l1 = rings(kSms, 64, 64), l2 = rings(33, 2560, 3), dram = rings(kSms, 2048, 1);
  bench->run("chase_l1", [&](Clocks c) { chase_l1<<<kSms, 32>>>(c, l1, ints); });
  bench->run("chase_l2", [&](Clocks c) { chase_l2<<<33, 32>>>(c, l2, ints); });
  bench->run("chase_dram", [&](Clocks c) { chase_dram<<<kSms, 32>>>(c, dram, ints); });
  constexpr int kWords = 16 << 20;
  const float* words = filled(std::vector<float>(kWords, 1.0f));
  float4* copies = nullptr;
  CHECK(cudaMalloc(&copies, kWords * sizeof(float)));
  const auto quads = reinterpret_cast<const float4*>(words);
  bench->run("read_stream", [&](Clocks c) { read_stream<<<kSms * 8, 256>>>(c, quads, out, kWords / 4); });
  bench->run("copy_stream", [&](Clocks c) { copy_stream<<<kSms * 8, 256>>>(c, quads, copies, kWords / 4); });
  bench->run("read_sectors", [&](Clocks c) { read_sectors<<<kSms * 8, 256>>>(c, words, out, kWords / 8); });
  bench->run("atomics_one", [&](Clocks c) { atomics_one<<<kSms, 256>>>(c, ints); });
  bench->run("atomics_spread", [&](Clocks c) { atomics_spread<<<kSms * 4, 256>>>(c, ints); });
}

void programs(Bench* bench, float* out) {
  constexpr int n = 1056, kCount = n * n;  // 33 tiles of 32 in each direction
  std::mt19937 random(3);
  std::vector<float> values(kCount);
  for (float& value : values) value = static_cast<float>(random() % 1000) / 1000;
  std::vector<unsigned> numbers(kCount);
  for (unsigned& one : numbers) one = random();
  const float *a = filled(values), *b = filled(values);
  const unsigned* in = filled(numbers);
  bench->run("matrix_tiles", [&](Clocks c) { matrix_tiles<<<(n / kTile) * (n / kTile), 256>>>(c, a, b, out, n); });
  bench->run("transpose", [&](Clocks c) { transpose<<<33 * 33, 256>>>(c, a, out, n); });
  bench->run("transpose_tiles", [&](Clocks c) { transpose_tiles<<<33 * 33, 256>>>(c, a, out, n); });
  bench->run("stencil", [&](Clocks c) { stencil<<<kCount / 256, 256>>>(c, a, out, n); });
  bench->run("reduce", [&](Clocks c) { reduce<<<kSms * 4, 256>>>(c, a, out, kCount); });
  constexpr int kBodies = kSms * 256;
  std::vector<float4> places(kBodies);
  for (size_t i = 0; i < places.size(); ++i) places[i] = {values[i], values[2 * i], values[3 * i], 1};
  const float4* at = filled(places);
  const auto forces = reinterpret_cast<float4*>(out);
  bench->run("bodies", [&](Clocks c) { bodies<<<kSms, 256>>>(c, at, forces, 4096); });
  const auto bins = reinterpret_cast<unsigned*>(out);
  bench->run("histogram", [&](Clocks c) { histogram<<<kSms * 4, 256>>>(c, in, bins, kCount); });
  constexpr int kRows = kSms * 512;
  std::vector<int> columns(kRows * 16);
  for (int& one : columns) one = static_cast<int>(random() % kRows);
  const int* where = filled(columns);
  bench->run("sparse_rows", [&](Clocks c) { sparse_rows<<<kRows / 256, 256>>>(c, where, a, b, out, kRows); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: timing RUNS\n");
    return 2;
  }
  Bench bench(std::max(1, std::atoi(argv[1])));
  float* out = nullptr;
  CHECK(cudaMalloc(&out, 16 << 20));
  arithmetic(&bench, out);
  shared(&bench, reinterpret_cast<int*>(out));
  memory(&bench, out);
  programs(&bench, out);
  return 0;
}
