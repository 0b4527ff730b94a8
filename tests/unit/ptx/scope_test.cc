#include "vgpu-sched/ptx/scope.h"

#include "support.h"

namespace bandsaw::ptx {
namespace {

TEST(Scope, InnerNamesHideOuterOnes) {
  Module module = module_of(
      ".global .u32 x;\n.func f(.param .b32 n);\n.func f(.param .b32 n) { ret; }\n"
      ".entry k(.param .u32 n) { .reg .b32 %r<12>; L: { .reg .b64 x; .shared .u32 n; } }");
  Scope globals(module);
  const Function& kernel = function_at(module, 3);
  Scope function(&globals, kernel);
  Scope block(&function, *kernel.body->statements[2].as<Block>());
  EXPECT_TRUE(function.find("x").variable);
  EXPECT_EQ(block.find("x").registers->type, Type::kB64);
  EXPECT_EQ(function.find("n").variable->space, Space::kParam);
  EXPECT_EQ(block.find("n").variable->space, Space::kShared);
  EXPECT_TRUE(block.find("L").label);
  EXPECT_TRUE(globals.find("f").function->body);
  EXPECT_FALSE(block.find_local("L"));
  EXPECT_FALSE(block.find("nothing"));
}

TEST(Scope, FindsRegistersOfRanges) {
  Module module = module_of(".entry k() { .reg .b32 %r<12>; .reg .b64 %r1_<3>; }");
  Scope scope(nullptr, function_at(module, 0));
  EXPECT_TRUE(scope.find("%r0").registers);
  EXPECT_TRUE(scope.find("%r11").registers);
  EXPECT_FALSE(scope.find("%r12"));
  EXPECT_FALSE(scope.find("%r01"));
  EXPECT_FALSE(scope.find("%r"));
  EXPECT_EQ(scope.find("%r1_2").registers->type, Type::kB64);
}

TEST(Scope, WalksBlocksAndOperands) {
  Module module = kernel_of("{ { mov.b64 %rd1, {a, b}; } } setp.eq.s32 p|q, a, b, !p;");
  int instructions = 0, registers = 0;
  walk(*function_at(module, 0).body, [&](const Statement& statement) {
    const auto* instruction = statement.as<Instruction>();
    if (!instruction) return;
    ++instructions;
    for (const Operand& operand : instruction->operands)
      walk_operand(operand, [&](const Operand& o) { registers += o.as<Register>() != nullptr; });
  });
  EXPECT_EQ(instructions, 2);
  EXPECT_EQ(registers, 8);
}

TEST(Scope, TakesCallsApart) {
  Module module = kernel_of("call f;\ncall (a), f, (b);\ncall.uni f, (b);\ncall (a), %rd1, (b), proto;\ncall 4;");
  EXPECT_EQ(call_parts(instruction_at(module, 0)).target->as<Symbol>()->name, "f");
  CallParts direct = call_parts(instruction_at(module, 1));
  EXPECT_EQ(direct.returns->elements.size(), 1u);
  EXPECT_EQ(direct.arguments->elements.size(), 1u);
  EXPECT_FALSE(call_parts(instruction_at(module, 2)).returns);
  CallParts indirect = call_parts(instruction_at(module, 3));
  EXPECT_TRUE(indirect.target->as<Register>());
  EXPECT_EQ(indirect.prototype->name, "proto");
  EXPECT_FALSE(call_parts(instruction_at(module, 4)).target);
}

TEST(Types, AreSpelledAsTheyAreRead) {
  for (int i = 1; i <= static_cast<int>(Type::kE3m2x4); ++i) {
    Type type = static_cast<Type>(i);
    EXPECT_EQ(type_of(spelling(type)), type);
    EXPECT_GT(bits_of(type), 0u) << spelling(type);
  }
  EXPECT_EQ(space_of("shared::cluster"), Space::kShared);
  EXPECT_FALSE(space_of("sharedx"));
  EXPECT_FALSE(type_of("s31"));
}

}  // namespace
}  // namespace bandsaw::ptx
