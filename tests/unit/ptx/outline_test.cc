// Kernels found in a module's text without parsing it.
#include "vgpu-sched/ptx/outline.h"

#include "support.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::ptx {
namespace {

const std::string kText = R"(.version 8.5
.target sm_90 // .entry no() { }
.file 1 "a.cu"
.global .u32 v[2] = {1, 2};
.visible .func (.param .b32 r) f(.param .b32 a) { ret; }
/* .entry no() {
*/
.visible .entry first(.param .u64 p) .maxntid 1, 1, 1
{
  { .pragma "}"; }
  ret; // }
}
.extern .func g();
.weak .entry second() { trap; }
.entry declared(.param .u32 a);
.section .debug_info {
.b8 1,2
}
)";

TEST(Outline, FindsKernels) {
  const Outline outline(kText);
  ASSERT_EQ(outline.kernels().size(), 2u);
  EXPECT_EQ(outline.kernels()[0].name, "first");
  EXPECT_EQ(outline.kernels()[0].line, 8u);
  EXPECT_EQ(outline.kernels()[1].name, "second");
  EXPECT_EQ(outline.kernels()[1].line, 14u);
  EXPECT_EQ(outline.kernel("declared"), nullptr);
  for (const auto& kernel : outline.kernels()) {
    uint32_t first_line = 0;
    const Function alone = outline.alone(kernel, &first_line);
    EXPECT_EQ(alone.name, kernel.name);
    EXPECT_EQ(alone.place.line + first_line, kernel.line);
  }
}

TEST(Outline, PartsParse) {
  const Outline outline(kText);
  const Module declared = parse(outline.declarations());
  ASSERT_TRUE(declared.function("first"));
  EXPECT_FALSE(declared.function("first")->body);
  EXPECT_TRUE(declared.function("f")->body);
  for (const bool lines : {false, true}) {
    const Module unit = parse(outline.unit(outline.kernels()[1], lines));
    EXPECT_TRUE(unit.function("second")->body);
    EXPECT_FALSE(unit.function("first"));
    EXPECT_TRUE(unit.variable("v"));
    if (lines) {
      EXPECT_EQ(unit.function("second")->place.line, 14u);
    }
  }
}

TEST(Outline, PartsHaveTheBodiesThatAreAskedFor) {
  const Outline outline(kText);
  ASSERT_EQ(outline.functions().size(), 1u);
  EXPECT_EQ(outline.function("f")->line, 5u);
  EXPECT_EQ(outline.function("g"), nullptr) << "it is declared only";
  EXPECT_FALSE(parse(outline.declarations(false)).function("f")->body);
  for (const bool lines : {false, true}) {
    const Module kernel = parse(outline.part({outline.kernel("second")}, lines));
    EXPECT_TRUE(kernel.function("second")->body);
    EXPECT_FALSE(kernel.function("f")->body);
    EXPECT_FALSE(kernel.function("first"));
    const Module function = parse(outline.part({outline.function("f")}, lines));
    EXPECT_TRUE(function.function("f")->body);
    EXPECT_FALSE(function.function("second"));
    if (lines) {
      EXPECT_EQ(kernel.function("second")->place.line, 14u);
    }
  }
}

TEST(Outline, UnitsDoNotTellWhatElseThereIs) {
  const std::string head = ".version 8.5\n.target sm_90\n", one = ".entry a() { ret; }\n",
                    other = ".entry b() {\n ret; }\n";
  const Outline both(head + other + one), alone(head + one);
  EXPECT_EQ(both.unit(*both.kernel("a"), false), alone.unit(*alone.kernel("a"), false));
}

TEST(Outline, SaysWhatDoesNotEnd) {
  for (const char* text : {"/* ", ".entry k() {", ".file 1 \"a", ".section .debug {", ".entry k() { \"}"}) {
    try {
      Outline outline(std::string("\n") + text);
      ADD_FAILURE() << text;
    } catch (const ParseError& error) {
      EXPECT_EQ(error.line, 2u) << text;
    }
  }
}

// Of real modules: every kernel of the tree, and each unit has what the tree has.
TEST(Outline, AgreesWithTheParser) {
  for (const char* name : kSamples) {
    const std::string text = sample(name);
    const Module whole = parse(text);
    const Outline outline(text);
    size_t kernels = 0;
    for (const Item& item : whole.items) {
      const auto* function = std::get_if<Function>(&item);
      if (!function || !function->entry || !function->body) continue;
      ++kernels;
      const auto* found = outline.kernel(function->name);
      ASSERT_TRUE(found) << function->name;
      EXPECT_EQ(*parse(outline.unit(*found, true)).function(function->name), *function);
    }
    EXPECT_EQ(outline.kernels().size(), kernels) << name;
  }
}

}  // namespace
}  // namespace bandsaw::ptx
