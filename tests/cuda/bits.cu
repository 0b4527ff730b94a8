// Bit operations: counts, reversal, fields, permutes, funnel shifts, three-input logic.
#include <cstdint>
#include <vector>

#include "check.h"

struct Out {
  uint32_t popc, clz, ffs, brev, bfe_u, bfi, prmt, funnel_l, funnel_r, funnel_clamp, lop, bfind_u, fns, bmsk;
  int32_t bfe_s, bfind_s;
  uint32_t popc64, clz64, byte_perm;
  uint64_t brev64;
};

__global__ void compute(const uint32_t* a, const uint32_t* b, Out* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint32_t x = a[i], y = b[i], position = y & 63, length = y >> 8 & 63;
  const uint64_t w = static_cast<uint64_t>(x) << 32 | y;
  Out o;
  o.popc = __popc(x), o.clz = __clz(x), o.ffs = __ffs(x), o.brev = __brev(x);
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(o.bfe_u) : "r"(x), "r"(position), "r"(length));
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(o.bfe_s) : "r"(x), "r"(position), "r"(length));
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(o.bfi) : "r"(x), "r"(~x), "r"(position), "r"(length));
  o.prmt = __byte_perm(x, y, 0x6241), o.byte_perm = __byte_perm(x, y, x ^ y);
  o.funnel_l = __funnelshift_l(x, y, y), o.funnel_r = __funnelshift_r(x, y, x),
  o.funnel_clamp = __funnelshift_lc(x, y, position);
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(o.lop) : "r"(x), "r"(y), "r"(x >> 3));
  asm("bfind.u32 %0, %1;" : "=r"(o.bfind_u) : "r"(x));
  asm("bfind.s32 %0, %1;" : "=r"(o.bfind_s) : "r"(x));
  asm("fns.b32 %0, %1, %2, %3;" : "=r"(o.fns) : "r"(x), "r"(y & 31), "r"(2));
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(o.bmsk) : "r"(position), "r"(length));
  o.popc64 = __popcll(w), o.clz64 = __clzll(w), o.brev64 = __brevll(w);
  out[i] = o;
}

static uint32_t reverse(uint32_t v) {
  uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
  return r;
}

static uint32_t permute(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) r |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}

static uint32_t field(uint32_t v, uint32_t position, uint32_t length, bool is_signed) {
  uint32_t r = 0;
  const uint32_t last = position + length - 1 > 31 ? 31 : position + length - 1;
  const uint32_t sign = is_signed && length ? v >> last & 1 : 0;
  for (uint32_t i = 0; i < 32; ++i) r |= (i < length && position + i <= 31 ? v >> (position + i) & 1 : sign) << i;
  return r;
}

static void check(uint32_t x, uint32_t y, const Out& o) {
  const uint32_t position = y & 63, length = y >> 8 & 63;
  EXPECT_EQ(o.popc, static_cast<uint32_t>(__builtin_popcount(x)));
  EXPECT_EQ(o.clz, x ? static_cast<uint32_t>(__builtin_clz(x)) : 32u);
  EXPECT_EQ(o.ffs, static_cast<uint32_t>(__builtin_ffs(static_cast<int>(x))));
  EXPECT_EQ(o.brev, reverse(x));
  EXPECT_EQ(o.bfe_u, field(x, position, length, false));
  EXPECT_EQ(static_cast<uint32_t>(o.bfe_s), field(x, position, length, true));
  uint32_t inserted = ~x;
  for (uint32_t i = 0; i < length && position + i < 32; ++i)
    inserted = (inserted & ~(1u << (position + i))) | (i < 32 ? (x >> i & 1) : 0) << (position + i);
  EXPECT_EQ(o.bfi, inserted);
  EXPECT_EQ(o.prmt, permute(x, y, 0x6241));
  EXPECT_EQ(o.byte_perm, permute(x, y, (x ^ y) & 0x7777));
  const uint64_t pair = static_cast<uint64_t>(y) << 32 | x;
  EXPECT_EQ(o.funnel_l, static_cast<uint32_t>(pair << (y & 31) >> 32));
  EXPECT_EQ(o.funnel_r, static_cast<uint32_t>(pair >> (x & 31)));
  EXPECT_EQ(o.funnel_clamp, position >= 32 ? x : static_cast<uint32_t>(pair << position >> 32));
  EXPECT_EQ(o.lop, x ^ y ^ x >> 3);
  EXPECT_EQ(o.bfind_u, x ? 31u - __builtin_clz(x) : ~0u);
  const uint32_t magnitude = static_cast<int32_t>(x) < 0 ? ~x : x;
  EXPECT_EQ(o.bfind_s, magnitude ? 31 - __builtin_clz(magnitude) : -1);
  uint32_t found = ~0u, seen = 0;
  for (uint32_t i = y & 31; i < 32 && found == ~0u; ++i)
    if (x >> i & 1 && ++seen == 2) found = i;
  EXPECT_EQ(o.fns, found);
  uint32_t mask = 0;
  for (uint32_t i = position; i < 32 && i < position + length; ++i) mask |= 1u << i;
  EXPECT_EQ(o.bmsk, mask);
  const uint64_t w = static_cast<uint64_t>(x) << 32 | y;
  EXPECT_EQ(o.popc64, static_cast<uint32_t>(__builtin_popcountll(w)));
  EXPECT_EQ(o.clz64, w ? static_cast<uint32_t>(__builtin_clzll(w)) : 64u);
  EXPECT(o.brev64 == (static_cast<uint64_t>(reverse(y)) << 32 | reverse(x)));
}

int main() {
  std::vector<uint32_t> a, b;
  for (const uint32_t x : {0u, 1u, 0x80000000u, 0xffffffffu, 0x00ff00ffu, 0x12345678u, 0x7fffffffu})
    for (uint32_t position = 0; position < 64; position += 3)
      for (uint32_t length = 0; length < 64; length += 5) a.push_back(x), b.push_back(length << 8 | position | x << 16);
  uint32_t state = 7;
  for (int i = 0; i < 2000; ++i)
    a.push_back(state = state * 1664525u + 1013904223u), b.push_back(state = state * 22695477u + 1);
  const int n = static_cast<int>(a.size());
  uint32_t *da, *db;
  Out* out;
  CHECK(cudaMalloc(&da, n * 4));
  CHECK(cudaMalloc(&db, n * 4));
  CHECK(cudaMalloc(&out, n * sizeof(Out)));
  CHECK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  compute<<<(n + 127) / 128, 128>>>(da, db, out, n);
  std::vector<Out> got(n);
  CHECK(cudaMemcpy(got.data(), out, n * sizeof(Out), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) check(a[i], b[i], got[i]);
  return passed();
}
