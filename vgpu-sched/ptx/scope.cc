#include "vgpu-sched/ptx/scope.h"

#include <algorithm>
#include <charconv>

namespace bandsaw::ptx {
namespace {

Declaration of(const Variable& variable) {
  Declaration declaration;
  declaration.variable = &variable;
  return declaration;
}

}  // namespace

Scope::Scope(const Module& module) {
  for (const Item& item : module.items) {
    if (const auto* variable = std::get_if<Variable>(&item)) {
      // A definition beats a declaration.
      if (variable->linkage == Linkage::kExtern && find_local(variable->name)) continue;
      add(variable->name, variable->count, of(*variable));
    } else if (const auto* function = std::get_if<Function>(&item)) {
      Declaration declaration = find_local(function->name);
      if (declaration.function && declaration.function->body) continue;  // as above
      declaration = {};
      declaration.function = function;
      add(function->name, std::nullopt, declaration);
    }
  }
}

Scope::Scope(const Scope* parent, const Function& function) : parent_(parent) {
  for (const Variable& variable : function.returns) add(variable.name, variable.count, of(variable));
  for (const Variable& variable : function.parameters) add(variable.name, variable.count, of(variable));
  if (function.body) add(*function.body);
}

Scope::Scope(const Scope* parent, const Block& block) : parent_(parent) { add(block); }

void Scope::add(const std::string& name, std::optional<uint32_t> count, Declaration declaration) {
  if (count)
    ranges_[name] = {*count, declaration};
  else
    names_[name] = declaration;
}

void Scope::add(const Block& block) {
  for (const Statement& statement : block.statements) {
    Declaration declaration;
    if (const auto* registers = statement.as<Registers>()) {
      declaration.registers = registers;
      for (const Registers::Name& name : registers->names) add(name.name, name.count, declaration);
    } else if (const auto* variable = statement.as<Variable>()) {
      add(variable->name, variable->count, of(*variable));
    } else if (const auto* label = statement.as<Label>()) {
      declaration.label = label;
      add(label->name, std::nullopt, declaration);
    } else if (const auto* prototype = statement.as<CallPrototype>()) {
      declaration.prototype = prototype;
      add(prototype->label, std::nullopt, declaration);
    } else if (const auto* targets = statement.as<Targets>()) {
      declaration.targets = targets;
      add(targets->label, std::nullopt, declaration);
    }
  }
}

Declaration Scope::find_local(std::string_view name) const {
  auto exact = names_.find(name);
  if (exact != names_.end()) return exact->second;
  if (ranges_.empty()) return {};
  // %r12 may be the thirteenth of %r<20> or the third of %r1<4>. Longer numbers than a count has are none.
  size_t first = name.size();
  while (first > 1 && name.size() - first < 10 && name[first - 1] >= '0' && name[first - 1] <= '9') --first;
  for (size_t split = first; split < name.size(); ++split) {
    if (name[split] == '0' && split + 1 < name.size()) continue;  // %r07 is not %r7
    auto range = ranges_.find(name.substr(0, split));
    if (range == ranges_.end()) continue;
    uint64_t number = 0;
    std::from_chars(name.data() + split, name.data() + name.size(), number);
    if (number < range->second.count) return range->second.declaration;
  }
  return {};
}

Declaration Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_)
    if (Declaration found = scope->find_local(name)) return found;
  return {};
}

std::string unused_prefix(const Function& function, std::string prefix) {
  std::vector<std::string_view> names;
  for (const Variable& v : function.returns) names.push_back(v.name);
  for (const Variable& v : function.parameters) names.push_back(v.name);
  walk(*function.body, [&](const Statement& statement) {
    if (const auto* registers = statement.as<Registers>())
      for (const Registers::Name& name : registers->names) names.push_back(name.name);
    if (const auto* variable = statement.as<Variable>()) names.push_back(variable->name);
  });
  const auto is_taken = [&](std::string_view name) { return name.starts_with(prefix); };
  while (std::any_of(names.begin(), names.end(), is_taken)) prefix += '_';
  return prefix;
}

CallParts call_parts(const Instruction& call) {
  const auto& operands = call.operands;
  CallParts parts;
  size_t i = 0;
  if (i < operands.size() && (parts.returns = operands[i].as<Group>())) ++i;
  if (i >= operands.size() || !(operands[i].as<Symbol>() || operands[i].as<Register>())) return parts;
  const Operand* target = &operands[i++];
  if (i < operands.size() && (parts.arguments = operands[i].as<Group>())) ++i;
  if (i < operands.size() && (parts.prototype = operands[i].as<Symbol>())) ++i;
  if (i == operands.size()) parts.target = target;
  return parts;
}

}  // namespace bandsaw::ptx
