#include "vgpu-sched/ptx/parser.h"

#include "support.h"

namespace bandsaw::ptx {
namespace {

TEST(Parser, ReadsTheHeader) {
  Module module = parse(".version 8.7\n.target sm_90a, debug\n.address_size 64");
  EXPECT_EQ(module.version_major, 8u);
  EXPECT_EQ(module.version_minor, 7u);
  EXPECT_EQ(module.targets, (std::vector<std::string>{"sm_90a", "debug"}));
  EXPECT_EQ(module.address_size, 64u);
}

TEST(Parser, IgnoresTrailingNulBytes) { EXPECT_EQ(parse(kHeader + std::string(3, '\0')), parse(kHeader)); }

TEST(Parser, ReadsVariables) {
  Module module = module_of(
      ".visible .global .attribute(.managed) .align 8 .v2 .f32 a[3][], b;\n"
      ".const[2] .u8 bank;\n.extern .shared .align 16 .b8 dynamic[];");
  const auto& a = std::get<Variable>(module.items[0]);
  EXPECT_EQ(a.linkage, Linkage::kVisible);
  EXPECT_EQ(a.space, Space::kGlobal);
  EXPECT_EQ(a.attributes.at(0).name, "managed");
  EXPECT_EQ(a.alignment(), 8u);
  EXPECT_EQ(a.vector, 2u);
  EXPECT_EQ(a.type, Type::kF32);
  EXPECT_EQ(a.dimensions, (std::vector<std::optional<uint64_t>>{3, std::nullopt}));
  const auto& b = std::get<Variable>(module.items[1]);
  EXPECT_FALSE(b.is_array());
  EXPECT_EQ(b.bytes(), 8u);
  EXPECT_EQ(std::get<Variable>(module.items[2]).const_bank, 2u);
  EXPECT_EQ(std::get<Variable>(module.items[3]).bytes(), 0u);
}

TEST(Parser, ReadsInitialValues) {
  Module module = module_of(
      ".global .u32 n[2][2] = {{1, -2}, {(1 + 2) * 4, 7U}};\n"
      ".global .u64 t[] = {generic(n)+8, n-4, 0xFF00(n), 1};\n"
      ".global .f32 f = -1.5;");
  const auto& n = std::get<InitializerList>(std::get<Variable>(module.items[0]).initial->value);
  const auto& second = std::get<InitializerList>(n.elements[1].value);
  EXPECT_EQ(std::get<Integer>(second.elements[0].value).value(), 12);
  EXPECT_TRUE(std::get<Integer>(second.elements[1].value).is_unsigned);
  const auto& table = std::get<Variable>(module.items[1]);
  EXPECT_EQ(table.bytes(), 32u);
  const auto& t = std::get<InitializerList>(table.initial->value).elements;
  EXPECT_EQ(std::get<SymbolAddress>(t[0].value), (SymbolAddress{"n", 8, true, std::nullopt}));
  EXPECT_EQ(std::get<SymbolAddress>(t[1].value), (SymbolAddress{"n", -4, false, std::nullopt}));
  EXPECT_EQ(std::get<SymbolAddress>(t[2].value), (SymbolAddress{"n", 0, false, 0xFF00}));
  EXPECT_EQ(std::get<Float>(std::get<Variable>(module.items[2]).initial->value).value(), -1.5);
}

TEST(Parser, SizesSaturate) {
  Module module = module_of(".global .u64 huge[0xFFFFFFFFFFFF][0xFFFFFFFFFFFF];");
  EXPECT_EQ(std::get<Variable>(module.items[0]).bytes(), UINT64_MAX);
}

TEST(Parser, ReadsFunctions) {
  Module module = module_of(
      ".visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24])\n"
      ".maxntid 16, 8, 2\n.minnctapersm 2\n.pragma \"nounroll\";\n{ ret; }\n"
      ".extern .func (.param .b32 r) f(.reg .b32 x) .noreturn;\n.alias g, f;");
  const Function& k = function_at(module, 0);
  EXPECT_TRUE(k.entry);
  EXPECT_EQ(k.directive("maxntid")->values, (std::vector<uint64_t>{16, 8, 2}));
  EXPECT_EQ(k.directive("pragma")->strings.at(0), "nounroll");
  EXPECT_EQ(k.parameters[0].pointer_space, Space::kGlobal);
  EXPECT_EQ(k.parameters[0].pointer_align, 16u);
  EXPECT_EQ(k.parameters[1].bytes(), 24u);
  const Function& f = function_at(module, 1);
  EXPECT_FALSE(f.body);
  EXPECT_TRUE(f.directive("noreturn"));
  EXPECT_EQ(f.returns.at(0).name, "r");
  EXPECT_EQ(f.parameters.at(0).space, Space::kReg);
  EXPECT_EQ(std::get<Alias>(module.items[2]).target, "f");
  EXPECT_EQ(module.function("k"), &k);
}

TEST(Parser, SplitsOpcodes) {
  Module module = kernel_of("@!p ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%r1, %r2, %r3, _}, [%rd1+-16];");
  const Instruction& load = instruction_at(module, 0);
  EXPECT_EQ(load.opcode, "ld");
  EXPECT_TRUE(load.has("L1::no_allocate"));
  EXPECT_EQ(load.space(), Space::kGlobal);
  EXPECT_EQ(load.vector(), 4u);
  EXPECT_EQ(load.type(), Type::kF32);
  EXPECT_TRUE(load.guard->negated);
  EXPECT_EQ(load.guard->predicate.name, "p");
  EXPECT_TRUE(load.operands[0].as<Vector>()->elements[3].as<Sink>());
  EXPECT_EQ(load.operands[1].as<Address>()->offset, -16);
  EXPECT_EQ(load.full_name(), "ld.global.nc.L1::no_allocate.L2::128B.v4.f32");
}

TEST(Parser, ReadsOperands) {
  Module module = kernel_of(
      "setp.lt.and.s32 p|q, a, -1, !%p1;\n"
      "mov.u32 a, %tid.x;\n"
      "mov.b64 %rd1, 0xFFFFFFFFFFFFFFFF;\n"
      "mov.f32 %r1, 0f3F800000;\n"
      "mov.u64 %rd1, symbol+8;\n"
      "tex.2d.v4.f32.f32 {a, a, a, a}, [symbol, {a, b}];\n"
      "vadd.u32.u32.u32 a, b.b0, b.h1;\n"
      "call (a), f, (b, 4), proto;\n");
  const auto& setp = instruction_at(module, 0).operands;
  EXPECT_EQ(setp[0].as<Pair>()->elements[1].as<Register>()->name, "q");
  EXPECT_EQ(setp[2].as<Integer>()->value(), -1);
  EXPECT_EQ(setp[3].as<Negated>()->element[0].as<Register>()->name, "%p1");
  EXPECT_EQ(instruction_at(module, 1).operands[1].as<Register>()->component, "x");
  EXPECT_EQ(*instruction_at(module, 2).operands[1].as<Integer>(), (Integer{~uint64_t{0}, true}));
  EXPECT_EQ(instruction_at(module, 3).operands[1].as<Float>()->value(), 1.0);
  EXPECT_EQ(instruction_at(module, 4).operands[1].as<Symbol>()->offset, 8);
  const auto* texture = instruction_at(module, 5).operands[1].as<Address>();
  EXPECT_EQ(std::get<Symbol>(texture->base).name, "symbol");
  EXPECT_EQ(texture->extra.at(0).as<Vector>()->elements.size(), 2u);
  EXPECT_EQ(instruction_at(module, 6).operands[2].as<Register>()->component, "h1");
  EXPECT_EQ(instruction_at(module, 7).operands[2].as<Group>()->elements.size(), 2u);
}

TEST(Parser, TellsRegistersFromSymbolsByScope) {
  Module module = module_of(
      ".global .u32 x;\n.entry k() { .reg .b32 r<11>; mov.u32 r10, r11;\n { .reg .b32 x; mov.u32 x, r1; }\n"
      "mov.u64 r1, x; }");
  const auto& body = function_at(module, 1).body->statements;
  const auto* first = body[1].as<Instruction>();
  EXPECT_TRUE(first->operands[0].as<Register>());
  EXPECT_TRUE(first->operands[1].as<Symbol>());
  EXPECT_TRUE(body[2].as<Block>()->statements[1].as<Instruction>()->operands[0].as<Register>());
  EXPECT_TRUE(body[3].as<Instruction>()->operands[1].as<Symbol>());
}

TEST(Parser, VariablesMayBeNamedLikeRegisters) {  // GCC's parameters are
  Module module = module_of(
      ".entry k(.param .u64 %in) { .reg .u64 %a; ld.param.u64 %a, [%in];\n { .reg .u64 %in; mov.u64 %in, %a; }\n"
      "mov.u64 %a, %in; mov.u32 %b, %tid.x; }\n.func f() { mov.u64 %in, 1; }");
  const auto& body = function_at(module, 0).body->statements;
  EXPECT_TRUE(std::get_if<Symbol>(&body[1].as<Instruction>()->operands[1].as<Address>()->base));
  EXPECT_TRUE(body[2].as<Block>()->statements[1].as<Instruction>()->operands[0].as<Register>());
  EXPECT_TRUE(body[3].as<Instruction>()->operands[1].as<Symbol>());
  EXPECT_TRUE(body[4].as<Instruction>()->operands[1].as<Register>());
  EXPECT_TRUE(function_at(module, 1).body->statements[0].as<Instruction>()->operands[0].as<Register>());
}

TEST(Parser, NumberedVariablesMayBeNamedLikeRegisters) {
  Module module = module_of(
      ".entry k(.param .u64 %in) { .reg .u64 %R<3>;\n { .param .u64 %P<2>; st.param.u64 [%P1], %R1;\n"
      "st.param.u64 [%P0], %P2; { .reg .u64 %P<3>; mov.u64 %P1, %R2; } } mov.u64 %P0, %R1; }");
  const auto& block = function_at(module, 0).body->statements[1].as<Block>()->statements;
  const auto operand = [](const Statement& statement, size_t n) { return statement.as<Instruction>()->operands[n]; };
  EXPECT_TRUE(std::get_if<Symbol>(&operand(block[1], 0).as<Address>()->base));
  EXPECT_TRUE(operand(block[1], 1).as<Register>());
  EXPECT_TRUE(std::get_if<Symbol>(&operand(block[2], 0).as<Address>()->base));
  EXPECT_TRUE(operand(block[2], 1).as<Register>());  // one more than there are
  EXPECT_TRUE(operand(block[3].as<Block>()->statements[1], 0).as<Register>());
  EXPECT_TRUE(operand(function_at(module, 0).body->statements[2], 0).as<Register>());
}

// As XLA has one; ptxas takes it.
TEST(Parser, ReadsAPrototypeThatNothingEnds) {
  Module module = module_of(".extern .func f\n(.param .b64 a)\n\n.visible .entry k() { ret; }");
  EXPECT_FALSE(function_at(module, 0).body);
  EXPECT_EQ(function_at(module, 0).parameters.size(), 1u);
  EXPECT_TRUE(function_at(module, 1).entry);
}

TEST(Parser, ReadsStatements) {
  Module module = kernel_of(
      ".loc 1 5 3, function_name $L__info+4, inlined_at 1 7 9\n.pragma \"nounroll\";\n"
      "L: jumps: .branchtargets L, M;\nM: proto: .callprototype ()_ (.param .align 8 .b8 _[16]) .noreturn;\n"
      ".shared .u32 s, t;");
  const auto& body = function_at(module, 0).body->statements;
  EXPECT_EQ(body[3].as<Location>()->tail, "function_name $L__info+4, inlined_at 1 7 9");
  EXPECT_EQ(body[4].as<Directive>()->strings.at(0), "nounroll");
  EXPECT_EQ(body[5].as<Label>()->name, "L");
  EXPECT_EQ(body[6].as<Targets>()->names.size(), 2u);
  EXPECT_EQ(body[8].as<CallPrototype>()->parameters.at(0).bytes(), 16u);
  EXPECT_EQ(body[10].as<Variable>()->name, "t");
  EXPECT_EQ(body[10].place.line, 10u);
}

TEST(Parser, FoldsConstants) {
  Module module = kernel_of(
      "mov.b64 %rd1, 2 + 3 * 4 == 14 && !(1 > 2) ? 1 << 4 | 3 : 0;\nmov.b64 %rd1, -7 / 2 % 3;\n"
      "mov.b64 %rd1, -9223372036854775808 / -1;\nmov.b64 %rd1, (.u64)-8 >> 60;\n"
      "mov.b64 %rd1, WARP_SZ + 010;");
  EXPECT_EQ(instruction_at(module, 0).operands[1].as<Integer>()->value(), 19);
  EXPECT_EQ(instruction_at(module, 1).operands[1].as<Integer>()->value(), 0);
  EXPECT_EQ(instruction_at(module, 2).operands[1].as<Integer>()->value(), INT64_MIN);
  EXPECT_EQ(instruction_at(module, 3).operands[1].as<Integer>()->value(), 15);
  EXPECT_EQ(instruction_at(module, 4).operands[1].as<Integer>()->value(), 40);
}

TEST(Parser, ErrorsSayWhereAndWhat) {
  ParseError error = error_of(kHeader + ".entry k() {\n  mov.u32 %r1 %r2;\n}");
  EXPECT_EQ(error.line, 5u);
  EXPECT_EQ(error.column, 15u);
  EXPECT_EQ(error.message, "expected ';', found '%r2'");
  EXPECT_EQ(error_of("").message, "expected .version, found the end");
}

TEST(Parser, RefusesWhatItCannotKeep) {
  EXPECT_NE(error_of(kHeader + ".global .u32 x = 18446744073709551616;").message.find("64 bits"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".global .u32 x = 5 / 0;").message.find("divisor"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".global .f32 x = 0f12;").message.find("8 hex digits"), std::string::npos);
  EXPECT_NE(error_of(kHeader + "/* open").message.find("*/"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".file 1 \"open\n").message.find("string"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".section .debug_info { ").message.find("section"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".bogus").message.find("expected"), std::string::npos);
  EXPECT_NE(error_of(kHeader + ".entry k() {").message.find("'}'"), std::string::npos);
}

TEST(Parser, BoundsNesting) {
  for (const char* open : {"{", "mov.u32 %r1, {", "mov.u32 %r1, (", "mov.u32 %r1, [a, [", "mov.u32 %r1, -(-"}) {
    std::string text = kHeader + ".entry k() {";
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_NE(error_of(text).message, "") << open;
  }
  std::string minus = kHeader + ".global .u32 x = " + std::string(1'000'000, '-');
  EXPECT_NE(error_of(minus).message.find("nesting"), std::string::npos);
  std::string list = kHeader + ".global .u32 x = " + std::string(1'000'000, '{');
  EXPECT_NE(error_of(list).message.find("nesting"), std::string::npos);
}

}  // namespace
}  // namespace bandsaw::ptx
