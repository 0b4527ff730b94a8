// Matrices between lanes and memory, and products of 8-bit floats.
#include <gtest/gtest.h>

#include <bit>

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

}  // namespace
}  // namespace bandsaw::soft::test
