// Pitched memory and copies of rectangles and boxes between every pair of places.
#include <cstring>
#include <vector>

#include "check.h"

static unsigned char pattern(size_t x, size_t y, size_t z) {
  return static_cast<unsigned char>(x * 3 + y * 5 + z * 11);
}

static void two_dimensions() {
  constexpr size_t kWidth = 301, kHeight = 77, kHostPitch = 320;
  std::vector<unsigned char> from(kHostPitch * kHeight), to(kHostPitch * kHeight, 0xcc);
  for (size_t y = 0; y < kHeight; ++y)
    for (size_t x = 0; x < kWidth; ++x) from[y * kHostPitch + x] = pattern(x, y, 0);
  unsigned char *a, *b;
  size_t pitch_a, pitch_b;
  CHECK(cudaMallocPitch(&a, &pitch_a, kWidth, kHeight));
  CHECK(cudaMallocPitch(&b, &pitch_b, kWidth * 2, kHeight));
  EXPECT(pitch_a >= kWidth && pitch_a % 32 == 0);
  CHECK(cudaMemcpy2D(a, pitch_a, from.data(), kHostPitch, kWidth, kHeight, cudaMemcpyHostToDevice));
  CHECK(cudaMemset2D(b, pitch_b, 0, kWidth * 2, kHeight));
  CHECK(cudaMemcpy2D(b + 7, pitch_b, a, pitch_a, kWidth, kHeight, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy2DAsync(to.data(), kHostPitch, b + 7, pitch_b, kWidth, kHeight, cudaMemcpyDeviceToHost, 0));
  CHECK(cudaDeviceSynchronize());
  for (size_t y = 0; y < kHeight; ++y) {
    EXPECT(std::memcmp(&to[y * kHostPitch], &from[y * kHostPitch], kWidth) == 0);
    EXPECT_EQ(to[y * kHostPitch + kWidth], 0xcc);
  }
  EXPECT_CODE(cudaErrorInvalidPitchValue,
              cudaMemcpy2D(a, 10, from.data(), kHostPitch, kWidth, 2, cudaMemcpyHostToDevice));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
}

static void three_dimensions() {
  constexpr size_t kX = 50, kY = 20, kZ = 9;
  std::vector<unsigned char> from(kX * kY * kZ), to(kX * kY * kZ, 0);
  for (size_t z = 0; z < kZ; ++z)
    for (size_t y = 0; y < kY; ++y)
      for (size_t x = 0; x < kX; ++x) from[(z * kY + y) * kX + x] = pattern(x, y, z);
  cudaPitchedPtr box;
  CHECK(cudaMalloc3D(&box, make_cudaExtent(kX, kY, kZ)));
  CHECK(cudaMemset3D(box, 0x55, make_cudaExtent(kX, kY, kZ)));
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(from.data(), kX, kX, kY);
  in.dstPtr = box;
  in.extent = make_cudaExtent(kX - 10, kY - 4, kZ - 2);
  in.srcPos = make_cudaPos(3, 1, 1);
  in.dstPos = make_cudaPos(5, 2, 2);
  in.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&in));
  cudaMemcpy3DParms out{};
  out.srcPtr = box;
  out.dstPtr = make_cudaPitchedPtr(to.data(), kX, kX, kY);
  out.extent = make_cudaExtent(kX, kY, kZ);
  out.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3DAsync(&out, 0));
  CHECK(cudaDeviceSynchronize());
  for (size_t z = 0; z < kZ; ++z)
    for (size_t y = 0; y < kY; ++y)
      for (size_t x = 0; x < kX; ++x) {
        const bool inside = x >= 5 && x < 5 + kX - 10 && y >= 2 && y < 2 + kY - 4 && z >= 2 && z < 2 + kZ - 2;
        EXPECT_EQ(to[(z * kY + y) * kX + x], inside ? pattern(x - 2, y - 1, z - 1) : 0x55);
      }
  CHECK(cudaFree(box.ptr));
}

int main() {
  two_dimensions();
  three_dimensions();
  return passed();
}
