// Kernels for codegen_kernels_test.cc; codegen.ptx is made by: nvcc -ptx -arch=sm_80 -rdc=true codegen.cu
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

template <int T>
__device__ void tile_product(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[T][T], sb[T][T];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, column = blockIdx.x * T + tx;
  float sum = 0;
  for (int t = 0; t < n / T; ++t) {
    sa[ty][tx] = a[row * n + t * T + tx];
    sb[ty][tx] = b[(t * T + ty) * n + column];
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += sa[ty][k] * sb[k][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
extern "C" __global__ void matmul16(const float* a, const float* b, float* c, int n) { tile_product<16>(a, b, c, n); }
extern "C" __global__ void matmul32(const float* a, const float* b, float* c, int n) { tile_product<32>(a, b, c, n); }

extern "C" __global__ void reduce(const int* in, int* out, int n) {
  __shared__ int partial[32];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

// Each lane its own number of iterations, an inner branch, an early exit.
extern "C" __global__ void collatz(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned v = in[i], steps = 0;
  while (v != 1) {
    if (v & 1) v = 3 * v + 1;
    else v /= 2;
    if (++steps > 1000) { out[i] = 0xffffffff; return; }
  }
  out[i] = steps;
}

// A lock taken by every lane of every warp.
extern "C" __global__ void spin_lock(int* lock, int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      int v = *(volatile int*)counter;
      *(volatile int*)counter = v + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
extern "C" __global__ void spin_lock_plain(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {}
  *(volatile int*)counter = *(volatile int*)counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}
// Lane 0 waits for lane 1.
extern "C" __global__ void lane_waits(volatile int* flag, int* out) {
  if (threadIdx.x == 0) {
    while (*flag == 0) {}
    *out = 7;
  }
  if (threadIdx.x == 1) *flag = 1;
}

extern "C" __global__ void grid_sum(int* data, int* out) {
  auto grid = cg::this_grid();
  data[grid.thread_rank()] = grid.thread_rank() + 1;
  grid.sync();
  if (threadIdx.x == 0) {
    int s = 0;
    for (unsigned i = 0; i < grid.size(); ++i) s += ((volatile int*)data)[i];
    out[blockIdx.x] = s;
  }
  grid.sync();
  data[grid.thread_rank()] = out[(blockIdx.x + 1) % gridDim.x];
}

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursion(int* out) { out[threadIdx.x] = fib(threadIdx.x % 12); }
__device__ __noinline__ int endless(int n, int* p) { p[0] = n; return n == -1 ? 0 : endless(n + 1, p) + p[1]; }
extern "C" __global__ void deep(int* out) { out[2] = endless(1, out); }

struct Blob { int a[10]; float b; double c; char d; short e; };
__device__ __noinline__ Blob change(Blob s, int i) {
  s.a[i]++;
  s.c *= 2;
  s.d = s.d + 1;
  s.e = -s.e;
  return s;
}
extern "C" __global__ void structs(Blob* p) { p[threadIdx.x] = change(p[threadIdx.x], threadIdx.x % 10); }

typedef float (*Function)(float);
__device__ float plus_one(float x) { return x + 1; }
__device__ float twice(float x) { return x * 2; }
__device__ float minus(float x) { return -x; }
__device__ Function table[3] = {plus_one, twice, minus};
extern "C" __global__ void pointers(float* p) { p[threadIdx.x] = table[threadIdx.x % 3](p[threadIdx.x]); }
extern "C" __global__ void wild_pointer(float* p, Function f) { p[threadIdx.x] = f(p[threadIdx.x]); }

extern "C" __global__ void says(int n) {
  printf("number %d\n", n + threadIdx.x);
  assert(n < 100);
}

__constant__ int weights[4] = {1, 10, 100, 1000};
__device__ int global_value = 5;
extern "C" __global__ void variables(int* out) {
  out[threadIdx.x] = weights[threadIdx.x & 3] + global_value;
}

extern "C" __global__ void dynamic_shared(int* out) {
  extern __shared__ int words[];
  __shared__ int fixed[3];
  if (threadIdx.x < 3) fixed[threadIdx.x] = 1000 * (threadIdx.x + 1);
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x] + fixed[threadIdx.x % 3];
}

extern "C" __global__ void local_array(int* out, int n) {
  int v[16];
  for (int i = 0; i < 16; ++i) v[i] = i * n;
  for (int i = 0; i < n; ++i) v[(i * 7 + threadIdx.x) % 16] += v[(i + threadIdx.x * 3) % 16];
  int s = 0;
  for (int i = 0; i < 16; ++i) s = s * 31 + v[i];
  out[threadIdx.x] = s;
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[in[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}

extern "C" __global__ void maths(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  out[i] = expf(x) + sinf(x) * cosf(x) + sqrtf(fabsf(x)) + logf(fabsf(x) + 1) + powf(fabsf(x), 0.3f) + x / 3.7f + fmodf(x, 1.3f);
}
extern "C" __global__ void maths64(const double* in, double* out, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  double x = in[i];
  out[i] = exp(x) + sin(x) * cos(x) + sqrt(fabs(x)) + log(fabs(x) + 1) + x / 3.7;
}
extern "C" __global__ void halves(const __half2* a, const __half2* b, __half2* out) {
  int i = threadIdx.x;
  out[i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
}
extern "C" __global__ void double_atomic(double* sum, __half* h) {
  atomicAdd(sum, 0.5);
  atomicAdd(h, __float2half(1.0f));
}
extern "C" __global__ void votes(unsigned* out) {
  unsigned lane = threadIdx.x;
  out[lane] = __ballot_sync(0xffffffff, lane % 3 == 0);
  out[32 + lane] = __match_any_sync(0xffffffff, lane / 5);
  out[64 + lane] = __reduce_add_sync(0xffffffff, lane);
  if (lane & 1) out[96 + lane] = __shfl_sync(0xaaaaaaaa, lane * 10, lane - 2, 8);
  else out[96 + lane] = __activemask();
  out[128 + lane] = __all_sync(0xffffffff, lane < 32) + 2 * __any_sync(0xffffffff, lane > 40);
}
extern "C" __global__ void barrier_counts(int* out) {
  int c = __syncthreads_count(threadIdx.x % 3 == 0), a = __syncthreads_and(threadIdx.x < 1000), o = __syncthreads_or(threadIdx.x == 77);
  out[threadIdx.x] = c * 4 + a * 2 + o;
}
extern "C" __global__ void endless_loop(volatile int* p) { while (*p == 0) {} }
extern "C" __global__ void wild_store(int* p, long i) { p[i] = 1; }
extern "C" __global__ void switches(const int* in, int* out) {
  int v = in[threadIdx.x], r;
  switch (v) {
    case 0: r = 11; break;
    case 1: r = 22 + v; break;
    case 2: r = 33 * v; break;
    case 3: r = in[0]; break;
    case 4: r = 55; for (int i = 0; i < v; ++i) r += in[i]; break;
    case 5: r = 66; break;
    case 6: r = 77; break;
    case 7: r = in[31] - 1; break;
    default: r = -1;
  }
  out[threadIdx.x] = r;
}

// The same barrier in two places, and a named barrier of half the block.
extern "C" __global__ void split_barriers(int* out) {
  __shared__ int v[64];
  v[threadIdx.x] = threadIdx.x;
  if (threadIdx.x % 2) {
    asm volatile("barrier.sync 0;" ::: "memory");
    out[threadIdx.x] = v[63 - threadIdx.x];
  } else {
    asm volatile("barrier.sync 0;" ::: "memory");
    out[threadIdx.x] = v[63 - threadIdx.x] + 1000;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    v[threadIdx.x] = out[threadIdx.x] * 2;
    asm volatile("bar.sync 1, 32;" ::: "memory");
    out[threadIdx.x] = v[31 - threadIdx.x];
  }
}
extern "C" __global__ void gather(const int* in, const int* at, int* out, double* wide) {
  int i = threadIdx.x;
  if (i % 5 != 2) {
    out[at[i]] = in[at[i] * 3];
    wide[at[i]] = wide[at[i] + 64] + 1;
  }
}
