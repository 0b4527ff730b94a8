// Matrices between lanes and memory, and products of 8-bit floats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

std::vector<uint32_t> matrix_run(const std::string& body) {
  Kernels k(R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
  .shared .align 16 .b8 rows[512];
  .reg .b32 %r<20>; .reg .b64 %rd<4>; .reg .f32 %f<9>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, rows; shl.b32 %r3, %r1, 4; add.u32 %r3, %r3, %r2;
  ld.param.u64 %rd1, [out]; mad.wide.u32 %rd2, %r1, 4, %rd1;
  shl.b32 %r4, %r1, 1; add.u32 %r5, %r4, 1; shl.b32 %r5, %r5, 16; or.b32 %r4, %r4, %r5;
)" + body + "\nret;\n}\n");
  EXPECT_TRUE(k.ok()) << k.log();
  auto* out = array<uint32_t>(256);
  EXPECT_EQ(k.launch("k", {}, out).fault, 0u);
  return {out, out + 256};
}

// Lane l holds elements 2l and 2l + 1 of a matrix of 8 by 8.
uint32_t pair_of(uint32_t low, uint32_t high) { return low | high << 16; }

TEST(CodegenMatrix, StoresAndTransposes) {
  const std::string load = "ld.shared.u32 %r6, [%r7]; st.global.u32 [%rd2], %r6;";
  const std::string at = "shl.b32 %r7, %r1, 2; add.u32 %r7, %r7, %r2;";
  const auto plain = matrix_run("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r4}; bar.sync 0;" + at + load);
  const auto turned =
      matrix_run("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r3], {%r4}; bar.sync 0;" + at + load);
  const auto moved = matrix_run("movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r4; st.global.u32 [%rd2], %r6;");
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t row = l / 4, column = l % 4 * 2;
    EXPECT_EQ(plain[l], pair_of(2 * l, 2 * l + 1)) << l;
    EXPECT_EQ(turned[l], pair_of(column * 8 + row, (column + 1) * 8 + row)) << l;
    EXPECT_EQ(moved[l], pair_of(column * 8 + row, (column + 1) * 8 + row)) << l;
  }
}

// Row g of the left matrix is 1.5 where g is even and -2 where it is odd; the right one is 0.25 in both formats.
TEST(CodegenMatrix, EightBitFloats) {
  const auto out = matrix_run(R"(
  shr.u32 %r8, %r1, 2; and.b32 %r8, %r8, 1; mul.lo.u32 %r8, %r8, 0x84848484; add.u32 %r8, %r8, 0x3c3c3c3c;
  mov.u32 %r9, 0x34343434; mov.f32 %f5, 0f40000000;
  mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r8,%r8,%r8,%r8}, {%r9,%r9},
    {%f5,%f5,%f5,%f5};
  st.global.f32 [%rd2], %f1; st.global.f32 [%rd2+128], %f4;
)");
  for (uint32_t l = 0; l < 32; ++l) {
    const float want = 32 * (l / 4 % 2 ? -2.0f : 1.5f) * 0.25f + 2;
    EXPECT_EQ(std::bit_cast<float>(out[l]), want) << l;
    EXPECT_EQ(std::bit_cast<float>(out[32 + l]), want) << l;
  }
}

// Every register of the left matrix is 0x1: element 0 of each eight is 1. The right one is -1 everywhere.
TEST(CodegenMatrix, FourBitIntegers) {
  const auto out = matrix_run(R"(
  mov.u32 %r8, 1; mov.u32 %r9, 0xffffffff; add.u32 %r10, %r1, 100;
  mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r11,%r12,%r13,%r14}, {%r8,%r8,%r8,%r8}, {%r9,%r9},
    {%r10,%r10,%r10,%r10};
  mma.sync.aligned.m8n8k32.row.col.satfinite.s32.u4.u4.s32 {%r15,%r16}, {%r8}, {%r9}, {%r10,%r10};
  st.global.u32 [%rd2], %r11; st.global.u32 [%rd2+128], %r14; st.global.u32 [%rd2+256], %r16;
)");
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(out[l], l + 100 - 8) << l;
    EXPECT_EQ(out[32 + l], l + 100 - 8) << l;
    EXPECT_EQ(out[64 + l], l + 100 + 4 * 15) << l;
  }
}

// A row has the bits 0 and 31 of each word where its number is even; columns have all bits of odd words' lanes.
TEST(CodegenMatrix, Bits) {
  const auto out = matrix_run(R"(
  mov.u32 %r8, 0x80000001; mov.u32 %r9, 0x0000ffff; mov.u32 %r10, 5;
  mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%r11,%r12,%r13,%r14}, {%r8,%r8,%r8,%r8}, {%r9,%r9},
    {%r10,%r10,%r10,%r10};
  mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r15,%r16}, {%r8}, {%r9}, {%r10,%r10};
  st.global.u32 [%rd2], %r11; st.global.u32 [%rd2+128], %r16;
)");
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(out[l], 5u + 8) << l;
    EXPECT_EQ(out[32 + l], 5u + 4 * 16) << l;
  }
}

