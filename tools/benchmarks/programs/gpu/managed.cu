// Managed memory: prefetches both ways, first touches from each side, sgemm on managed matrices (cuBLAS, if the
// toolkit's is found), particles that step on the device and are read by the host in between, and matrix-vector tasks
// from four threads. Results are checked. Argument: scale.
#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "program.h"

static bool correct = true;

static cudaMemLocation device_side() { return {cudaMemLocationTypeDevice, 0}; }
static cudaMemLocation host_side() { return {cudaMemLocationTypeHost, 0}; }

template <typename T>
static T* managed(size_t count) {
  T* data = nullptr;
  CHECK(cudaMallocManaged(&data, count * sizeof(T)));
  return data;
}

static __global__ void add(float* data, size_t count, float what) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    data[i] += what;
}

// The calls' own time and the stream's, in turns; each side writes before, so that bytes have to move.
static void prefetches(size_t bytes, int runs) {
  const size_t count = bytes / sizeof(float);
  float* const data = managed<float>(count);
  std::vector<double> in, out, host_touch, device_touch;
  float expected = 1;
  for (size_t i = 0; i < count; ++i) data[i] = expected;
  const auto moved = [&](cudaMemLocation to) {
    const double begin = now_us();
    CHECK(cudaMemPrefetchAsync(data, bytes, to, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    return static_cast<double>(bytes) / 1e3 / (now_us() - begin);
  };
  const auto touched = [&](const std::function<void()>& work) {
    const double begin = now_us();
    work();
    return static_cast<double>(bytes) / 1e3 / (now_us() - begin);
  };
  const auto kernel = [&] {
    add<<<1024, 256>>>(data, count, 1);
    CHECK(cudaDeviceSynchronize());
    expected += 1;
  };
  const auto read = [&] {
    for (size_t i = 0; i < count; i += 1024) correct = correct && data[i] == expected;
  };
  const auto write = [&] {
    for (size_t i = 0; i < count; i += 1024) data[i] = expected;
  };
  for (int run = 0; run < runs; ++run) {
    write();
    in.push_back(moved(device_side()));
    kernel();
    out.push_back(moved(host_side()));
    read();
    write();
    device_touch.push_back(touched(kernel));
    host_touch.push_back(touched(read));
  }
  const std::string size = ", " + std::to_string(bytes >> 20) + " MiB";
  value(("managed: prefetch to the device" + size).c_str(), median(in), "GB/s");
  value(("managed: prefetch to the host" + size).c_str(), median(out), "GB/s");
  value(("managed: first kernel after the host wrote" + size).c_str(), median(device_touch), "GB/s");
  value(("managed: the host reads after a kernel" + size).c_str(), median(host_touch), "GB/s");
  CHECK(cudaFree(data));
}

// Without cuBLAS: sums of 16 x 16 tiles.
static __global__ void tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float left[16][16], right[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n; tile += 16) {
    left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

using Sgemm = int (*)(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*,
                      float*, int);

static Sgemm find_cublas(void** handle) {
  for (const char* const name : {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"}) {
    void* const library = dlopen(name, RTLD_NOW);
    if (!library) continue;
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
    const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cublasSgemm_v2"));
    if (create && sgemm && create(handle) == 0) return sgemm;
  }
  return nullptr;
}

static void matrices(int n, int runs) {
  const size_t count = static_cast<size_t>(n) * n;
  float *const a = managed<float>(count), *const b = managed<float>(count), *const c = managed<float>(count);
  for (size_t i = 0; i < count; ++i) a[i] = 1, b[i] = 2, c[i] = 0;
  void* handle = nullptr;
  const float one = 1, zero = 0;
  Sgemm sgemm = find_cublas(&handle);
  if (sgemm && sgemm(handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n) != 0) sgemm = nullptr;  // no machine code
  const double begin = now_us();
  for (int run = 0; run < runs; ++run) {
    if (sgemm && sgemm(handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n) != 0) correct = false;
    if (!sgemm) tiled<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
  }
  CHECK(cudaDeviceSynchronize());
  for (size_t i = 0; i < count; i += 4099) correct = correct && c[i] == 2.0f * static_cast<float>(n);
  value(sgemm ? "managed: cuBLAS sgemm" : "managed: tiled sgemm", (now_us() - begin) / 1e6, "s");
  for (float* const matrix : {a, b, c}) CHECK(cudaFree(matrix));
}

struct Particle {
  float x, y, z, vx, vy, vz;
};

static __global__ void step(Particle* particles, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Particle& p = particles[i];
  p.x += p.vx, p.y += p.vy, p.z += p.vz;
}

// The host reads a few of them after each step, and all at the end.
static void particles(int count, int steps) {
  Particle* const all = managed<Particle>(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) all[i] = {0, 0, 0, 1, 2, static_cast<float>(i % 3)};
  const double begin = now_us();
  for (int i = 1; i <= steps; ++i) {
    step<<<(count + 255) / 256, 256>>>(all, count);
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < 8; ++k) correct = correct && all[k * (count / 8)].x == static_cast<float>(i);
  }
  for (int i = 0; i < count; ++i) correct = correct && all[i].y == 2.0f * static_cast<float>(steps);
  value("managed: particles, read after each step", (now_us() - begin) / steps, "us");
  CHECK(cudaFree(all));
}

static __global__ void multiply(const double* matrix, const double* vector, double* result, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  double sum = 0;
  for (int column = 0; column < n; ++column) sum += matrix[static_cast<size_t>(column) * n + row] * vector[column];
  result[row] = sum;
}

// Small ones on the host, beside the others' kernels.
static void task(int number, int n, cudaStream_t stream, std::atomic<bool>* right) {
  double *const matrix = managed<double>(static_cast<size_t>(n) * n), *const vector = managed<double>(n),
                *const result = managed<double>(n);
  for (int i = 0; i < n; ++i) vector[i] = i % 5;
  for (size_t i = 0; i < static_cast<size_t>(n) * n; ++i) matrix[i] = number % 7 + 1;
  const bool on_host = n < 100;
  for (double* const memory : {matrix, vector, result})
    CHECK(cudaStreamAttachMemAsync(stream, memory, 0, on_host ? cudaMemAttachHost : cudaMemAttachSingle));
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += vector[i] * (number % 7 + 1);
  if (!on_host) multiply<<<(n + 127) / 128, 128, 0, stream>>>(matrix, vector, result, n);
  CHECK(cudaStreamSynchronize(stream));
  for (int row = 0; on_host && row < n; ++row) {
    result[row] = 0;
    for (int column = 0; column < n; ++column)
      result[row] += matrix[static_cast<size_t>(column) * n + row] * vector[column];
  }
  for (int row = 0; row < n; ++row) {
    if (result[row] != sum) *right = false;
  }
  for (double* const memory : {matrix, vector, result}) CHECK(cudaFree(memory));
}

static void tasks(const char* name, int count) {
  constexpr int kThreads = 4;
  std::atomic<bool> right{true};
  const double begin = now_us();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=, &right] {
      cudaStream_t stream;
      CHECK(cudaStreamCreate(&stream));
      for (int number = t; number < count; number += kThreads) task(number, 64 + number * 97 % 900, stream, &right);
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  correct = correct && right;
  value(name, (now_us() - begin) / 1e6, "s");
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  begin_steady();
  prefetches(static_cast<size_t>(scale.of(1024, 16)) << 20, 5);
  matrices(scale.of(4096, 64, 16), scale.of(100));
  particles(scale.of(1 << 22, 1 << 14), scale.of(200, 5));
  tasks("managed: 40 tasks from four threads", 40);
  tasks("managed: a thousand tasks from four threads", scale.of(1000, 100));
  std::printf("{\"correct\":%s}\n", correct ? "true" : "false");
  return correct ? 0 : 1;
}
