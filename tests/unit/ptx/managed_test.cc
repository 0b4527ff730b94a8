// Managed variables at chosen addresses, each form; what comes out must be PTX that ptxas takes.
#include "vgpu-sched/ptx/managed.h"

#include <cstring>

#include "ptxas.h"
#include "support.h"
#include "vgpu-sched/ptx/initial_value.h"
#include "vgpu-sched/ptx/link.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/rename.h"

namespace bandsaw::ptx {
namespace {

constexpr uint64_t kAt = 0x200000010000;

// Every managed variable in a 64 KiB piece of its own, from kAt.
Addresses addresses_for(const Module& module) {
  Addresses addresses;
  for (const ManagedVariable& variable : managed_variables(module))
    addresses[variable.name] = kAt + 0x10000 * addresses.size();
  return addresses;
}

struct Placed {
  Module module;
  std::vector<PlacedVariable> variables;
  std::string text;
};

Placed place(Module module) {
  Placed placed{std::move(module), {}, {}};
  placed.variables = place_managed(&placed.module, addresses_for(placed.module));
  placed.text = print(placed.module);
  EXPECT_EQ(parse(placed.text), placed.module);
  EXPECT_FALSE(may_have_managed(placed.text));
  EXPECT_TRUE(ptxas_takes(placed.text, placed.module.targets[0])) << placed.text;
  return placed;
}

Placed place_items(const std::string& items) { return place(module_of(items)); }

// With `m`, four integers, and registers to use it with.
Placed place_body(const std::string& body) {
  return place_items(
      ".visible .global .attribute(.managed) .align 16 .b32 m[4];\n"
      ".func take(.reg .b64 a) { ret; }\n.func take_param(.param .b64 a) { ret; }\n"
      ".entry k(.param .u64 p) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n" +
      body + "\nret;\n}");
}

const Instruction& last_but_return(const Placed& placed) {
  const auto& statements = function_at(placed.module, placed.module.items.size() - 1).body->statements;
  return *statements.at(statements.size() - 2).as<Instruction>();
}

std::string printed(const Instruction& instruction) {
  Statement statement;
  statement.value = instruction;
  return print(statement);
}

TEST(Managed, AddressesAreMovedIntoRegisters) {
  const Placed placed = place_body("mov.u64 %rd1, m;");
  EXPECT_NE(placed.text.find("mov.b64 %managed0, 35184372154368;"), std::string::npos) << placed.text;
  EXPECT_NE(printed(last_but_return(placed)).find("mov.u64 %rd1, %managed0;"), std::string::npos) << placed.text;
}

TEST(Managed, OffsetsOfSymbolsAreRegistersOfTheirOwn) {
  const Placed placed = place_body("mov.u64 %rd1, m; mov.u64 %rd2, m+8; mov.u64 %rd3, m;");
  EXPECT_NE(placed.text.find("%managed<2>"), std::string::npos) << placed.text;
  EXPECT_NE(placed.text.find(std::to_string(kAt + 8)), std::string::npos) << placed.text;
}

TEST(Managed, EveryPlaceOfAnAddressInCode) {
  for (const char* body : {
           "ld.global.u32 %r1, [m+4];",
           "ld.u32 %r1, [m];",
           "st.global.u32 [m+12], %r1;",
           "st.volatile.u32 [m], 3;",
           "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [m];",
           "atom.global.add.u32 %r1, [m], 1;",
           "red.global.max.u32 [m+4], %r1;",
           "atom.cas.b32 %r1, [m], 1, 2;",
           "cvta.global.u64 %rd1, m;",
           "cvta.global.u64 %rd1, m+4;",
           "@%p1 ld.global.u32 %r1, [m];",
           "@!%p1 st.global.u32 [m], %r1;",
           "@%p1 mov.u64 %rd1, m;",
           "prefetch.global.L2 [m];",
           "call take, (m);",
           "{ .param .b64 a; st.param.b64 [a], %rd1; call.uni take_param, (a); }",
           "mov.b64 %rd1, m;",
           "ld.relaxed.gpu.global.u32 %r1, [m];",
           "cp.async.ca.shared.global [%r1], [m], 16;",
       }) {
    SCOPED_TRACE(body);
    const Placed placed = place_body(body);
    EXPECT_EQ(placed.text.find(" m;"), std::string::npos) << placed.text;
    EXPECT_EQ(placed.text.find("[m"), std::string::npos) << placed.text;
  }
}

TEST(Managed, NamesThatHideTheVariableStay) {
  const Placed placed =
      place_body("{ .local .b32 m[4]; st.local.u32 [m], 1; }\n{ .reg .b64 m; mov.u64 m, 4; }\nld.global.u32 %r1, [m];");
  EXPECT_NE(placed.text.find("st.local.u32 [m], 1;"), std::string::npos) << placed.text;
  EXPECT_NE(placed.text.find("mov.u64 m, 4;"), std::string::npos) << placed.text;
  EXPECT_NE(placed.text.find("ld.global.u32 %r1, [%managed0];"), std::string::npos) << placed.text;
}

TEST(Managed, NewRegistersCollideWithNone) {
  const Placed placed = place_body("{ .reg .b64 %managed0; mov.u64 %managed0, m; }");
  EXPECT_NE(placed.text.find("mov.u64 %managed0, %managed_0;"), std::string::npos) << placed.text;
}

TEST(Managed, InitialValuesOfOthersAreNumbers) {
  const Placed placed = place_items(
      ".global .attribute(.managed) .u32 m[4];\n.global .u32 d;\n"
      ".visible .global .align 8 .u64 a = m;\n.visible .const .align 8 .u64 b = generic(m)+4;\n"
      ".visible .global .align 8 .u64 c[2] = {generic(m), generic(d)};\n"
      ".visible .global .u8 e[3] = {0xFF(generic(m)), 0xFF00(generic(m)+256), 0xFF0000000000(generic(m))};");
  EXPECT_TRUE(addresses_in(*placed.module.variable("a")->initial).empty());
  EXPECT_EQ(*placed.module.variable("b")->initial, (Initializer{Integer{kAt + 4, false}}));
  EXPECT_EQ(addresses_in(*placed.module.variable("c")->initial), std::vector<std::string>{"d"});
  const Initializer bytes = *placed.module.variable("e")->initial;
  EXPECT_EQ(bytes, (Initializer{InitializerList{{{Integer{0, false}}, {Integer{1, false}}, {Integer{0x20, false}}}}}));
}

std::vector<uint8_t> initial_of(const PlacedVariable& placed) {
  std::vector<uint8_t> bytes(placed.declaration.bytes());
  write_initial(
      placed.declaration,
      [&](uint64_t offset, std::span<const std::byte> value) {
        std::memcpy(bytes.data() + offset, value.data(), value.size());
      },
      [](uint64_t, uint32_t, const SymbolAddress& address) { ADD_FAILURE() << address.name; });
  return bytes;
}

TEST(Managed, InitialValuesOfTheirOwn) {
  const Placed placed = place_items(
      ".global .attribute(.managed) .u32 a = 7;\n.global .attribute(.managed) .u16 b[2][2] = {{1}, {2, -1}};\n"
      ".global .attribute(.managed) .f32 c = 0d3FF0000000000000;\n.global .attribute(.managed) .u64 d = generic(a)+4;\n"
      ".global .attribute(.managed) .b8 e[5] = {1, 2};\n.global .attribute(.managed) .v2 .u32 f = {3, 4};");
  ASSERT_EQ(placed.variables.size(), 6u);
  for (const PlacedVariable& variable : placed.variables) EXPECT_EQ(variable.source, "");
  EXPECT_EQ(initial_of(placed.variables[0]), (std::vector<uint8_t>{7, 0, 0, 0}));
  EXPECT_EQ(initial_of(placed.variables[1]), (std::vector<uint8_t>{1, 0, 0, 0, 2, 0, 255, 255}));
  EXPECT_EQ(initial_of(placed.variables[2]), (std::vector<uint8_t>{0, 0, 0x80, 0x3f}));
  EXPECT_EQ(initial_of(placed.variables[3]), (std::vector<uint8_t>{4, 0, 1, 0, 0, 0x20, 0, 0}));
  EXPECT_EQ(initial_of(placed.variables[4]), (std::vector<uint8_t>{1, 2, 0, 0, 0}));
  EXPECT_EQ(initial_of(placed.variables[5]), (std::vector<uint8_t>{3, 0, 0, 0, 4, 0, 0, 0}));
  EXPECT_TRUE(placed.module.items.empty());
}

TEST(Managed, AddressesThatOnlyTheDriverKnowsComeFromASource) {
  const Placed placed = place_items(
      ".func (.param .b32 r) f(.param .b32 a);\n.global .u32 d = 3;\n.global .u32 p$initial;\n"
      ".global .attribute(.managed) .align 8 .u64 p = generic(d);\n.global .attribute(.managed) .u64 g = f;\n"
      ".global .attribute(.managed) .u8 q[8] = {1, 0xFF(generic(d)), 0xFF00(generic(p))};\n"
      ".func (.param .b32 r) f(.param .b32 a) { st.param.b32 [r], 1; ret; }");
  ASSERT_EQ(placed.variables.size(), 3u);
  EXPECT_EQ(placed.variables[0].source, "p$initial_");
  EXPECT_EQ(placed.variables[1].source, "g$initial");
  EXPECT_EQ(placed.variables[2].source, "q$initial");
  EXPECT_EQ(placed.module.variable("q$initial")->linkage, Linkage::kVisible);
  EXPECT_EQ(addresses_in(*placed.module.variable("q$initial")->initial), std::vector<std::string>{"d"});
}

TEST(Managed, WhatHasNoneStaysAsItIs) {
  Module module = parse(sample("calls"));
  const Module before = module;
  EXPECT_TRUE(place_managed(&module, {{"counter", kAt}}).empty());
  EXPECT_EQ(module, before);
}

TEST(Managed, Samples) {
  const Placed memory = place(parse(sample("memory")));
  ASSERT_EQ(memory.variables.size(), 1u);
  EXPECT_EQ(initial_of(memory.variables[0]), (std::vector<uint8_t>{7, 0, 0, 0}));
  const Placed managed = place(parse(sample("managed")));
  EXPECT_EQ(managed.variables.size(), 9u);
  place(parse(sample("managed_debug")));
}

TEST(Managed, UnitsAreLinkedFirst) {
  const std::string user = ".extern .global .attribute(.managed) .align 4 .u32 m;\n";
  const Module first = module_of(user + ".visible .func f() { st.global.u32 [m], 1; ret; }");
  const Module second = module_of(
      ".visible .global .attribute(.managed) .align 4 .u32 m = 5;\n.extern .func f();\n"
      ".visible .entry k() { call f; ret; }");
  EXPECT_THROW(managed_variables(first), ManagedError);
  const Placed placed = place(link({first, second}));
  ASSERT_EQ(placed.variables.size(), 1u);
  EXPECT_EQ(placed.text.find(".attribute"), std::string::npos) << placed.text;
}

TEST(Managed, WhatCannotBe) {
  Module inside =
      module_of(".global .attribute(.managed) .u32 a;\n.entry k() { .global .attribute(.managed) .u32 b; ret; }");
  EXPECT_THROW(place_managed(&inside, {{"a", kAt}}), ManagedError);
  Module module = module_of(".global .attribute(.managed) .u32 a;\n.global .attribute(.managed) .u32 b;");
  EXPECT_THROW(place_managed(&module, {{"a", kAt}}), ManagedError);
  Module narrow = parse(".version 9.0\n.target sm_90\n.address_size 32\n.global .attribute(.managed) .u32 a;");
  EXPECT_THROW(place_managed(&narrow, {{"a", kAt}}), ManagedError);
  Module odd = module_of(".const .attribute(.managed) .u32 a;");
  EXPECT_THROW(managed_variables(odd), ManagedError);
}

TEST(InitialValue, MoreValuesThanElements) {
  Variable variable = *module_of(".global .u32 a[2] = {1, 2};").variable("a");
  uint64_t end = 0;
  const auto bytes = [&](uint64_t offset, std::span<const std::byte> value) {
    end = std::max(end, offset + value.size());
  };
  const auto none = [](uint64_t, uint32_t, const SymbolAddress&) {};
  variable.dimensions = {1};
  EXPECT_THROW(write_initial(variable, bytes, none), InitialError);
  EXPECT_EQ(end, 4u);
  variable.dimensions = {2, uint64_t{1} << 62};  // strides that overflow
  variable.initial = module_of(".global .u32 a[3][1] = {{1}, {2}, {3}};").variable("a")->initial;
  EXPECT_NO_FATAL_FAILURE(try { write_initial(variable, bytes, none); } catch (const InitialError&){});
  EXPECT_LE(end, variable.bytes());
}

}  // namespace
}  // namespace bandsaw::ptx