// a[row][k] = row + k, b[k][column] = column: a sum of 8 products, by lanes as PTX places them.
TEST(CodegenMatrix, Doubles) {
  const auto out = matrix_run(R"(
  .reg .f64 %d<20>; .reg .f32 %g<9>;
  shr.u32 %r8, %r1, 2; and.b32 %r9, %r1, 3;
  add.u32 %r10, %r8, %r9; cvt.rn.f64.u32 %d1, %r10; add.f64 %d2, %d1, 0d4020000000000000;
  add.f64 %d3, %d1, 0d4010000000000000; add.f64 %d4, %d2, 0d4010000000000000;
  cvt.rn.f64.u32 %d5, %r8; mov.f64 %d6, 0d0000000000000000;
  mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%d7,%d8,%d9,%d10}, {%d1,%d2,%d3,%d4}, {%d5,%d5},
    {%d6,%d6,%d6,%d6};
  cvt.rzi.u32.f64 %r11, %d7; cvt.rzi.u32.f64 %r12, %d10; st.global.u32 [%rd2], %r11; st.global.u32 [%rd2+128], %r12;
)");
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t row = l / 4, column = l % 4 * 2;
    EXPECT_EQ(out[l], column * (8 * row + 28)) << l;
    EXPECT_EQ(out[32 + l], (column + 1) * (8 * (row + 8) + 28)) << l;
  }
}

// Quads 0 and 4 make the first product: a[row][k] = row, b[k][column] = column + 1.
TEST(CodegenMatrix, QuadsOfHalves) {
  const auto out = matrix_run(R"(
  .reg .b16 %h<9>;
  and.b32 %r8, %r1, 3; shr.u32 %r9, %r1, 4; shl.b32 %r9, %r9, 2; add.u32 %r8, %r8, %r9; add.u32 %r9, %r8, 1;
  cvt.rn.f16.u32 %h1, %r8; cvt.rn.f16.u32 %h2, %r9; mov.b32 %r10, {%h1, %h1}; mov.b32 %r11, {%h2, %h2};
  mov.u32 %r12, 0; mov.f32 %f8, 0f00000000;
  mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f0}, {%r10,%r10}, {%r11,%r11},
    {%f8,%f8,%f8,%f8,%f8,%f8,%f8,%f8};
  mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 {%r13,%r14,%r15,%r16}, {%r10,%r10}, {%r11,%r11},
    {%f8,%f8,%f8,%f8,%f8,%f8,%f8,%f8};
  cvt.rzi.u32.f32 %r17, %f1; cvt.rzi.u32.f32 %r18, %f0; st.global.u32 [%rd2], %r17; st.global.u32 [%rd2+128], %r18;
  mov.b32 {%h1, %h2}, %r16; cvt.rzi.u32.f16 %r17, %h2; st.global.u32 [%rd2+256], %r17;
)");
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t upper = l / 16 * 4;
    EXPECT_EQ(out[l], 4 * ((l & 1) + upper) * ((l & 2) + 1)) << l;                   // register 0
    EXPECT_EQ(out[32 + l], 4 * ((l & 1) + 2 + upper) * (4 + (l & 2) + 1 + 1)) << l;  // register 7
    EXPECT_EQ(out[64 + l], 4 * (l % 4 + upper) * 8) << l;                            // column 7 of the lane's row
  }
}

// Fragments of random bits, where elements lie as PTX says, against plain sums.
struct MmaForm {
  const char *name, *type;
  uint32_t rows, depth, bits;
  double (*value)(uint32_t);
  bool integer() const { return bits == 8; }
  uint32_t each() const { return 32 / bits; }  // elements of a register
  uint32_t b_count() const { return depth / each() / 4; }
  uint32_t a_count() const { return b_count() * rows / 8; }
  uint32_t results() const { return rows / 4; }
};

double f16_value(uint32_t v) {
  const double part = v & 0x3ff;
  const uint32_t exponent = v >> 10 & 31;
  const double size = exponent ? std::ldexp(1024 + part, static_cast<int>(exponent) - 25) : std::ldexp(part, -24);
  return v & 0x8000 ? -size : size;
}
double bf16_value(uint32_t v) { return std::bit_cast<float>(v << 16); }
double tf32_value(uint32_t v) { return std::bit_cast<float>(v & ~0x1fffu); }
double s8_value(uint32_t v) { return static_cast<int8_t>(v); }
double u8_value(uint32_t v) { return v; }

std::string fragment(uint32_t first, uint32_t count) {
  std::string all = "{";
  for (uint32_t i = 0; i < count; ++i) all += (i ? ", %r" : "%r") + std::to_string(first + i);
  return all + "}";
}

