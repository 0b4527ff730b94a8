// Does one thing that a kernel may not do, and says which error the program got: "code 700".
#include <cassert>
#include <cstdio>
#include <cstring>

#include "../cuda/check.h"

__global__ void store(char* at) { *reinterpret_cast<volatile int*>(at) = 1; }
__global__ void load(char* at, int* to) { *to = *reinterpret_cast<volatile int*>(at); }
__global__ void add(char* at) { atomicAdd(reinterpret_cast<int*>(at), 1); }
__global__ void wide(char* at) { *reinterpret_cast<float4*>(at) = make_float4(1, 2, 3, 4); }
__global__ void stop() { asm volatile("trap;"); }
__global__ void never() { assert(threadIdx.x > 1000); }
__global__ void shared(unsigned at, int* to) {
  extern __shared__ int words[];
  words[threadIdx.x] = 7;
  __syncthreads();
  *to = words[at];
}
// Half of the block goes astray; the other half waits for it.
__global__ void block(char* at, int* to) {
  if (threadIdx.x % 2) *reinterpret_cast<volatile int*>(at) = 1;
  __syncthreads();
  atomicAdd(to, 1);
}
// Never ends by itself: what it waits for cannot be read.
__global__ void wait(char* at) {
  while (*reinterpret_cast<volatile int*>(at) == 0) {
  }
}
__device__ int first(int x) { return x + 1; }
__device__ int second(int x) { return x + 2; }
__device__ int (*functions[2])(int) = {first, second};
__global__ void call(long wrong, int* to) {
  int (*function)(int) = functions[*to & 1];
  if (wrong) function = reinterpret_cast<int (*)(int)>(wrong);
  *to = function(*to);
}

int main(int argc, char** argv) {
  const auto is = [&](const char* deed) { return argc > 1 && std::strcmp(argv[1], deed) == 0; };
  char *memory = nullptr, *const low = reinterpret_cast<char*>(0x1000);
  int* to = nullptr;
  CHECK(cudaMalloc(&memory, 4096));
  CHECK(cudaMalloc(&to, sizeof(int)));
  CHECK(cudaMemset(to, 0, sizeof(int)));
  if (is("store")) store<<<1, 1>>>(low);
  if (is("far")) store<<<1, 1>>>(reinterpret_cast<char*>(0x7ffff0000000));
  if (is("load")) load<<<1, 1>>>(low, to);
  if (is("atomic")) add<<<1, 1>>>(low);
  if (is("misaligned")) store<<<1, 1>>>(memory + 1);
  if (is("misaligned-wide")) wide<<<1, 1>>>(memory + 8);
  if (is("trap")) stop<<<1, 1>>>();
  if (is("assert")) never<<<1, 32>>>();
  if (is("shared")) shared<<<1, 32, 128>>>(1 << 20, to);
  if (is("block")) block<<<4, 256>>>(low, to);
  if (is("wait")) wait<<<1, 1>>>(low);
  if (is("call")) call<<<1, 1>>>(0x1230, to);
  if (is("nothing")) {
    store<<<1, 1>>>(memory);
    load<<<1, 1>>>(memory, to);
    shared<<<1, 32, 128>>>(31, to);
    call<<<1, 1>>>(0, to);
    int now = 0;
    CHECK(cudaMemcpy(&now, to, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(now, 9);
  }
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("code %d\n", static_cast<int>(error));
  EXPECT_EQ(static_cast<int>(cudaDeviceSynchronize()), static_cast<int>(error));
  return 0;
}
