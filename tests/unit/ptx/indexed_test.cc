#include "vgpu-sched/ptx/indexed.h"

#include "support.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

constexpr const char* kArrays =
    ".global .u64 a[4];\n.global .align 16 .v4 .f32 v[8];\n.global .u16 g[4][8];\n.global .u32 one;\n";

// What a kernel's body becomes, without what was declared.
std::string body_of(const std::string& body) {
  const Module module =
      module_of(kArrays + std::string(".entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd<9>;\n") +
                ".reg .u16 %h<9>; .reg .s16 %s<9>; .reg .f32 %f<9>; .shared .u32 sh[8];\n" + body + "\n}");
  const std::string text = print(module);
  const size_t last = text.find("sh[8];\n");
  std::string result;
  for (const char c : text.substr(last + 7, text.rfind('}') - last - 7))
    if (c != '\t' && (c != ' ' || (!result.empty() && result.back() != '\n'))) result += c;
  return result;
}

ParseError error_of_body(const std::string& body) {
  return error_of(kHeader + kArrays + ".entry k() { .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<9>;\n" + body +
                  " }");
}

TEST(Indexed, ConstantsCountScalars) {
  EXPECT_EQ(body_of("ld.global.u64 %rd1, a[2];"), "ld.global.u64 %rd1, [a+16];\n");
  EXPECT_EQ(body_of("st.global.f32 v[3], %f1;"), "st.global.f32 [v+12], %f1;\n");
  EXPECT_EQ(body_of("ld.global.u16 %h1, g[9];"), "ld.global.u16 %h1, [g+18];\n");
  EXPECT_EQ(body_of("mov.u64 %rd1, a[-1];"), "mov.u64 %rd1, a+-8;\n");
  EXPECT_EQ(body_of("cvta.global.u64 %rd1, v[1];"), "cvta.global.u64 %rd1, v+4;\n");
}

TEST(Indexed, RegistersBecomeAddresses) {
  EXPECT_EQ(body_of("ld.global.u64 %rd1, a[%r2];"),
            "mov.b32 %element_i0, %r2;\nmul.wide.u32 %element_a0, %element_i0, 8;\nmov.u64 %element_a1, a;\n"
            "add.u64 %element_a2, %element_a1, %element_a0;\nld.global.u64 %rd1, [%element_a2];\n");
  EXPECT_EQ(body_of("mov.u32 %r1, sh[%r2+3];"),
            "mov.b32 %element_i0, %r2;\nadd.u32 %element_i1, %element_i0, 3;\n"
            "mul.wide.u32 %element_a0, %element_i1, 4;\nmov.u64 %element_a1, sh;\n"
            "add.u64 %element_a2, %element_a1, %element_a0;\ncvt.u32.u64 %element_i2, %element_a2;\n"
            "mov.u32 %r1, %element_i2;\n");
}

TEST(Indexed, AnIndexHas32Bits) {
  EXPECT_TRUE(body_of("ld.global.u64 %rd1, a[%h2];").starts_with("cvt.u32.u16 %element_i0, %h2;"));
  EXPECT_TRUE(body_of("ld.global.u64 %rd1, a[%s2];").starts_with("cvt.s32.s16 %element_i0, %s2;"));
  EXPECT_TRUE(body_of("ld.global.u64 %rd1, a[%rd2];").starts_with("cvt.u32.u64 %element_i0, %rd2;"));
}

TEST(Indexed, EachStandsBeforeItsInstructionInItsBlock) {
  const std::string text = body_of("{ ld.global.u64 %rd1, a[%r1]; }\nL: @!%p1 ld.global.u64 %rd2, a[%r2];\n{ ret; }");
  const size_t inner = text.find("[%element_a2]"), label = text.find("L:"), outer = text.find("%element_i1, %r2"),
               guarded = text.find("@!%p1 ld.global.u64 %rd2, [%element_a5]");
  ASSERT_NE(guarded, std::string::npos) << text;
  EXPECT_TRUE(inner < label && label < outer && outer < guarded) << text;
}

TEST(Indexed, NamesOfTheFunctionStay) {
  const std::string text = body_of(".reg .b32 %element_i<3>; ld.global.u64 %rd1, a[%element_i1];");
  EXPECT_NE(text.find("mov.b32 %element___i0, %element_i1;"), std::string::npos) << text;
}

TEST(Indexed, WhatIsPrintedIsReadAgain) {
  const Module module =
      module_of(std::string(kArrays) +
                ".entry k(.param .u32 n) {.reg .b32 %r<3>; .reg .u64 %rd<3>; "
                "ld.param.u32 %r1, [n]; ld.global.u64 %rd1, a[%r1+2]; st.global.u64 a[0], %rd1; ret;}");
  EXPECT_EQ(parse(print(module)), module);
}

TEST(Indexed, OtherNamesAndRegistersAreRefused) {
  EXPECT_EQ(error_of_body("mov.u64 %r1, one[0];").message, "expected an array, found 'one'");
  EXPECT_EQ(error_of_body("mov.u64 %r1, nothing[%r2];").message, "expected an array, found 'nothing'");
  EXPECT_EQ(error_of_body("\nmov.u64 %r1, a[%f2];").message, "expected an integer register as index, found '%f2'");
  EXPECT_EQ(error_of_body("\nmov.u64 %r1, a[%f2];").line, 10u);
  EXPECT_EQ(error_of_body("mov.u64 %r1, a[%p2];").message, "expected an integer register as index, found '%p2'");
  EXPECT_EQ(error_of_body("mov.u64 %r1, a[%r1;").message, "expected ']', found ';'");
}

}  // namespace
}  // namespace bandsaw::ptx
