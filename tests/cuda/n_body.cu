// Gravity between bodies, tile by tile: square roots, shared memory, many flops.
// vm: yes
#include <cmath>
#include <vector>

#include "check.h"

__global__ void forces(const float4* bodies, float3* out, int n) {
  __shared__ float4 tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 me = bodies[i];
  float3 sum = {0, 0, 0};
  for (int at = 0; at < n; at += 64) {
    tile[threadIdx.x] = bodies[at + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 64; ++k) {
      const float x = tile[k].x - me.x, y = tile[k].y - me.y, z = tile[k].z - me.z;
      const float inverse = rsqrtf(x * x + y * y + z * z + 0.01f);
      const float weight = tile[k].w * inverse * inverse * inverse;
      sum.x += x * weight, sum.y += y * weight, sum.z += z * weight;
    }
    __syncthreads();
  }
  out[i] = sum;
}

int main() {
  constexpr int kCount = 512;
  std::vector<float4> bodies(kCount);
  for (int i = 0; i < kCount; ++i)
    bodies[i] = {std::sin(i * 1.3f), std::cos(i * 0.7f), std::sin(i * 0.1f), 1 + i % 3 * 0.5f};
  float4* in;
  float3* out;
  CHECK(cudaMalloc(&in, kCount * sizeof(float4)));
  CHECK(cudaMalloc(&out, kCount * sizeof(float3)));
  CHECK(cudaMemcpy(in, bodies.data(), kCount * sizeof(float4), cudaMemcpyHostToDevice));
  forces<<<kCount / 64, 64>>>(in, out, kCount);
  std::vector<float3> got(kCount);
  CHECK(cudaMemcpy(got.data(), out, kCount * sizeof(float3), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    double x = 0, y = 0, z = 0;
    for (const float4& body : bodies) {
      const double dx = body.x - bodies[i].x, dy = body.y - bodies[i].y, dz = body.z - bodies[i].z;
      const double weight = body.w / std::pow(dx * dx + dy * dy + dz * dz + 0.01, 1.5);
      x += dx * weight, y += dy * weight, z += dz * weight;
    }
    const double size = std::sqrt(x * x + y * y + z * z) + 10;
    EXPECT(std::fabs(got[i].x - x) < 1e-4 * size && std::fabs(got[i].y - y) < 1e-4 * size &&
           std::fabs(got[i].z - z) < 1e-4 * size);
  }
  return passed();
}
