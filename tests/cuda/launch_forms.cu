// Launches in every form, with many and with large parameters, and refused ones.
#include "check.h"

struct Large {
  int values[900];
};  // near the classic limit of 4 KiB
struct Mixed {
  char c;
  short s;
  int i;
  double d;
  float3 f;
};

__global__ void take_large(Large large, int* out) {
  int sum = 0;
  for (int value : large.values) sum += value;
  *out = sum;
}

__global__ void take_many(char a, short b, int c, long long d, float e, double f, Mixed m, int* out) {
  *out = a + b + c + static_cast<int>(d + e + f) + m.c + m.s + m.i + static_cast<int>(m.d + m.f.x + m.f.y + m.f.z);
}

__global__ void position(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

__global__ __launch_bounds__(128) void bounded(int* out) { *out = 1; }

int main() {
  int *out, got;
  CHECK(cudaMalloc(&out, 1 << 20));
  Large large;
  for (int i = 0; i < 900; ++i) large.values[i] = i;
  take_large<<<1, 1>>>(large, out);
  CHECK(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 900 * 899 / 2);

  Mixed mixed{1, 2, 3, 4.0, {5, 6, 7}};
  take_many<<<1, 1>>>(1, 2, 3, 4, 5.0f, 6.0, mixed, out);
  CHECK(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 21 + 28);

  void* arguments[] = {&out};
  CHECK(cudaLaunchKernel(reinterpret_cast<void*>(position), dim3(3, 4, 2), dim3(5, 6, 7), arguments, 0, 0));
  static int positions[24 * 210];
  CHECK(cudaMemcpy(positions, out, sizeof(positions), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 24 * 210; ++i) EXPECT_EQ(positions[i], i / 210 * 1000 + i % 210);

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(3);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributePriority;
  attribute[0].val.priority = 0;
  config.attrs = attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, position, out));
  CHECK(cudaDeviceSynchronize());

  bounded<<<1, 256>>>(out);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  position<<<1, 2000>>>(out);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  position<<<0, 32>>>(out);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  position<<<1, 32, 1 << 20>>>(out);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  CHECK(cudaDeviceSynchronize());  // refused launches leave no mark
  return passed();
}
