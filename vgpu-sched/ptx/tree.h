// The tree of a PTX module (PTX ISA up to 9.0): plain values, copyable, owned by nobody else. The parser makes it, the
// software device's compiler reads it, rewriting changes it, the printer turns it back into text that ptxas accepts.
// Names are kept as written ("%r1", "$L__BB0_2", "retval0"). Equality ignores places in the source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "vgpu-sched/ptx/types.h"

namespace bandsaw::ptx {

// Where something stood in the text, both counted from 1; 0: made by a rewriter. Always compares equal.
struct Place {
  uint32_t line = 0, column = 0;
  friend bool operator==(Place, Place) { return true; }
};

// ---- operands ----

struct Operand;

// A 64-bit integer constant, constant expressions folded. `bits` is two's complement: "-1" is all ones.
struct Integer {
  uint64_t bits = 0;
  bool is_unsigned = false;  // had a U suffix, or does not fit in 63 bits
  int64_t value() const { return static_cast<int64_t>(bits); }
  bool operator==(const Integer&) const = default;
};

// 0fXXXXXXXX (single: low 32 bits) or 0dXXXXXXXXXXXXXXXX; a decimal literal is a double.
struct Float {
  uint64_t bits = 0;
  bool is_double = false;
  double value() const;  // of either width
  bool operator==(const Float&) const = default;
};

// A register: every name that begins with '%' (special registers too) and every name that a .reg in scope declares.
struct Register {
  std::string name;
  std::string component;  // "x" of %tid.x, "b0" or "h1" of video instructions; "" for none
  bool operator==(const Register&) const = default;
};

// What stands in the brackets of `array[3]` and `array[%r1+3]`.
struct ElementIndex {
  std::string by;  // a register; empty for none
  int64_t plus = 0;
  bool operator==(const ElementIndex&) const = default;
};

// A variable, parameter, function, label, prototype, target list or named constant (WARP_SZ): the opcode and Scope tell
// which. `sym+4` outside of brackets carries the offset. A complete tree has no index: parse() makes addresses.
struct Symbol {
  std::string name;
  int64_t offset = 0;
  std::optional<ElementIndex> index;
  bool operator==(const Symbol&) const = default;
};

// `_`
struct Sink {
  bool operator==(const Sink&) const = default;
};

// [base+offset] and [base+offset, extra...]. `base` is a Register, a Symbol (its own offset stays 0), or none: then
// `offset` is the address. `extra` holds what follows in the brackets: sampler, coordinate vector.
struct Address {
  std::variant<std::monostate, Register, Symbol> base;
  int64_t offset = 0;
  std::vector<Operand> extra;
};
bool operator==(const Address& a, const Address& b);

// {a, b, _, c}
struct Vector {
  std::vector<Operand> elements;
};
bool operator==(const Vector& a, const Vector& b);

// (a, b): returned values and arguments of a call
struct Group {
  std::vector<Operand> elements;
};
bool operator==(const Group& a, const Group& b);

// p|q: elements[0] and elements[1]
struct Pair {
  std::vector<Operand> elements;
};
bool operator==(const Pair& a, const Pair& b);

// !p, and -a of video instructions; exactly one element
struct Negated {
  bool arithmetic = false;  // '-', not '!'
  std::vector<Operand> element;
};
bool operator==(const Negated& a, const Negated& b);

struct Operand {
  std::variant<Register, Integer, Float, Symbol, Sink, Address, Vector, Group, Pair, Negated> value;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&value);
  }
  bool operator==(const Operand&) const = default;
};

// ---- declarations ----

struct Initializer;
struct InitializerList {
  std::vector<Initializer> elements;
};
bool operator==(const InitializerList& a, const InitializerList& b);

// symbol, symbol+offset, generic(symbol)+offset, 0xFF00(symbol)
struct SymbolAddress {
  std::string name;
  int64_t offset = 0;
  bool generic = false;
  std::optional<uint64_t> mask;  // which byte of the address; the value is shifted down to bit 0
  bool operator==(const SymbolAddress&) const = default;
};

struct Initializer {
  std::variant<Integer, Float, SymbolAddress, InitializerList> value;
  bool operator==(const Initializer&) const = default;
};

// `.name v0, v1` : performance and other directives of a function, `.attribute`s, `.pragma "text"`.
struct Directive {
  std::string name;  // "maxntid", "pragma", "managed", "unified"
  std::vector<uint64_t> values;
  std::vector<std::string> strings;  // without quotes, escapes as written
  bool operator==(const Directive&) const = default;
};

// One variable or parameter (`.global .u32 a, b` gives two). Not used for registers of a body.
struct Variable {
  Place place;
  Linkage linkage = Linkage::kNone;
  Space space = Space::kNone;
  std::optional<uint32_t> const_bank;  // .const[2]
  std::optional<uint64_t> align;       // as written
  uint32_t vector = 1;                 // .v2 .v4 .v8
  Type type = Type::kNone;
  std::string name;                                 // "_" in prototypes
  std::optional<uint32_t> count;                    // name<count>: variables name0 ... name(count-1)
  std::vector<std::optional<uint64_t>> dimensions;  // of an array; no value: unsized []
  std::optional<Initializer> initial;
  std::vector<Directive> attributes;  // .attribute(.managed), .attribute(.unified(a, b))
  bool pointer = false;               // .param ... .ptr
  Space pointer_space = Space::kNone;
  std::optional<uint64_t> pointer_align;
  bool operator==(const Variable&) const = default;

