// Conversions between numbers of every kind, with rounding and saturation.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"

struct Out {
  int32_t rn, rz, ru, rd;
  uint32_t un, uz;
  long long ln, lz;
  unsigned long long ul;
  int8_t sat8;
  uint8_t satu8;
  float from_half, from_bf16, narrow[4], frac_floor, frac_ceil, frac_trunc, frac_rint, saturated;
  uint16_t half_bits, half_rz, bf16_bits;
  float from_int[4], from_uint, from_long;
};

__global__ void compute(const double* in, Out* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double d = in[i];
  const float f = static_cast<float>(d);
  Out o;
  o.rn = __float2int_rn(f), o.rz = __float2int_rz(f), o.ru = __float2int_ru(f), o.rd = __float2int_rd(f);
  o.un = __float2uint_rn(f), o.uz = __double2uint_rz(d);
  o.ln = __double2ll_rn(d), o.lz = __float2ll_rz(f), o.ul = __double2ull_rz(d);
  int small;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(small) : "f"(f));
  o.sat8 = static_cast<int8_t>(small);
  asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(small) : "f"(f));
  o.satu8 = static_cast<uint8_t>(small);
  const __half h = __float2half_rn(f);
  o.half_bits = __half_as_ushort(h), o.half_rz = __half_as_ushort(__float2half_rz(f));
  o.bf16_bits = __bfloat16_as_ushort(__float2bfloat16_rn(f));
  o.from_half = __half2float(h), o.from_bf16 = __bfloat162float(__float2bfloat16_rn(f));
  o.narrow[0] = __double2float_rn(d), o.narrow[1] = __double2float_rz(d), o.narrow[2] = __double2float_ru(d),
  o.narrow[3] = __double2float_rd(d);
  o.frac_floor = floorf(f), o.frac_ceil = ceilf(f), o.frac_trunc = truncf(f), o.frac_rint = rintf(f);
  o.saturated = __saturatef(f);
  const int whole = o.rz;
  o.from_int[0] = __int2float_rn(whole), o.from_int[1] = __int2float_rz(whole), o.from_int[2] = __int2float_ru(whole),
  o.from_int[3] = __int2float_rd(whole);
  o.from_uint = __uint2float_rn(static_cast<unsigned>(whole)), o.from_long = __ll2float_rn(o.ln);
  out[i] = o;
}

template <typename T>
static T clamp(double v, double low, double high) {
  if (std::isnan(v)) return 0;
  return v <= low ? static_cast<T>(low) : v >= high ? std::numeric_limits<T>::max() : static_cast<T>(v);
}

static bool same(float a, float b) { return std::isnan(b) ? std::isnan(a) : std::memcmp(&a, &b, 4) == 0; }

static void check(double d, const Out& o) {
  const float f = static_cast<float>(d);
  EXPECT_EQ(o.rn, clamp<int32_t>(std::nearbyint(f), -2147483648.0, 2147483647.0));
  EXPECT_EQ(o.rz, clamp<int32_t>(std::trunc(f), -2147483648.0, 2147483647.0));
  EXPECT_EQ(o.ru, clamp<int32_t>(std::ceil(f), -2147483648.0, 2147483647.0));
  EXPECT_EQ(o.rd, clamp<int32_t>(std::floor(f), -2147483648.0, 2147483647.0));
  EXPECT_EQ(o.un, clamp<uint32_t>(std::nearbyint(f), 0, 4294967295.0));
  // PTX ISA, cvt: a NaN that is a double becomes the top bit, a NaN that is a float becomes 0.
  EXPECT_EQ(o.uz, std::isnan(d) ? 0x80000000u : clamp<uint32_t>(std::trunc(d), 0, 4294967295.0));
  if (!std::isnan(d)) {
    EXPECT(o.ln == clamp<long long>(std::nearbyint(d), -0x1p63, 0x1p63));
    EXPECT(o.lz == clamp<long long>(std::trunc(f), -0x1p63, 0x1p63));
    EXPECT(o.ul == clamp<unsigned long long>(std::trunc(d), 0, 0x1p64));
  }
  EXPECT_EQ(o.sat8, clamp<int8_t>(std::nearbyint(f), -128, 127));
  EXPECT_EQ(o.satu8, clamp<uint8_t>(std::nearbyint(f), 0, 255));
  EXPECT(same(o.from_half, __half2float(__float2half_rn(f))));
  if (!std::isnan(f)) EXPECT_EQ(o.half_bits, __half_as_ushort(__float2half_rn(f)));
  EXPECT(same(o.from_bf16, __bfloat162float(__float2bfloat16_rn(f))));
  EXPECT(same(o.narrow[0], f));
  if (std::isfinite(d) && std::fabs(d) < 3e38) {
    EXPECT(o.narrow[2] >= d && o.narrow[3] <= d && std::fabs(o.narrow[1]) <= std::fabs(d));
    EXPECT(std::nextafter(o.narrow[3], INFINITY) >= o.narrow[2]);
  }
  EXPECT(same(o.frac_floor, std::floor(f)) && same(o.frac_ceil, std::ceil(f)));
  EXPECT(same(o.frac_trunc, std::trunc(f)) && same(o.frac_rint, std::nearbyint(f)));
  EXPECT_EQ(o.saturated, std::isnan(f) ? 0.0f : f < 0 ? 0.0f : f > 1 ? 1.0f : f);
  EXPECT_EQ(o.from_int[0], static_cast<float>(o.rz));
  EXPECT(o.from_int[2] >= o.from_int[0] && o.from_int[3] <= o.from_int[0] &&
         std::fabs(o.from_int[1]) <= std::fabs(double(o.rz)));
  EXPECT_EQ(o.from_uint, static_cast<float>(static_cast<unsigned>(o.rz)));
  EXPECT_EQ(o.from_long, static_cast<float>(o.ln));
}

int main() {
  // clang-format off: not a line for each
  std::vector<double> in = {
      0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 0.49999997, 127.5, 128, -128.5, 255.4, 256, 65504, 65520, 1e-8, 6e-8,
      5.96e-8, 16777217, 2147483647, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0, 9.3e18,
      -9.3e18, 1.9e19, 1e39, -1e39, 1e300, INFINITY, -INFINITY, NAN, 1.0 / 3, 3.0000001};
  // clang-format on
  uint64_t state = 5;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    in.push_back(std::ldexp(static_cast<double>(static_cast<int64_t>(state)), static_cast<int>(state >> 7 & 63) - 76));
  }
  const int n = static_cast<int>(in.size());
  double* device;
  Out* out;
  CHECK(cudaMalloc(&device, n * sizeof(double)));
  CHECK(cudaMalloc(&out, n * sizeof(Out)));
  CHECK(cudaMemcpy(device, in.data(), n * sizeof(double), cudaMemcpyHostToDevice));
  compute<<<(n + 63) / 64, 64>>>(device, out, n);
  std::vector<Out> got(n);
  CHECK(cudaMemcpy(got.data(), out, n * sizeof(Out), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) check(in[i], got[i]);
  return passed();
}
