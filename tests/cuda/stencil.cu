// Heat over a plate, many dependent launches and a swap of buffers.
#include <vector>

#include "check.h"

__global__ void spread(const float* in, float* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int i = y * width + x;
  const bool edge = x == 0 || y == 0 || x == width - 1 || y == height - 1;
  out[i] = edge ? in[i] : 0.25f * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width]);
}

int main() {
  constexpr int kWidth = 123, kHeight = 67, kSteps = 60;
  std::vector<float> plate(kWidth * kHeight), next(plate.size()), got(plate.size());
  for (int i = 0; i < kWidth * kHeight; ++i) plate[i] = i % 17 == 0 ? 100.0f : 0.0f;
  float *a, *b;
  CHECK(cudaMalloc(&a, plate.size() * 4));
  CHECK(cudaMalloc(&b, plate.size() * 4));
  CHECK(cudaMemcpy(a, plate.data(), plate.size() * 4, cudaMemcpyHostToDevice));
  for (int step = 0; step < kSteps; ++step) {
    spread<<<dim3((kWidth + 15) / 16, (kHeight + 7) / 8), dim3(16, 8)>>>(a, b, kWidth, kHeight);
    std::swap(a, b);
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) {
        const int i = y * kWidth + x;
        const bool edge = x == 0 || y == 0 || x == kWidth - 1 || y == kHeight - 1;
        next[i] = edge ? plate[i] : 0.25f * (plate[i - 1] + plate[i + 1] + plate[i - kWidth] + plate[i + kWidth]);
      }
    plate.swap(next);
  }
  CHECK(cudaMemcpy(got.data(), a, got.size() * 4, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < got.size(); ++i) EXPECT(std::abs(got[i] - plate[i]) < 1e-4f);
  return passed();
}
