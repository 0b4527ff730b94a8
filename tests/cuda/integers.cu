// Integer arithmetic against the host's: wide and high products, division, saturation, carries, shifts past the width.
#include <cstdint>
#include <vector>

#include "check.h"

struct Out {
  uint32_t add, sub, mul, hi_u, div_u, rem_u, min_u, max_u, shl, shr, sad_u;
  int32_t hi_s, div_s, rem_s, min_s, max_s, sar, abs, neg, sat_add, sat_sub;
  uint64_t wide_u, mul64, hi64_u, div64, rem64, shl64, huge_quotient, huge_remainder;
  int64_t wide_s, hi64_s, div64_s, rem64_s, mad;
  uint32_t mul24, carry_low, carry_high, borrow;
};

__global__ void compute(const uint32_t* a, const uint32_t* b, Out* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint32_t x = a[i], y = b[i];
  const int32_t s = static_cast<int32_t>(x), t = static_cast<int32_t>(y);
  const uint64_t wx = static_cast<uint64_t>(x) << 20 | y, wy = static_cast<uint64_t>(y) << 7 | x;
  Out o;
  o.add = x + y, o.sub = x - y, o.mul = x * y;
  o.hi_u = __umulhi(x, y), o.hi_s = __mulhi(s, t);
  o.div_u = y ? x / y : 0, o.rem_u = y ? x % y : 0;
  const bool overflow = s == INT32_MIN && t == -1;
  o.div_s = t && !overflow ? s / t : 0, o.rem_s = t && !overflow ? s % t : 0;
  o.min_u = min(x, y), o.max_u = max(x, y), o.min_s = min(s, t), o.max_s = max(s, t);
  asm("shl.b32 %0, %1, %2;" : "=r"(o.shl) : "r"(x), "r"(y & 63));
  asm("shr.u32 %0, %1, %2;" : "=r"(o.shr) : "r"(x), "r"(y & 63));
  asm("shr.s32 %0, %1, %2;" : "=r"(o.sar) : "r"(s), "r"(y & 63));
  asm("shl.b64 %0, %1, %2;" : "=l"(o.shl64) : "l"(wx), "r"(y & 127));
  o.sad_u = __usad(x, y, 3);
  o.abs = s == INT32_MIN ? 0 : abs(s), o.neg = static_cast<int32_t>(0u - x);
  asm("add.sat.s32 %0, %1, %2;" : "=r"(o.sat_add) : "r"(s), "r"(t));
  asm("sub.sat.s32 %0, %1, %2;" : "=r"(o.sat_sub) : "r"(s), "r"(t));
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(o.wide_u) : "r"(x), "r"(y));
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(o.wide_s) : "r"(s), "r"(t));
  o.mul64 = wx * wy, o.hi64_u = __umul64hi(wx, wy),
  o.hi64_s = __mul64hi(static_cast<int64_t>(wx << 9), -static_cast<int64_t>(wy));
  o.div64 = wy ? wx / wy : 0, o.rem64 = wy ? wx % wy : 0;
  o.div64_s = wy ? -static_cast<int64_t>(wx) / static_cast<int64_t>(wy) : 0;
  o.rem64_s = wy ? -static_cast<int64_t>(wx) % static_cast<int64_t>(wy) : 0;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(o.mad) : "r"(s), "r"(t), "l"(static_cast<int64_t>(wx)));
  o.mul24 = __umul24(x, y);
  asm("{add.cc.u32 %0, %2, %3; addc.u32 %1, %2, %3;}" : "=r"(o.carry_low), "=r"(o.carry_high) : "r"(x), "r"(y));
  asm("{.reg .u32 low; sub.cc.u32 low, %1, %2; subc.u32 %0, 0, 0;}" : "=r"(o.borrow) : "r"(x), "r"(y));
  const unsigned __int128 huge = static_cast<unsigned __int128>(wx) << 64 | wy;
  o.huge_quotient = static_cast<uint64_t>(huge / (wy | 1)), o.huge_remainder = static_cast<uint64_t>(huge % (wy | 1));
  out[i] = o;
}

