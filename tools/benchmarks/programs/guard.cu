// What guarding kernels costs: kernels of the usual kinds, timed launch by launch with events. Prints a line of JSON
// for each: its name, the milliseconds of each launch, a sum of what it computed. Arguments: launches, a scale (1 to
// 64).
#include <cstdint>
#include <cstring>
#include <string>

#include "measure.h"

constexpr int kThreads = 256, kTile = 16;

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

// As libraries do it: 16 bytes at a time, indices of 64 bits, a grid that strides.
__global__ void scale(const float4* a, float4* c, size_t n, float factor) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    const float4 v = a[i];
    c[i] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
  }
}

__global__ void multiply(const float* a, const float* b, float* c, int n) {
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[y * n + k] * b[k * n + x];
  c[y * n + x] = sum;
}

__global__ void multiply_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * kTile + tx, y = blockIdx.y * kTile + ty;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    left[ty][tx] = a[y * n + t + tx];
    right[ty][tx] = b[(t + ty) * n + x];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[ty][k] * right[k][tx];
    __syncthreads();
  }
  c[y * n + x] = sum;
}

__global__ void stencil(const float* in, float* out, long side) {
  const long x = blockIdx.x * long{blockDim.x} + threadIdx.x + 1, y = blockIdx.y * long{blockDim.y} + threadIdx.y + 1;
  if (x >= side - 1 || y >= side - 1) return;
  out[y * side + x] =
      0.25f * (in[(y - 1) * side + x] + in[(y + 1) * side + x] + in[y * side + x - 1] + in[y * side + x + 1]);
}

__global__ void reduce(const float* in, float* out, int n) {
  extern __shared__ float part[];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__global__ void histogram(const float* in, uint32_t* bins, int n) {
  __shared__ uint32_t own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[static_cast<uint32_t>(in[i] * 255) & 255], 1u);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

__global__ void transpose(const float* in, float* out, int n) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
  __syncthreads();
  const int to_x = blockIdx.y * 32 + threadIdx.x, to_y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(to_y + j) * n + to_x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void bodies(const float4* in, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 me = in[i];
  float x = 0, y = 0, z = 0;
  for (int j = 0; j < n; ++j) {
    const float4 other = in[j];
    const float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
    const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), force = other.w * inverse * inverse * inverse;
    x += dx * force, y += dy * force, z += dz * force;
  }
  out[i] = make_float4(x, y, z, 0);
}

// Indices from memory: each access goes where the last one said.
__global__ void gather(const uint32_t* next, uint32_t* out, int steps, uint32_t mask) {
  uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) & mask;
  for (int i = 0; i < steps; ++i) at = next[at] & mask;
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

struct Item {
  const Item* next;
  uint32_t value, unused;
};

// Pointers from memory.
__global__ void chase(const Item* items, uint32_t* out, int steps, uint32_t mask) {
  const Item* at = items + ((blockIdx.x * blockDim.x + threadIdx.x) & mask);
  uint32_t sum = 0;
  for (int i = 0; i < steps; ++i, at = at->next) sum += at->value;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void link(Item* items, uint32_t* next, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t to = (i * 1664525u + 1013904223u) & (count - 1);
  items[i].next = items + to;
  items[i].value = next[i] = to;
}

__global__ void ramp(float* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = static_cast<float>(i % 1021) / 1021;
}

static cudaEvent_t begin, end;

template <typename Launch>
static void figure(const char* name, int launches, const void* result, size_t bytes, Launch launch) {
  std::string times;
  for (int i = 0; i <= launches; ++i) {
    CHECK(cudaEventRecord(begin));
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0) times += (times.empty() ? "" : ", ") + std::to_string(ms);
  }
  std::vector<uint32_t> words(bytes / 4);
  CHECK(cudaMemcpy(words.data(), result, bytes, cudaMemcpyDeviceToHost));
  uint64_t sum = 0;
  for (const uint32_t word : words) sum = sum * 31 + word;
  std::printf("{\"kernel\": \"%s\", \"ms\": [%s], \"sum\": %llu}\n", name, times.c_str(),
              static_cast<unsigned long long>(sum));
}

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 10, scale_by = argc > 2 ? std::atoi(argv[2]) : 1;
  const int count = (1 << 20) * scale_by, side = scale_by >= 16 ? 1024 : 128, blocks = count / kThreads;
  const long field = scale_by >= 16 ? 8192 : 1024;
  const int stars = scale_by >= 16 ? 32768 : 1024, links = 1 << (scale_by >= 16 ? 22 : 16);
  float *a = nullptr, *b = nullptr, *c = nullptr;
  Item* items = nullptr;
  uint32_t *next = nullptr, *bins = nullptr;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaMalloc(&a, size_t{4} * count));
  CHECK(cudaMalloc(&b, size_t{4} * count));
  CHECK(cudaMalloc(&c, size_t{4} * count));
  CHECK(cudaMalloc(&items, sizeof(Item) * links));
  CHECK(cudaMalloc(&next, size_t{4} * links));
  CHECK(cudaMalloc(&bins, 1024));
  CHECK(cudaMemset(bins, 0, 1024));
  CHECK(cudaMemset(c, 0, size_t{4} * count));
  ramp<<<blocks, kThreads>>>(a, count);
  ramp<<<blocks, kThreads>>>(b, count);
  link<<<links / kThreads, kThreads>>>(items, next, static_cast<uint32_t>(links));
  const dim3 tile(kTile, kTile), tiles(side / kTile, side / kTile), wide(32, 8);
  const int square = 1 << (scale_by >= 16 ? 12 : 9), grid = scale_by >= 16 ? 1056 : 16;
  const auto mask = static_cast<uint32_t>(links - 1);
  auto* const words = reinterpret_cast<uint32_t*>(c);
  const size_t check = 4096;
  figure("vector add", launches, c, check, [&] { vector_add<<<blocks, kThreads>>>(a, b, c, count); });
  figure("scale, 16 bytes", launches, c, check, [&] {
    scale<<<grid, kThreads>>>(reinterpret_cast<float4*>(a), reinterpret_cast<float4*>(c), size_t(count) / 4, 3);
  });
  figure("matrix product", launches, c, check, [&] { multiply<<<tiles, tile>>>(a, b, c, side); });
  figure("matrix product, tiled", launches, c, check, [&] { multiply_tiled<<<tiles, tile>>>(a, b, c, side); });
  if (field * field <= count)
    figure("stencil, 64-bit indices", launches, c + field, check,
           [&] { stencil<<<dim3(field / 32, field / 8), wide>>>(a, c, field); });
  figure("reduction", launches, c, grid * 4, [&] { reduce<<<grid, kThreads, kThreads * 4>>>(a, c, count); });
  figure("histogram", launches, bins, 1024, [&] { histogram<<<grid, 256>>>(a, bins, count); });
  figure("transpose", launches, c, check, [&] { transpose<<<dim3(square / 32, square / 32), wide>>>(a, c, square); });
  figure("bodies", launches, c, check, [&] {
    bodies<<<stars / kThreads, kThreads>>>(reinterpret_cast<float4*>(a), reinterpret_cast<float4*>(c), stars);
  });
  figure("gather", launches, c, check, [&] { gather<<<grid, kThreads>>>(next, words, 256, mask); });
  figure("pointers", launches, c, check, [&] { chase<<<grid, kThreads>>>(items, words, 256, mask); });
  return 0;
}
