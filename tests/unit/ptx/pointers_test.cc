// Which kernels reach memory through pointers in their parameters only: those whose answers are known, and those that
// hide where they go.
#include "vgpu-sched/ptx/pointers.h"

#include "support.h"

namespace bandsaw::ptx {
namespace {

using Pointers = std::vector<PointerParameters::Pointer>;

PointerParameters judged(const std::string& items, const std::string& name = "k") {
  return pointer_parameters(Program(module_of(items)), name);
}

// %rd3 and %rd4 point into a and b; s is a structure, in which there is a pointer 8 bytes from its beginning.
PointerParameters judged_body(const std::string& body, const std::string& before = "") {
  return judged(before +
                ".entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .align 8 .b8 s[32]) {\n"
                ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<9>;\n"
                "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd3, %rd1;\n"
                "ld.param.u64 %rd2, [b]; cvta.to.global.u64 %rd4, %rd2; ld.param.u32 %r8, [n];\n" +
                body + "\nret; }\n");
}

void expect_known(const PointerParameters& found, const Pointers& pointers) {
  EXPECT_EQ(found.why_not, "");
  ASSERT_EQ(found.pointers.size(), pointers.size());
  for (size_t i = 0; i < pointers.size(); ++i) {
    EXPECT_EQ(found.pointers[i].at, pointers[i].at);
    EXPECT_EQ(found.pointers[i].declared, pointers[i].declared);
  }
}

void expect_hidden(const PointerParameters& found, const std::string& why = "") {
  EXPECT_NE(found.why_not, "");
  EXPECT_NE(found.why_not.find(why), std::string::npos) << found.why_not;
}

TEST(PointerParameters, IndicesAreAddedToPointers) {
  expect_known(judged_body("mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd3, %rd5;\n"
                           "ld.global.u32 %r2, [%rd6+4]; mad.wide.s32 %rd7, %r2, 8, %rd4; st.global.u32 [%rd7], %r2;"),
               {{0, true}, {8, true}});
}

TEST(PointerParameters, AnIndexMayComeFromMemoryAndFromAParameter) {
  expect_known(judged_body("ld.global.u64 %rd0, [%rd3]; shl.b64 %rd5, %rd0, 2; add.s64 %rd6, %rd4, %rd5;\n"
                           "atom.global.add.u32 %r2, [%rd6], 1; cvt.u64.u32 %rd7, %r2; ld.param.u64 %rd8, [s+16];\n"
                           "{ .reg .b64 %q<3>; add.s64 %q1, %rd4, %rd7; add.s64 %q2, %q1, %rd8;\n"
                           "st.global.u8 [%q2], %r2; }"),
               {{0, true}, {8, true}});
}

TEST(PointerParameters, APointerInAStructureIsAParameter) {
  expect_known(judged_body("ld.param.u64 %rd5, [s+8]; ld.u32 %r1, [%rd5];"), {{32, false}});
  expect_known(judged_body("ld.param.u64 %rd5, [s+8]; cvta.to.global.u64 %rd6, %rd5; ld.global.u32 %r1, [%rd6];"),
               {{32, true}});
}

TEST(PointerParameters, OneOfSeveralIsAnyOfThem) {
  expect_known(judged_body("setp.eq.u32 %p1, %r8, 0; selp.b64 %rd5, %rd3, %rd4, %p1; st.global.u32 [%rd5], %r8;"),
               {{0, true}, {8, true}});
  // One of them may be a number by the text: whoever launches it finds out.
  expect_known(judged_body("ld.param.u64 %rd5, [s]; cvta.global.u64 %rd6, %rd3; setp.eq.u32 %p1, %r8, 0;\n"
                           "@%p1 mov.b64 %rd5, %rd6; st.u32 [%rd5], %r8;"),
               {{0, true}, {24, false}});
}

TEST(PointerParameters, ALoopThatAdvancesAPointerIsKnown) {
  expect_known(judged_body("L: ld.global.f32 %f1, [%rd3]; add.s64 %rd3, %rd3, 4; add.s32 %r8, %r8, -1;\n"
                           "setp.ne.s32 %p1, %r8, 0; @%p1 bra L;"),
               {{0, true}});
}

TEST(PointerParameters, ItsOwnMemoryIsNoParameter) {
  expect_known(judged_body(".shared .b8 t[64]; .local .b8 l[64]; mov.u64 %rd5, t; cvta.shared.u64 %rd5, %rd5;\n"
                           "st.u32 [%rd5], %r8; mov.u64 %rd6, l; cvta.local.u64 %rd6, %rd6; ld.u32 %r1, [%rd6];\n"
                           "ld.const.u32 %r1, [c]; mov.u64 %rd7, g; st.global.u32 [%rd7+4], %r1;\n"
                           "atom.global.add.u32 %r2, [g], 1;",
                           ".const .u32 c; .global .u32 g[4];\n"),
               {});
}

TEST(PointerParameters, APointerFromMemoryIsHidden) {
  const std::string why = "pointer that is no parameter";
  expect_hidden(judged_body("ld.global.u64 %rd5, [%rd3]; ld.u32 %r1, [%rd5];"), why);
  expect_hidden(judged_body("ld.global.v2.u64 {%rd5, %rd6}, [%rd3]; st.u32 [%rd6+8], %r8;"), why);
  expect_hidden(judged_body("ld.global.u64 %rd5, [g]; ld.u32 %r1, [%rd5];", ".global .u64 g;\n"), why);
  expect_hidden(judged_body("ld.const.u64 %rd5, [c]; ld.u32 %r1, [%rd5];", ".const .u64 c;\n"), why);
  expect_hidden(judged_body(".shared .u64 t; ld.shared.u64 %rd5, [t]; ld.u32 %r1, [%rd5];"), why);
  expect_hidden(judged_body(".local .u64 l; st.local.u64 [l], %rd3; ld.local.u64 %rd5, [l]; ld.u32 %r1, [%rd5];"), why);
  expect_hidden(judged_body("atom.global.exch.b64 %rd5, [%rd3], 0; red.global.add.u32 [%rd5], 1;"), why);
  // An offset that is a parameter is none of its pointers.
  expect_hidden(judged_body("ld.global.u64 %rd5, [%rd3]; ld.param.u64 %rd6, [s]; add.s64 %rd5, %rd5, %rd6;\n"
                            "ld.u32 %r1, [%rd5];"),
                why);
}

TEST(PointerParameters, APointerOfHalvesIsHidden) {
  const std::string load = "ld.global.v2.u32 {%r1, %r2}, [%rd3]; ", add = "ld.param.u64 %rd6, [s];";
  expect_hidden(judged_body(load + add + "mov.b64 %rd5, {%r1, %r2}; add.s64 %rd5, %rd5, %rd6; ld.u32 %r1, [%rd5];"));
  expect_hidden(judged_body(load + add +
                            "cvt.u64.u32 %rd5, %r2; shl.b64 %rd5, %rd5, 32; cvt.u64.u32 %rd7, %r1;\n"
                            "or.b64 %rd5, %rd5, %rd7; add.s64 %rd5, %rd5, %rd6; ld.u32 %r1, [%rd5];"));
  expect_hidden(judged_body(load + "cvt.u64.u32 %rd5, %r2; bfi.b64 %rd5, %rd5, %rd5, 32, 32; ld.u32 %r1, [%rd5];"));
  expect_hidden(
      judged_body("mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %rd5, {%r1, %r2};\n"
                  "ld.u32 %r1, [%rd5];"));
  // Of its own parameters, too: they are not words of eight bytes then.
  expect_hidden(
      judged_body("ld.param.u32 %r1, [s+4]; ld.param.u32 %r2, [s+8]; mov.b64 %rd5, {%r1, %r2};\n"
                  "ld.u32 %r1, [%rd5];"));
}

TEST(PointerParameters, AddressesOfUnknownOriginAreHidden) {
  expect_hidden(judged_body("ld.global.u32 %r1, [%rd7];"), "a number");
  expect_hidden(judged_body("mov.u64 %rd5, 4096; ld.global.u32 %r1, [%rd5];"), "a number");
  expect_hidden(judged_body("shr.u64 %rd5, %rd3, 4; shl.b64 %rd5, %rd5, 4; ld.global.u32 %r1, [%rd5];"), "a number");
  // A parameter at an index that the kernel computes.
  expect_hidden(
      judged_body("mov.b64 %rd5, s; mul.wide.u32 %rd6, %r8, 8; add.s64 %rd5, %rd5, %rd6;\n"
                  "ld.param.u64 %rd7, [%rd5]; ld.u32 %r1, [%rd7];"));
}

TEST(PointerParameters, WhatHidesItsMemoryIsHidden) {
  const std::string declared = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n";
  expect_hidden(judged_body("{ .param .b64 p; .param .b64 q; .param .b32 o; st.param.b64 [p], %rd1;\n"
                            "st.param.b64 [q], %rd2; call.uni (o), vprintf, (p, q); }",
                            declared),
                "vprintf");
  expect_hidden(judged_body("mov.u64 %rd5, f; call %rd5, _;", ".func f() { ret; }\n"));
  expect_hidden(judged_body("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd3, {%r8}];"), "textures");
  expect_hidden(judged_body("cp.async.bulk.prefetch.L2.global [%rd3], 16;"));
  expect_hidden(judged_body("multimem.red.global.add.u32 [%rd3], %r8;"));
  expect_hidden(judged_body("mystery.b64 %rd5, %rd3;"));
}

TEST(PointerParameters, CopiesToSharedMemoryAreKnown) {
  expect_known(
      judged_body(".shared .align 16 .b8 t[64]; mov.u32 %r1, t;\n"
                  "cp.async.ca.shared.global [%r1], [%rd4], 16; cp.async.commit_group; cp.async.wait_group 0;"),
      {{8, true}});
  expect_hidden(
      judged_body(".shared .align 16 .b8 t[64]; ld.global.u64 %rd5, [%rd3]; mov.u32 %r1, t;\n"
                  "cp.async.ca.shared.global [%r1], [%rd5], 16;"));
}

TEST(PointerParameters, FunctionsReachWhatTheyAreGiven) {
  const std::string adds =
      ".func (.param .b32 o) f(.param .b32 i) { .reg .b32 %r<3>; ld.param.b32 %r1, [i];\n"
      "add.s32 %r1, %r1, 1; st.param.b32 [o], %r1; ret; }\n";
  const std::string calls =
      "{ .param .b32 i; .param .b32 o; st.param.b32 [i], %r8; call.uni (o), f, (i);\n"
      "ld.param.b32 %r1, [o]; } st.global.u32 [%rd3], %r1;";
  expect_known(judged_body(calls, adds), {{0, true}});
  const std::string reads =
      ".func (.param .b32 o) f(.param .b64 i) { .reg .b32 %r<3>; .reg .b64 %rd<3>;\n"
      "ld.param.b64 %rd1, [i]; ld.u32 %r1, [%rd1]; st.param.b32 [o], %r1; ret; }\n";
  expect_hidden(judged_body("{ .param .b64 i; .param .b32 o; st.param.b64 [i], %rd1; call.uni (o), f, (i); }", reads),
                "'f' reaches memory");
}

TEST(PointerParameters, AKernelWithoutMemoryNeedsNone) { expect_known(judged_body(""), {}); }

}  // namespace
}  // namespace bandsaw::ptx
