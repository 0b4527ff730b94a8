// nvcc: -lcuda
// The launch calls of CUDA 3: block shape, shared memory and parameters are kept with the function.
#include <cstring>

#include "check.h"

struct Pair {
  int a, b;
};

extern "C" __global__ void combine(float* out, int count, float factor, Pair pair) {
  extern __shared__ float scratch[];
  const int i = blockIdx.x * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x +
                blockIdx.y * gridDim.x * blockDim.x * blockDim.y;
  scratch[threadIdx.y * blockDim.x + threadIdx.x] = factor * i;
  __syncthreads();
  if (i < count) out[i] = scratch[threadIdx.y * blockDim.x + threadIdx.x] + pair.a * 10 + pair.b;
}

extern "C" __global__ void once(int* out) { atomicAdd(out, 1); }

void check(const float* out, int count, float factor, int constant) {
  float* host = new float[count];
  CHECK(cudaMemcpy(host, out, count * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; i++) EXPECT_EQ(host[i], factor * i + constant);
  delete[] host;
}

int main() {
  constexpr int kCount = 4 * 3 * 64;
  float* out = nullptr;
  CHECK(cudaMalloc(&out, kCount * sizeof(float)));
  cudaFunction_t symbol = nullptr;
  CHECK(cudaGetFuncBySymbol(&symbol, reinterpret_cast<const void*>(combine)));
  CUfunction function = reinterpret_cast<CUfunction>(symbol);

  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(function, 0, 1, 1));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(function, -1, 1, 1));
  CHECK_DRIVER(cuFuncSetBlockShape(function, 16, 4, 1));
  CHECK_DRIVER(cuFuncSetSharedSize(function, 64 * sizeof(float)));
  // out at 0, count at 8, factor at 12, pair at 16.
  Pair pair{4, 2};
  CHECK_DRIVER(cuParamSetSize(function, 24));
  CHECK_DRIVER(cuParamSetv(function, 0, &out, sizeof(out)));
  CHECK_DRIVER(cuParamSeti(function, 8, kCount));
  CHECK_DRIVER(cuParamSetf(function, 12, 0.5f));
  CHECK_DRIVER(cuParamSetv(function, 16, &pair, sizeof(pair)));
  CHECK_DRIVER(cuLaunchGrid(function, 4, 3));
  CHECK_DRIVER(cuCtxSynchronize());
  check(out, kCount, 0.5f, 42);

  // What is not set again stays.
  CUstream stream;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuParamSetf(function, 12, 2.0f));
  CHECK_DRIVER(cuLaunchGridAsync(function, 12, 1, stream));
  CHECK_DRIVER(cuStreamSynchronize(stream));
  check(out, kCount, 2.0f, 42);

  int* counter = nullptr;
  CHECK(cudaMalloc(&counter, sizeof(int)));
  CHECK(cudaMemset(counter, 0, sizeof(int)));
  CHECK(cudaGetFuncBySymbol(&symbol, reinterpret_cast<const void*>(once)));
  CUfunction single = reinterpret_cast<CUfunction>(symbol);
  CHECK_DRIVER(cuFuncSetBlockShape(single, 32, 1, 1));
  CHECK_DRIVER(cuParamSetSize(single, sizeof(counter)));
  CHECK_DRIVER(cuParamSetv(single, 0, &counter, sizeof(counter)));
  CHECK_DRIVER(cuLaunch(single));
  int launched = 0;
  CHECK(cudaMemcpy(&launched, counter, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_EQ(launched, 32);
  return passed();
}
