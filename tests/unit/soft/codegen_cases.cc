#include "tests/unit/soft/codegen_cases.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

constexpr int kTriples = 1024;

std::string kernel(size_t number, const Case& c) {
  std::string name = "k" + std::to_string(number), result;
  switch (c.result) {
    case 'd':
      result = "cvt.u64.u32 %D, %d;";
      break;
    case 'h':
      result = "cvt.u64.u16 %D, %hd;";
      break;
    case 'p':
      result = "selp.u64 %D, 1, 0, %p;";
      break;
    default:
      break;
  }
  return ".visible .entry " + name + R"((.param .u64 in, .param .u64 out)
{
  .reg .b16 %ha, %hb, %hc, %hd, %he;
  .reg .b32 %a, %b, %c, %d, %e, %i, %n, %m;
  .reg .b64 %A, %B, %C, %D, %E, %in, %out, %o;
  .reg .pred %p, %q, %r;
  mov.u32 %i, %ctaid.x;
  mov.u32 %n, %ntid.x;
  mov.u32 %m, %tid.x;
  mad.lo.u32 %i, %i, %n, %m;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mul.wide.u32 %o, %i, 32;
  add.u64 %in, %in, %o;
  mul.wide.u32 %o, %i, 8;
  add.u64 %out, %out, %o;
  ld.global.u64 %A, [%in];
  ld.global.u64 %B, [%in+8];
  ld.global.u64 %C, [%in+16];
  cvt.u32.u64 %a, %A; cvt.u32.u64 %b, %B; cvt.u32.u64 %c, %C;
  cvt.u16.u64 %ha, %A; cvt.u16.u64 %hb, %B; cvt.u16.u64 %hc, %C;
  )" + c.code +
         "\n  " + result + R"(
  st.global.u64 [%out], %D;
  ret;
}
)";
}

bool same(const Case& c, uint64_t got, uint64_t want) {
  if (got == want) return true;
  if (!c.nan_is_nan) return false;
  if (c.result == 'd')
    return std::isnan(std::bit_cast<float>(uint32_t(got))) && std::isnan(std::bit_cast<float>(uint32_t(want)));
  if (c.result == 'h') return (got & 0x7c00) == 0x7c00 && (got & 0x3ff) && (want & 0x7c00) == 0x7c00 && (want & 0x3ff);
  return std::isnan(std::bit_cast<double>(got)) && std::isnan(std::bit_cast<double>(want));
}

}  // namespace

void check_cases(const std::vector<Case>& cases, const std::vector<uint64_t>& values, CompileOptions::Passes passes) {
  std::string text = ".version 8.6\n.target sm_90\n.address_size 64\n";
  for (size_t i = 0; i < cases.size(); ++i) text += kernel(i, cases[i]);
  reset_memory();
  Kernels k(text, getenv("BANDSAW_TEST_CPU") ? getenv("BANDSAW_TEST_CPU") : "", false, passes);
  ASSERT_TRUE(k.ok()) << k.log();
  auto* in = array<uint64_t>(4 * kTriples);
  auto* out = array<uint64_t>(kTriples);
  std::mt19937_64 random(7);
  for (int i = 0; i < kTriples; ++i)
    for (int j = 0; j < 3; ++j) in[4 * i + j] = values[random() % values.size()];
  Shape shape;
  shape.block[0] = 128;
  shape.grid[0] = kTriples / 128;
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_EQ(k.launch("k" + std::to_string(i), shape, in, out).fault, 0u) << cases[i].code;
    int wrong = 0;
    for (int t = 0; t < kTriples && wrong < 3; ++t) {
      uint64_t a = in[4 * t], b = in[4 * t + 1], c = in[4 * t + 2], want = cases[i].want(a, b, c);
      if (same(cases[i], out[t], want)) continue;
      ++wrong;
      ADD_FAILURE() << cases[i].code << std::hex << "  a " << a << " b " << b << " c " << c << ": got " << out[t]
                    << ", want " << want;
    }
  }
}

std::vector<uint64_t> integer_values() {
  std::vector<uint64_t> v = {0,
                             1,
                             2,
                             3,
                             4,
                             5,
                             7,
                             8,
                             15,
                             16,
                             24,
                             31,
                             32,
                             33,
                             63,
                             64,
                             65,
                             127,
                             128,
                             255,
                             256,
                             0x7fff,
                             0x8000,
                             0xffff,
                             0x7fffffff,
                             0x80000000,
                             0xffffffff,
                             0xfffffffe,
                             0x12345678,
                             0x80000001,
                             0x00ff00ff,
                             0x7fffffffffffffff,
                             0x8000000000000000,
                             0xffffffffffffffff,
                             0xffffffff00000000,
                             0xffffffff80000000,
                             0x123456789abcdef0};
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) v.push_back(random() >> (random() % 60));
  return v;
}

std::vector<uint64_t> float_values() {
  std::vector<uint64_t> v = {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,   0x3f800000,
                             0xbf800000, 0x3f800001, 0x3f7fffff, 0x40000000, 0x3f000000, 0x7f7fffff, 0xff7fffff,
                             0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x4b000000, 0x4b7fffff, 0x4f000000,
                             0xcf000000, 0x4effffff, 0x4f800000, 0x5f000000, 0x5effffff, 0xdf000000, 0x3fc00000,
                             0x40200000, 0xbfc00000, 0xbf000000, 0x477fe000, 0x477fefff, 0x477ff000, 0x33000000,
                             0x33000001, 0x38800000, 0x387fffff, 0x43e00000, 0x43e80000, 0x3c000000, 0x3a800000,
                             0x7f7f7fff, 0x7f7f8000, 0x3f808000, 0x3f818000, 0x3f808001};
  std::mt19937_64 random(2);
  for (int i = 0; i < 60; ++i) v.push_back(uint32_t(random()));
  for (int i = 0; i < 30; ++i) v.push_back(std::bit_cast<uint32_t>(float(int32_t(random())) / 1e6f));
  return v;
}

std::vector<uint64_t> double_values() {
  std::vector<uint64_t> v;
  for (double d : {0.0,
                   -0.0,
                   1.0,
                   -1.0,
                   0.5,
                   -0.5,
                   1.5,
                   2.5,
                   -2.5,
                   1e300,
                   -1e300,
                   1e-310,
                   4.9e-324,
                   2147483647.5,
                   -2147483648.5,
                   4294967295.5,
                   9.2233720368547758e18,
                   1.8446744073709552e19,
                   65504.0,
                   65519.999,
                   65520.0,
                   5.96e-8,
                   2.98e-8,
                   3.4028235677973366e38,
                   1.0000000596046448,
                   1.00000011920928955078125,
                   double(INFINITY),
                   -double(INFINITY),
                   double(NAN)})
    v.push_back(std::bit_cast<uint64_t>(d));
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) v.push_back(random());
  for (int i = 0; i < 40; ++i) v.push_back(std::bit_cast<uint64_t>(double(int64_t(random())) / 1e15));
  return v;
}

std::vector<uint64_t> half_values() {
  std::vector<uint64_t> v;
  for (uint32_t h :
       {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x3bff, 0x7bff, 0xfbff, 0x7c00,
        0xfc00, 0x7e00, 0x4200, 0x3555, 0x3f80, 0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x4040, 0x0080, 0x3eab})
    v.push_back(h | uint64_t(h ^ 0x1234) << 16);
  std::mt19937_64 random(4);
  for (int i = 0; i < 100; ++i) v.push_back(uint32_t(random()));
  return v;
}

}  // namespace bandsaw::soft::test
