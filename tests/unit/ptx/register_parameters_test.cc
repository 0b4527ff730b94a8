#include "vgpu-sched/ptx/register_parameters.h"

#include "support.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

Module moved(const std::string& items) {
  Module module = module_of(items);
  parameters_in_memory(&module);
  return module;
}

std::string error_in(const std::string& items) {
  try {
    moved(items);
  } catch (const ParseError& error) {
    return error.message;
  }
  return "";
}

TEST(RegisterParameters, BecomeParametersInMemory) {
  const Module module = moved(
      ".func (.reg .f32 r) f(.reg .u64 a, .param .b32 b) { .reg .pred p; @p ret; { ret; } }\n"
      ".func (.reg .f32 r) f(.reg .u64 a, .param .b32 b);");
  EXPECT_EQ(module, module_of(".func (.param .b32 $parameterr0) f(.param .b64 $parameter1, .param .b32 b) {\n"
                              ".reg .f32 r; .reg .u64 a; ld.param.b64 a, [$parameter1]; .reg .pred p;\n"
                              "@p st.param.b32 [$parameterr0], r; @p ret; { st.param.b32 [$parameterr0], r; ret; }\n"
                              "st.param.b32 [$parameterr0], r; ret; }\n"
                              ".func (.param .b32 $parameterr0) f(.param .b64 $parameter1, .param .b32 b);"));
}

TEST(RegisterParameters, CallersStoreAndLoad) {
  const std::string callee = ".func (.param .b32 $parameterr0) f(.param .b64 $parameter1);\n";
  EXPECT_EQ(moved(".func (.reg .u32 r) f(.reg .u64 a);\n.entry k() { .reg .b32 %r<3>; .reg .pred %p<2>;\n"
                  "@!%p1 call (%r1), f, (4); call (_), f, (4); }"),
            module_of(callee + ".entry k() { .reg .b32 %r<3>; .reg .pred %p<2>;\n"
                               "{ .param .b32 $callr0; .param .b64 $calla0; @!%p1 st.param.b64 [$calla0], 4;\n"
                               "@!%p1 call ($callr0), f, ($calla0); @!%p1 ld.param.b32 %r1, [$callr0]; }\n"
                               "{ .param .b32 $callr0; .param .b64 $calla0; st.param.b64 [$calla0], 4;\n"
                               "call ($callr0), f, ($calla0); } }"));
}

TEST(RegisterParameters, WhatIsCalledThroughAPointerIsLikeItsPrototype) {
  const Module module = moved(
      ".entry k() { .reg .b64 %rd<3>; P: .callprototype _ (.reg .u16 a, .param .b32 b);\n"
      "{ .param .b32 b; call %rd1, (%rd2, b), P; } }");
  EXPECT_EQ(module, module_of(".entry k() { .reg .b64 %rd<3>; P: .callprototype _ (.param .b16 a, .param .b32 b);\n"
                              "{ .param .b32 b; { .param .b16 $calla0; st.param.b16 [$calla0], %rd2;\n"
                              "call %rd1, ($calla0, b), P; } } }"));
}

TEST(RegisterParameters, OthersStay) {
  const std::string text =
      ".func g(.reg .pred p, .reg .v2 .f32 v, .param .b32 b) { ret; }\n.entry k(.param .u64 x) { ret; }";
  EXPECT_EQ(moved(text), module_of(text));
}

TEST(RegisterParameters, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(error_in(".func f(.reg .u32 a);\n.entry k() { .reg .b32 %r<3>; call f, (%r1, %r2); }"),
            "expected 1 arguments, found 2");
  EXPECT_EQ(error_in(".func (.reg .u32 r) f() { { .reg .b32 r; ret; } }"),
            "expected a result that no block hides, found 'r'");
}

}  // namespace
}  // namespace bandsaw::ptx
