// Every state space: local arrays, static and dynamic shared, constants, generic pointers to each, vectors, device
// heap. vm: yes
#include <cstdint>
#include <vector>

#include "check.h"

__constant__ float coefficients[16];
struct alignas(16) Four {
  float x, y, z, w;
};

// nvcc writes the number of elements of an array in front of it, where the operator new[] of a type has no room for it.
struct Counted {
  int number;
  __device__ explicit Counted(int wanted) : number(wanted) {}
  static __device__ void* operator new[](size_t bytes) { return malloc(bytes); }
  static __device__ void operator delete[](void* pointer) noexcept { free(pointer); }
  static __device__ void operator delete[](void* pointer, size_t) noexcept { free(pointer); }
};

__device__ __noinline__ int read(const int* anywhere) { return *anywhere; }  // a generic pointer

// Of a pointer that the compiler knows nothing of.
__device__ __noinline__ int space_of(const void* pointer) {
  asm volatile("" : "+l"(pointer));
  return __isShared(pointer) * 1 + __isGlobal(pointer) * 2 + __isLocal(pointer) * 4 + __isConstant(pointer) * 8;
}

__global__ void spaces(const Four* in, Four* out, int* ints, int n) {
  __shared__ int fixed[64];
  extern __shared__ double dynamic[];
  int local[40];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 40; ++k) local[(k * 7 + i) % 40] = k * i;
  fixed[threadIdx.x] = threadIdx.x * 2;
  dynamic[threadIdx.x] = threadIdx.x * 0.5;
  __syncthreads();
  if (i < n) {
    Four v = in[i];  // one vector load and store
    v.x *= coefficients[0], v.y *= coefficients[i % 16], v.w = static_cast<float>(dynamic[63 - threadIdx.x]);
    out[i] = v;
    int* o = ints + i * 6;
    o[0] = read(&local[i % 40]) + local[5];
    o[1] = read(&fixed[(threadIdx.x + 1) % 64]);
    o[2] = read(ints + n * 6);
    o[3] = __isShared(&fixed[0]) * 1 + __isGlobal(ints) * 2 + __isLocal(&local[i % 40]) * 4 +
           __isConstant(&coefficients[0]) * 8;
    o[3] += space_of(&fixed[0]) * 16 + space_of(ints) * 256 + space_of(&local[i % 40]) * 4096 +
            space_of(&coefficients[15]) * 65536;
    char* bytes = static_cast<char*>(malloc(100));
    for (int k = 0; k < 100; ++k) bytes[k] = static_cast<char>(k + i);
    o[4] = bytes[i % 100];
    free(bytes);
    int* object = new int[3]{i, i + 1, i + 2};
    Counted* counted = new Counted[1]{Counted(i)};
    o[5] = object[0] + object[1] + object[2] + counted->number;
    delete[] counted;
    delete[] object;
  }
}

__global__ void narrow(const signed char* a, const unsigned short* b, long long* out) {
  const int i = threadIdx.x;
  out[i] = static_cast<long long>(a[i]) * b[i];
}

int main() {
  constexpr int kCount = 200;
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = i + 1;
  CHECK(cudaMemcpyToSymbol(coefficients, values, sizeof(values)));
  std::vector<Four> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = {float(i), float(2 * i), float(3 * i), 0};
  Four *din, *dout;
  int* ints;
  const int seven = 7777;
  CHECK(cudaMalloc(&din, kCount * sizeof(Four)));
  CHECK(cudaMalloc(&dout, kCount * sizeof(Four)));
  CHECK(cudaMalloc(&ints, (kCount * 6 + 1) * 4));
  CHECK(cudaMemcpy(ints + kCount * 6, &seven, 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(din, in.data(), kCount * sizeof(Four), cudaMemcpyHostToDevice));
  spaces<<<(kCount + 63) / 64, 64, 64 * sizeof(double)>>>(din, dout, ints, kCount);
  std::vector<int> got(kCount * 6);
  CHECK(cudaMemcpy(out.data(), dout, kCount * sizeof(Four), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(got.data(), ints, kCount * 6 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    EXPECT(out[i].x == i && out[i].y == 2.0f * i * (i % 16 + 1) && out[i].z == 3.0f * i &&
           out[i].w == (63 - i % 64) * 0.5f);
    int local[40];
    for (int k = 0; k < 40; ++k) local[(k * 7 + i) % 40] = k * i;
    EXPECT_EQ(got[i * 6], local[i % 40] + local[5]);
    EXPECT_EQ(got[i * 6 + 1], (i % 64 + 1) % 64 * 2);
    EXPECT_EQ(got[i * 6 + 2], seven);
    EXPECT_EQ(got[i * 6 + 3], 0x8421f);
    EXPECT_EQ(got[i * 6 + 4], static_cast<signed char>(i % 100 + i));
    EXPECT_EQ(got[i * 6 + 5], 4 * i + 3);
  }
  signed char* a;
  unsigned short* b;
  long long *wide, sums[32];
  CHECK(cudaMallocManaged(&a, 32));
  CHECK(cudaMallocManaged(&b, 64));
  CHECK(cudaMalloc(&wide, sizeof(sums)));
  for (int i = 0; i < 32; ++i)
    a[i] = static_cast<signed char>(i * 11 - 128), b[i] = static_cast<unsigned short>(i * 2000);
  narrow<<<1, 32>>>(a, b, wide);
  CHECK(cudaMemcpy(sums, wide, sizeof(sums), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(sums[i], static_cast<long long>(a[i]) * b[i]);
  return passed();
}
