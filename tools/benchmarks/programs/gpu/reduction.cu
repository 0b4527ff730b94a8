// The sum of many numbers, block by block and then over the blocks, read by the host every time.
#include "program.h"

constexpr int kThreads = 256, kBlocks = 1024;

__device__ double block_sum(double mine) {
  __shared__ double parts[kThreads / 32];
  for (int by = 16; by; by /= 2) mine += __shfl_down_sync(0xffffffffu, mine, by);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < kThreads / 32; ++i) mine += parts[i];
  return mine;
}

__global__ void over_numbers(const float4* data, int count, float weight, double* partial) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kBlocks * kThreads) {
    const float4 part = data[i];
    sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
  }
  const double all = block_sum((double{sum.x} + sum.y + sum.z + sum.w) * weight);
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

__global__ void over_blocks(const double* partial, double* total) {
  double mine = 0;
  for (int i = threadIdx.x; i < kBlocks; i += kThreads) mine += partial[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) *total = mine;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int count = scale.of(1 << 26, 4096, 4), repeats = scale.of(15000, 3);
  Random random(10);
  std::vector<float> data(count);
  double want = 0;
  for (float& each : data) want += each = random.unit();
  const DeviceBuffer<float> device(count);
  const DeviceBuffer<double> partial(kBlocks), total(1);
  double sum = 0;
  bool right = true;
  const double begin = begin_steady();
  device.put(data);
  for (int i = 0; i < repeats; ++i) {
    const int weight = 1 + i % 4;
    over_numbers<<<kBlocks, kThreads>>>(reinterpret_cast<const float4*>(device.get()), count / 4, weight,
                                        partial.get());
    over_blocks<<<1, kThreads>>>(partial.get(), total.get());
    CHECK(cudaMemcpy(&sum, total.get(), sizeof sum, cudaMemcpyDeviceToHost));
    right = right && close(sum, want * weight, 1e-5);
  }
  return finish(now_us() - begin, right);
}
