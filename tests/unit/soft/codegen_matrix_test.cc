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

}  // namespace
}  // namespace bandsaw::soft::test