  bool is_array() const { return !dimensions.empty(); }
  uint64_t element_bytes() const;  // vector included
  uint64_t alignment() const;      // written or natural, at least 1
  // Total size; an unsized first dimension takes its length from the initial value, else counts as 0. Saturates.
  uint64_t bytes() const;
  // .extern that no other module resolves: one with a size is laid out as if it were defined, as ptxas does, and shared
  // memory without one gets its size from the launch.
  bool sized_by_launch() const { return space == Space::kShared && linkage == Linkage::kExtern && bytes() == 0; }
};

// .reg .b32 %r<10>, %a, %b;
struct Registers {
  Type type = Type::kNone;
  uint32_t vector = 1;
  struct Name {
    std::string name;
    std::optional<uint32_t> count;  // name<count>: name0 ... name(count-1)
    bool operator==(const Name&) const = default;
  };
  std::vector<Name> names;
  bool operator==(const Registers&) const = default;
};

// ---- statements ----

struct Guard {
  Register predicate;
  bool negated = false;
  bool operator==(const Guard&) const = default;
};

struct Instruction {
  std::optional<Guard> guard;
  std::string opcode;                  // "ld"
  std::vector<std::string> modifiers;  // without dots: "global", "L1::no_allocate", "v4", "f32"
  std::vector<Operand> operands;
  bool operator==(const Instruction&) const = default;

  bool has(std::string_view modifier) const;
  // The modifiers that are types, in order: cvt.rn.f16.f32 has type(0) f16 and type(1) f32. kNone past the end.
  Type type(size_t n = 0) const;
  size_t type_count() const;
  Space space() const;            // the first modifier that is a state space (shared::cta counts as shared), else kNone
  uint32_t vector() const;        // 2, 4 or 8 for .v2 .v4 .v8, else 1
  std::string full_name() const;  // "ld.global.v4.f32"
};

struct Label {
  std::string name;
  bool operator==(const Label&) const = default;
};

// .loc file line column [, tail]
struct Location {
  uint32_t file = 0, line = 0, column = 0;
  std::string tail;  // "function_name $L__info_string0, inlined_at 1 5 3", normalised spaces
  bool operator==(const Location&) const = default;
};

// label: .callprototype (returns) _ (parameters) .noreturn;
struct CallPrototype {
  std::string label;
  std::vector<Variable> returns, parameters;
  std::vector<Directive> directives;
  bool operator==(const CallPrototype&) const = default;
};

// label: .calltargets f, g;   label: .branchtargets L1, L2;
struct Targets {
  std::string label;
  bool branch = false;  // .branchtargets
  std::vector<std::string> names;
  bool operator==(const Targets&) const = default;
};

struct Statement;
// { ... }: a scope of its own for registers, variables and labels
struct Block {
  std::vector<Statement> statements;
};
bool operator==(const Block& a, const Block& b);

struct Statement {
  Place place;
  std::variant<Instruction, Label, Registers, Variable, Block, Location, Directive, CallPrototype, Targets> value;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&value);
  }
  bool operator==(const Statement&) const = default;
};

// ---- module ----

struct Function {
  Place place;
  Linkage linkage = Linkage::kNone;
  bool entry = false;
  std::string name;
  std::vector<Variable> returns, parameters;  // space kParam or kReg
  std::vector<Directive> directives;          // in order: maxntid, noreturn, pragma, ...
  std::vector<Directive> attributes;
  std::optional<Block> body;  // none: a declaration
  bool operator==(const Function&) const = default;

  const Directive* directive(std::string_view name) const;  // nullptr if absent
};

// Kept as written, to the byte between the braces: DWARF data has its own grammar.
struct Section {
  std::string name;  // ".debug_info"
  std::string text;
  bool operator==(const Section&) const = default;
};

// .file index "name" [, time, size]
struct File {
  uint32_t index = 0;
  std::string name;
  std::vector<uint64_t> values;
  bool operator==(const File&) const = default;
};

struct Alias {
  std::string name, target;
  bool operator==(const Alias&) const = default;
};

using Item = std::variant<Variable, Function, File, Section, Directive, Alias>;

struct Module {
  uint32_t version_major = 0, version_minor = 0;
  std::vector<std::string> targets;  // "sm_90a", "debug"
  uint32_t address_size = 0;         // 0: not written (ptxas takes 32)
  std::vector<Item> items;           // in order
  bool operator==(const Module&) const = default;

  // The definition if there is one, else a declaration, else nullptr. Linear.
  const Function* function(std::string_view name) const;
  const Variable* variable(std::string_view name) const;
};

}  // namespace bandsaw::ptx
