// nvcc: -gencode arch=compute_90,code=[compute_90,sm_90]
// Half and bfloat16 arithmetic, scalar and in pairs, against float arithmetic rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"

struct Out {
  unsigned short add, sub, mul, fma, neg, abs, min, max, sat, relu, div, sqrt;
  unsigned short b_add, b_mul, b_fma, b_max;
  unsigned pair_add, pair_fma, bpair_mul;
  int less, unordered;
};

__global__ void compute(const float* a, const float* b, Out* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const __half x = __float2half_rn(a[i]), y = __float2half_rn(b[i]);
  const __nv_bfloat16 p = __float2bfloat16_rn(a[i]), q = __float2bfloat16_rn(b[i]);
  Out o;
  o.add = __half_as_ushort(__hadd(x, y)), o.sub = __half_as_ushort(__hsub(x, y)),
  o.mul = __half_as_ushort(__hmul(x, y));
  o.fma = __half_as_ushort(__hfma(x, y, x)), o.neg = __half_as_ushort(__hneg(x)), o.abs = __half_as_ushort(__habs(x));
  o.min = __half_as_ushort(__hmin(x, y)), o.max = __half_as_ushort(__hmax(x, y));
  o.sat = __half_as_ushort(__hadd_sat(x, y)), o.relu = __half_as_ushort(__hfma_relu(x, y, x));
  o.div = __half_as_ushort(__hdiv(x, y)), o.sqrt = __half_as_ushort(hsqrt(__habs(x)));
  o.b_add = __bfloat16_as_ushort(__hadd(p, q)), o.b_mul = __bfloat16_as_ushort(__hmul(p, q));
  o.b_fma = __bfloat16_as_ushort(__hfma(p, q, p)), o.b_max = __bfloat16_as_ushort(__hmax(p, q));
  const __half2 pair = __halves2half2(x, y), flipped = __halves2half2(y, x);
  const __half2 sum = __hadd2(pair, flipped), fused = __hfma2(pair, flipped, pair);
  memcpy(&o.pair_add, &sum, 4);
  memcpy(&o.pair_fma, &fused, 4);
  const __nv_bfloat162 product = __hmul2(__halves2bfloat162(p, q), __halves2bfloat162(p, p));
  memcpy(&o.bpair_mul, &product, 4);
  o.less = __hlt(x, y), o.unordered = __hltu(x, y);
  out[i] = o;
}

static unsigned short to_half(double v) { return __half_as_ushort(__double2half(v)); }
static float value(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
static bool is_nan(unsigned short bits) { return std::isnan(value(bits)); }

#define SAME_HALF(got, wanted) EXPECT((got) == (wanted) || (is_nan(got) && is_nan(wanted)))

static void check(float a, float b, const Out& o) {
  const float x = value(to_half(a)), y = value(to_half(b));
  SAME_HALF(o.add, to_half(double(x) + y));
  SAME_HALF(o.sub, to_half(double(x) - y));
  SAME_HALF(o.mul, to_half(double(x) * y));
  SAME_HALF(o.fma, to_half(std::fma(double(x), double(y), double(x))));
  if (!std::isnan(x)) EXPECT(o.neg == (to_half(a) ^ 0x8000) && o.abs == (to_half(a) & 0x7fff));
  if (!std::isnan(x) && !std::isnan(y) && x != y) {
    EXPECT_EQ(value(o.min), std::fmin(x, y));
    EXPECT_EQ(value(o.max), std::fmax(x, y));
  }
  const double sum = double(x) + y;
  SAME_HALF(o.sat, to_half(!(sum > 0) ? 0 : sum > 1 ? 1 : sum));
  const double fused = std::fma(double(x), double(y), double(x));
  if (!std::isnan(fused)) EXPECT_EQ(value(o.relu), value(to_half(fused < 0 ? 0 : fused)));
  SAME_HALF(o.sqrt, to_half(std::sqrt(std::fabs(double(x)))));
  SAME_HALF(static_cast<unsigned short>(o.pair_add), o.add);
  SAME_HALF(static_cast<unsigned short>(o.pair_add >> 16), to_half(double(y) + x));
  SAME_HALF(static_cast<unsigned short>(o.pair_fma), to_half(std::fma(double(x), double(y), double(x))));
  SAME_HALF(static_cast<unsigned short>(o.pair_fma >> 16), to_half(std::fma(double(y), double(x), double(y))));
  EXPECT_EQ(o.less, x < y);
  EXPECT_EQ(o.unordered, !(x >= y));
  const float p = __bfloat162float(__float2bfloat16_rn(a)), q = __bfloat162float(__float2bfloat16_rn(b));
  const float products[] = {p + q, p * q};
  const unsigned short got[] = {o.b_add, o.b_mul};
  for (int i = 0; i < 2; ++i)
    if (!std::isnan(products[i])) EXPECT_EQ(got[i], __bfloat16_as_ushort(__float2bfloat16_rn(products[i])));
  if (!std::isnan(p * q))
    EXPECT_EQ(o.bpair_mul >> 16, static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(q * p))));
}

int main() {
  std::vector<float> a, b;
  const float edges[] = {0,       -0.0f,    1,         -1,  0.5f, 65504,    -65504, 6e-8f,
                         6.1e-5f, INFINITY, -INFINITY, NAN, 2049, 0.33325f, 1e-3f};
  for (float x : edges)
    for (float y : edges) a.push_back(x), b.push_back(y);
  unsigned state = 3;
  for (int i = 0; i < 3000; ++i) {
    state = state * 1664525u + 1013904223u;
    a.push_back(value(static_cast<unsigned short>(state >> 16)));
    state = state * 1664525u + 1013904223u;
    b.push_back(i % 2 ? value(static_cast<unsigned short>(state >> 16)) : a.back() * 1.001f);
  }
  const int n = static_cast<int>(a.size());
  float *da, *db;
  Out* out;
  CHECK(cudaMalloc(&da, n * 4));
  CHECK(cudaMalloc(&db, n * 4));
  CHECK(cudaMalloc(&out, n * sizeof(Out)));
  CHECK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  compute<<<(n + 63) / 64, 64>>>(da, db, out, n);
  std::vector<Out> got(n);
  CHECK(cudaMemcpy(got.data(), out, n * sizeof(Out), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) check(a[i], b[i], got[i]);
  return passed();
}
