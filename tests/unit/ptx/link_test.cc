#include "vgpu-sched/ptx/link.h"

#include "support.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

Module linked(const std::vector<std::string>& units) {
  std::vector<Module> modules;
  for (const std::string& unit : units) modules.push_back(module_of(unit));
  return link(std::move(modules));
}

std::string error_of_link(const std::vector<std::string>& units) {
  try {
    linked(units);
  } catch (const LinkError& error) {
    return error.what();
  }
  return "";
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Link, LeavesOneUnitAlone) {
  Module module = parse(sample("debug"));
  EXPECT_TRUE(link({module}) == module);
}

TEST(Link, BindsFunctionsAndVariables) {
  std::string text =
      print(linked({".extern .func (.param .b32 r) f(.param .b32 a);\n.extern .func g;\n.extern .global .u32 x;\n"
                    ".visible .global .u64 p = generic(x);\n"
                    ".visible .entry k() { .reg .b32 %r<2>; ld.global.u32 %r1, [x]; call g; ret; }",
                    ".visible .global .u32 x = 5;\n.visible .func (.param .b32 r) f(.param .b32 a) { ret; }"}));
  EXPECT_EQ(count(text, ".extern"), 1u);  // g
  EXPECT_EQ(count(text, ".global .u32 x"), 1u);
  EXPECT_LT(text.find("x = 5"), text.find("p = generic(x)"));
  EXPECT_EQ(count(text, ".visible .func (.param .b32 r) f(.param .b32 a);"), 1u);
}

TEST(Link, KeepsPrivateNamesApart) {
  Module module = linked(
      {".global .u32 t = 1;\n.func s() { .reg .b32 %r<2>; ld.global.u32 %r1, [t]; ret; }\n.entry a() { call s; ret; }",
       ".global .u32 t = 2;\n.global .u64 p = t+4;\n.func s() { .reg .b32 %r<2>; ld.global.u32 %r1, [t+8];\n"
       "{ .shared .u32 t; ld.shared.u32 %r1, [t]; } mov.u64 %r1, t; ret; }\n.entry b() { call s; ret; }"});
  std::string text = print(module);
  EXPECT_NE(text.find("p = t$1+4"), std::string::npos);
  EXPECT_NE(text.find("[t$1+8]"), std::string::npos);
  EXPECT_NE(text.find("ld.shared.u32 %r1, [t];"), std::string::npos);
  EXPECT_NE(text.find("mov.u64 %r1, t$1;"), std::string::npos);
  EXPECT_EQ(count(text, "call s$0"), 1u);
  EXPECT_EQ(count(text, "call s$1"), 1u);
}

TEST(Link, WeakYieldsAndCommonGrows) {
  std::string text =
      print(linked({".weak .func w() { trap; ret; }\n.common .global .u32 c[2];\n.weak .entry e() { ret; }",
                    ".visible .func w() { ret; }\n.common .global .u32 c[4];\n.weak .entry e() { ret; }"}));
  EXPECT_EQ(text.find("trap"), std::string::npos);
  EXPECT_EQ(count(text, ".entry e"), 1u);
  EXPECT_EQ(count(text, " c["), 1u);
  EXPECT_NE(text.find("c[4]"), std::string::npos);
}

TEST(Link, OneDynamicSharedArrayServesAll) {
  std::string text = print(linked({".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b8 s[];"}));
  EXPECT_EQ(count(text, ".shared"), 1u);
  EXPECT_NE(text.find(".align 16"), std::string::npos);
}

TEST(Link, CirclesOfPointersAreDeclared) {
  std::string text = print(linked({".extern .global .u64 b;\n.visible .global .u64 a = b;",
                                   ".extern .global .u64 a;\n.visible .global .u64 b = a;"}));
  EXPECT_EQ(count(text, ".extern"), 1u);
  EXPECT_EQ(count(text, ".visible"), 2u);
}

TEST(Link, TakesTheHighestTarget) {
  std::vector<Module> units = {parse(".version 8.7\n.target sm_90, texmode_independent\n.address_size 64"),
                               parse(".version 9.0\n.target sm_100a\n.address_size 64"),
                               parse(".version 7.8\n.target sm_75\n.address_size 64")};
  Module module = link(units);
  EXPECT_EQ(module.version_major, 9u);
  EXPECT_EQ(module.targets, (std::vector<std::string>{"sm_100a", "texmode_independent"}));
  units[1].address_size = 32;
  EXPECT_THROW(link(units), LinkError);
  EXPECT_THROW(link({}), LinkError);
}

TEST(Link, RefusesWhatContradicts) {
  EXPECT_EQ(error_of_link({".visible .entry k() { ret; }", ".visible .entry k() { ret; }"}), "two definitions of 'k'");
  EXPECT_EQ(error_of_link({".visible .global .u32 k;", ".extern .func k;"}), "'k' is a function and a variable");
}

TEST(Link, SamplesLinkAndReadBack) {
  std::vector<Module> units;
  for (const char* name : {"memory", "calls", "groups", "numbers", "debug"}) units.push_back(parse(sample(name)));
  Module module = link(std::move(units));
  EXPECT_TRUE(parse(print(module)) == module);
  EXPECT_EQ(print(module).find(".loc "), std::string::npos);
}

}  // namespace
}  // namespace bandsaw::ptx
