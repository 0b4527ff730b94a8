// What the programs about bad input share: calls that may answer with one of several codes, and work that shows that
// the process still has its GPU.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "check.h"

// A call that must answer with one of the codes (bare metal gives different ones by version).
#define EXPECT_ONE_OF(call, ...)                                                                        \
  do {                                                                                                  \
    const int one_code = static_cast<int>(call);                                                        \
    const std::initializer_list<int> one_wanted = {__VA_ARGS__};                                        \
    if (std::find(one_wanted.begin(), one_wanted.end(), one_code) == one_wanted.end()) {                \
      std::printf("%s:%d: %s: code %d is none of the expected\n", __FILE__, __LINE__, #call, one_code); \
      std::exit(1);                                                                                     \
    }                                                                                                   \
  } while (0)

// A call that must fail, with whatever the driver finds wrong; only the host side's end is no answer.
#define EXPECT_REFUSED(call)                                                                            \
  do {                                                                                                  \
    const int refused_code = static_cast<int>(call);                                                    \
    if (refused_code == CUDA_SUCCESS || refused_code == CUDA_ERROR_DEVICE_UNAVAILABLE) {                \
      std::printf("%s:%d: %s: code %d, expected a refusal\n", __FILE__, __LINE__, #call, refused_code); \
      std::exit(1);                                                                                     \
    }                                                                                                   \
  } while (0)

// In no allocation of anybody, and an address that a program could have.
constexpr CUdeviceptr kWild = 0x7000deadb000ull;

static __global__ void double_each(int* data) { data[threadIdx.x] *= 2; }

// Memory, copies in both directions and a launch in the runtime's context; no error is left over from before.
inline void real_work() {
  constexpr int kCount = 256;
  int values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = i;
  int* device = nullptr;
  cudaGetLastError();
  CHECK(cudaMalloc(&device, sizeof(values)));
  CHECK(cudaMemcpy(device, values, sizeof(values), cudaMemcpyHostToDevice));
  double_each<<<1, kCount>>>(device);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(values, device, sizeof(values), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(values[i], 2 * i);
  CHECK(cudaFree(device));
}
