// Video instructions and byte dot products.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.h"

struct Out {
  int dp4a_s, vabsdiff_acc, vadd_sat, vmad, vmax_merge, dp2a;
  unsigned dp4a_u, abs_diff4, add4_sat, min4, max2, set4, avg4, vshl, sad4, vset;
};

__global__ void compute(const unsigned* a, const unsigned* b, Out* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned x = a[i], y = b[i];
  Out o;
  o.dp4a_s = __dp4a(static_cast<int>(x), static_cast<int>(y), 100);
  o.dp4a_u = __dp4a(x, y, 100u);
  o.dp2a = __dp2a_lo(static_cast<int>(x), static_cast<int>(y), 5);
  o.abs_diff4 = __vabsdiffu4(x, y), o.add4_sat = __vaddus4(x, y), o.min4 = __vminu4(x, y), o.max2 = __vmaxs2(x, y);
  o.set4 = __vsetgtu4(x, y), o.avg4 = __vavgu4(x, y), o.sad4 = __vsadu4(x, y);
  asm("vabsdiff.u32.u32.u32.add %0, %1.b1, %2.b2, %3;" : "=r"(o.vabsdiff_acc) : "r"(x), "r"(y), "r"(1000));
  asm("vadd.s32.s32.s32.sat %0, %1, %2;" : "=r"(o.vadd_sat) : "r"(x), "r"(y));
  asm("vmad.s32.s32.s32 %0, %1.h0, %2.h1, %3;" : "=r"(o.vmad) : "r"(x), "r"(y), "r"(7));
  asm("vmax.s32.s32.s32 %0.b1, %1.b0, %2.b3, %3;" : "=r"(o.vmax_merge) : "r"(x), "r"(y), "r"(0x11223344));
  asm("vshl.u32.u32.u32.clamp %0, %1, %2.b0;" : "=r"(o.vshl) : "r"(x), "r"(y));
  asm("vset.u32.u32.lt %0, %1.h1, %2.h0;" : "=r"(o.vset) : "r"(x), "r"(y));
  out[i] = o;
}

static unsigned byte(unsigned v, int i) { return v >> 8 * i & 0xff; }
static int sbyte(unsigned v, int i) { return static_cast<int8_t>(byte(v, i)); }
static int shalf(unsigned v, int i) { return static_cast<int16_t>(v >> 16 * i); }

static void check(unsigned x, unsigned y, const Out& o) {
  int dot_s = 100;
  unsigned dot_u = 100, diff = 0, add = 0, low = 0, greater = 0, average = 0, sad = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned p = byte(x, i), q = byte(y, i);
    dot_s += sbyte(x, i) * sbyte(y, i), dot_u += p * q;
    diff |= (p > q ? p - q : q - p) << 8 * i, add |= std::min(p + q, 255u) << 8 * i, low |= std::min(p, q) << 8 * i;
    greater |= (p > q) << 8 * i, average |= ((p + q + 1) / 2) << 8 * i, sad += p > q ? p - q : q - p;
  }
  EXPECT_EQ(o.dp4a_s, dot_s);
  EXPECT_EQ(o.dp4a_u, dot_u);
  EXPECT_EQ(o.dp2a, 5 + shalf(x, 0) * sbyte(y, 0) + shalf(x, 1) * sbyte(y, 1));
  EXPECT_EQ(o.abs_diff4, diff);
  EXPECT_EQ(o.add4_sat, add);
  EXPECT_EQ(o.min4, low);
  EXPECT_EQ(o.set4, greater);
  EXPECT_EQ(o.avg4, average);
  EXPECT_EQ(o.sad4, sad);
  unsigned max2 = 0;
  for (int i = 0; i < 2; ++i)
    max2 |= static_cast<unsigned>(static_cast<uint16_t>(std::max(shalf(x, i), shalf(y, i)))) << 16 * i;
  EXPECT_EQ(o.max2, max2);
  EXPECT_EQ(o.vabsdiff_acc, 1000 + std::abs(static_cast<int>(byte(x, 1)) - static_cast<int>(byte(y, 2))));
  const int64_t sum = static_cast<int64_t>(static_cast<int>(x)) + static_cast<int>(y);
  EXPECT_EQ(o.vadd_sat, std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
  EXPECT_EQ(o.vmad, shalf(x, 0) * shalf(y, 1) + 7);
  EXPECT_EQ(static_cast<unsigned>(o.vmax_merge),
            (0x11220044u | static_cast<uint8_t>(std::max(sbyte(x, 0), sbyte(y, 3))) << 8));
  EXPECT_EQ(o.vshl, byte(y, 0) > 31 ? 0u : x << byte(y, 0));
  EXPECT_EQ(o.vset, static_cast<unsigned>((x >> 16) < (y & 0xffff)));
}

int main() {
  std::vector<unsigned> a = {0, ~0u, 0x80808080u, 0x7f7f7f7fu, 0x7fffffffu, 0x80000000u},
                        b = {0, ~0u, 0x7f7f7f7fu, 0x80808080u, 1, 0xffffffffu};
  unsigned state = 11;
  for (int i = 0; i < 3000; ++i)
    a.push_back(state = state * 1664525u + 1013904223u), b.push_back(state = state * 22695477u + 1);
  const int n = static_cast<int>(a.size());
  unsigned *da, *db;
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