static int64_t clamp32(int64_t v) { return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v; }

static void check(uint32_t x, uint32_t y, const Out& o) {
  const int32_t s = static_cast<int32_t>(x), t = static_cast<int32_t>(y);
  const int64_t ls = s, lt = t;
  const uint64_t lx = x, ly = y, wx = lx << 20 | y, wy = ly << 7 | x;
  EXPECT_EQ(o.add, x + y);
  EXPECT_EQ(o.sub, x - y);
  EXPECT_EQ(o.mul, x * y);
  EXPECT_EQ(o.hi_u, static_cast<uint32_t>(lx * ly >> 32));
  EXPECT_EQ(o.hi_s, static_cast<int32_t>(ls * lt >> 32));
  if (y) EXPECT(o.div_u == x / y && o.rem_u == x % y);
  if (t && !(s == INT32_MIN && t == -1)) EXPECT(o.div_s == s / t && o.rem_s == s % t);
  EXPECT(o.min_u == (x < y ? x : y) && o.max_u == (x < y ? y : x));
  EXPECT(o.min_s == (s < t ? s : t) && o.max_s == (s < t ? t : s));
  const uint32_t by = y & 63, by64 = y & 127;
  EXPECT_EQ(o.shl, by > 31 ? 0u : x << by);
  EXPECT_EQ(o.shr, by > 31 ? 0u : x >> by);
  EXPECT_EQ(o.sar, s >> (by > 31 ? 31 : by));
  EXPECT_EQ(o.shl64, by64 > 63 ? 0ull : wx << by64);
  EXPECT_EQ(o.sad_u, (x < y ? y - x : x - y) + 3);
  if (s != INT32_MIN) EXPECT_EQ(o.abs, s < 0 ? -s : s);
  EXPECT_EQ(o.neg, static_cast<int32_t>(0u - x));
  EXPECT_EQ(o.sat_add, clamp32(ls + lt));
  EXPECT_EQ(o.sat_sub, clamp32(ls - lt));
  EXPECT(o.wide_u == lx * ly && o.wide_s == ls * lt);
  EXPECT_EQ(o.mul64, wx * wy);
  EXPECT(o.hi64_u == static_cast<uint64_t>(static_cast<unsigned __int128>(wx) * wy >> 64));
  EXPECT(o.hi64_s ==
         static_cast<int64_t>(static_cast<__int128>(static_cast<int64_t>(wx << 9)) * -static_cast<int64_t>(wy) >> 64));
  if (wy) EXPECT(o.div64 == wx / wy && o.rem64 == wx % wy);
  if (wy) EXPECT(o.div64_s == -static_cast<int64_t>(wx) / static_cast<int64_t>(wy));
  if (wy) EXPECT(o.rem64_s == -static_cast<int64_t>(wx) % static_cast<int64_t>(wy));
  EXPECT(o.mad == ls * lt + static_cast<int64_t>(wx));
  EXPECT_EQ(o.mul24, (x & 0xffffff) * (y & 0xffffff));
  EXPECT(o.carry_low == x + y && o.carry_high == x + y + (lx + ly > UINT32_MAX));
  EXPECT_EQ(o.borrow, x < y ? UINT32_MAX : 0u);
  const unsigned __int128 huge = static_cast<unsigned __int128>(wx) << 64 | wy;
  EXPECT_EQ(o.huge_quotient, static_cast<uint64_t>(huge / (wy | 1)));
  EXPECT_EQ(o.huge_remainder, static_cast<uint64_t>(huge % (wy | 1)));
}

int main() {
  const uint32_t edges[] = {0,          1,          2,          3,          7,          31,        32,
                            33,         63,         0x7f,       0xff,       0xffff,     0x10000,   0x7fffffff,
                            0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x12345678, 0xdeadbeef};
  std::vector<uint32_t> a, b;
  for (uint32_t x : edges)
    for (uint32_t y : edges) a.push_back(x), b.push_back(y);
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int i = 0; i < 3000; ++i) a.push_back(next() ^ next() >> 16), b.push_back(next() >> (next() >> 27));
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