// Registers from 10 on are a, b and c, word after word of `in`; the result is 30 and so on.
std::string mma_kernel(const MmaForm& f) {
  const std::string sum = f.integer() ? "s32" : "f32", type = f.type;
  const uint32_t b = 10 + f.a_count(), c = b + f.b_count();
  std::string code = R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
  .reg .b32 %r<40>; .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1;
  ld.param.u64 %rd2, [in]; mad.wide.u32 %rd2, %r1, 4, %rd2;
)";
  const auto at = [](uint32_t i) { return std::to_string(128 * i) + "]"; };
  for (uint32_t i = 10; i < c + f.results(); ++i)
    code += "ld.global.b32 %r" + std::to_string(i) + ", [%rd2+" + at(i - 10) + ";\n";
  code += "mma.sync.aligned." + std::string(f.name) + ".row.col." + sum + "." + type + "." + type + "." + sum + " " +
          fragment(30, f.results()) + ", " + fragment(10, f.a_count()) + ", " + fragment(b, f.b_count()) + ", " +
          fragment(c, f.results()) + ";\n";
  for (uint32_t i = 0; i < f.results(); ++i)
    code += "st.global.b32 [%rd1+" + at(i) + ", %r" + std::to_string(30 + i) + ";\n";
  return code + "ret;\n}\n";
}

// No infinities, and numbers of like sizes.
uint32_t random_word(const MmaForm& f, bool of_sum, uint32_t bits) {
  if (f.integer()) return bits;
  if (of_sum || f.bits == 32) return (bits & 0x80ffffff) | 0x3f000000;
  return f.value == f16_value ? bits & 0xbfffbfff : (bits & 0x80ff80ff) | 0x3f003f00;
}

void check_mma(const MmaForm& f, const uint32_t* in, const uint32_t* out) {
  const auto element = [&](uint32_t first, uint32_t lane, uint32_t i) {
    const uint32_t word = in[32 * (first + i / f.each()) + lane];
    return f.value(word >> (i % f.each() * f.bits) & (f.bits == 32 ? ~0u : (1u << f.bits) - 1));
  };
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < f.results(); ++i) {
      const uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      const uint32_t c = in[32 * (f.a_count() + f.b_count() + i) + lane], got = out[32 * i + lane];
      double want = f.integer() ? static_cast<double>(static_cast<int32_t>(c)) : std::bit_cast<float>(c);
      for (uint32_t k = 0; k < f.depth; ++k) {
        const uint32_t group = k / (4 * f.each()), at = k % (4 * f.each());  // one register of four lanes
        const uint32_t a_register = group * (f.rows / 8) + row / 8;
        want += element(0, row % 8 * 4 + at / f.each(), a_register * f.each() + at % f.each()) *
                element(f.a_count(), column * 4 + at / f.each(), group * f.each() + at % f.each());
      }
      if (f.integer())
        ASSERT_EQ(static_cast<int32_t>(got), static_cast<int32_t>(want)) << f.name << f.type << lane << " " << i;
      else
        ASSERT_EQ(std::bit_cast<float>(got), static_cast<float>(want)) << f.name << f.type << lane << " " << i;
    }
}

TEST(CodegenMatrix, RandomElementsLieWherePtxSays) {
  const MmaForm forms[] = {{"m16n8k8", "f16", 16, 8, 16, f16_value},   {"m16n8k16", "f16", 16, 16, 16, f16_value},
                           {"m16n8k8", "bf16", 16, 8, 16, bf16_value}, {"m16n8k16", "bf16", 16, 16, 16, bf16_value},
                           {"m16n8k4", "tf32", 16, 4, 32, tf32_value}, {"m16n8k8", "tf32", 16, 8, 32, tf32_value},
                           {"m16n8k32", "s8", 16, 32, 8, s8_value},    {"m16n8k16", "u8", 16, 16, 8, u8_value},
                           {"m8n8k16", "s8", 8, 16, 8, s8_value}};
  std::mt19937 random(7);
  for (const MmaForm& f : forms) {
    reset_memory();
    Kernels k(mma_kernel(f));
    ASSERT_TRUE(k.ok()) << k.log();
    auto *in = array<uint32_t>(32 * 16), *out = array<uint32_t>(32 * 4);
    for (uint32_t i = 0; i < 32 * 16; ++i)
      in[i] = random_word(f, i >= 32 * (f.a_count() + f.b_count()), static_cast<uint32_t>(random()));
    ASSERT_EQ(k.launch("k", {}, in, out).fault, 0u);
    check_mma(f, in, out);
  }
}

// Each step is one fused multiply and add: what (1 + 2^-30)^2 has beyond 1 + 2^-29 stays.
TEST(CodegenMatrix, DoublesAreFused) {
  const auto out = matrix_run(R"(
  .reg .f64 %d<20>; .reg .pred %p;
  mov.f64 %d1, 0d3FF0000000400000; mov.f64 %d2, 0dBFF0000000800000; mov.f64 %d6, 0d0000000000000000;
  and.b32 %r9, %r1, 3; setp.eq.u32 %p, %r9, 0; selp.f64 %d5, %d1, %d6, %p;
  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d7,%d8}, {%d1}, {%d5}, {%d2,%d2};
  mul.f64 %d7, %d7, 0d43B0000000000000; cvt.rzi.u32.f64 %r11, %d7; st.global.u32 [%rd2], %r11;
)");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 1u) << l;
}

}  // namespace
}  // namespace bandsaw::soft::test
