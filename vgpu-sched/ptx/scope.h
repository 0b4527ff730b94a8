// What a name means at a place of a function: scopes nest as blocks do, inner names hide outer ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// One of the pointers is set. They point into the tree, which must outlive the Scope and stay unchanged.
struct Declaration {
  const Registers* registers = nullptr;
  const Variable* variable = nullptr;  // a .reg parameter of a .func has space kReg
  const Function* function = nullptr;
  const Label* label = nullptr;
  const CallPrototype* prototype = nullptr;
  const Targets* targets = nullptr;
  explicit operator bool() const { return registers || variable || function || label || prototype || targets; }
};

// Names of one scope. `parent` must outlive it. Ranges (%r<10>) are found as %r0 ... %r9.
class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr) : parent_(parent) {}
  explicit Scope(const Module& module);                  // global names
  Scope(const Scope* parent, const Function& function);  // parameters and the body's own scope
  Scope(const Scope* parent, const Block& block);        // a nested block

  Declaration find(std::string_view name) const;        // here, then outwards; empty if unknown
  Declaration find_local(std::string_view name) const;  // here only
  const Scope* parent() const { return parent_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  void add(const std::string& name, std::optional<uint32_t> count, Declaration declaration);
  void add(const Block& block);

  struct Range {
    uint32_t count;
    Declaration declaration;
  };
  const Scope* parent_ = nullptr;
  std::unordered_map<std::string, Declaration, Hash, std::equal_to<>> names_;
  std::unordered_map<std::string, Range, Hash, std::equal_to<>> ranges_;
};

// Calls f(Statement&) for every statement in order, a Block before what is in it. B: Block or const Block.
template <class B, class F>
void walk(B& block, F&& f) {
  for (auto& statement : block.statements) {
    f(statement);
    if (auto* inner = statement.template as<Block>()) walk(*inner, f);
  }
}

// Calls f(Operand&) for the operand and every operand inside it. O: Operand or const Operand.
template <class O, class F>
void walk_operand(O& operand, F&& f) {
  f(operand);
  if (auto* address = operand.template as<Address>()) {
    for (auto& e : address->extra) walk_operand(e, f);
  } else if (auto* vector = operand.template as<Vector>()) {
    for (auto& e : vector->elements) walk_operand(e, f);
  } else if (auto* group = operand.template as<Group>()) {
    for (auto& e : group->elements) walk_operand(e, f);
  } else if (auto* pair = operand.template as<Pair>()) {
    for (auto& e : pair->elements) walk_operand(e, f);
  } else if (auto* negated = operand.template as<Negated>()) {
    for (auto& e : negated->element) walk_operand(e, f);
  }
}

// `prefix`, and as many underscores that no name that the function declares begins with it: names of new registers,
// which no inner block hides.
std::string unused_prefix(const Function& function, std::string prefix);

// The parts of a `call`: call{.uni} [(returns),] target [, (arguments)] [, prototype or target list].
struct CallParts {
  const Group* returns = nullptr;
  const Operand* target = nullptr;  // Symbol: direct; Register: through a pointer
  const Group* arguments = nullptr;
  const Symbol* prototype = nullptr;
};
// `target` stays nullptr when the operands do not have that shape.
CallParts call_parts(const Instruction& call);

}  // namespace bandsaw::ptx
