#include "vgpu-sched/ptx/managed.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <utility>

#include "vgpu-sched/ptx/rename.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

bool is_managed(const Variable& variable) {
  return std::any_of(variable.attributes.begin(), variable.attributes.end(),
                     [](const Directive& d) { return d.name == "managed"; });
}

// Managed addresses in an initial value become numbers.
void place_in(Initializer* initial, const Addresses& addresses) {
  if (auto* list = std::get_if<InitializerList>(&initial->value))
    for (Initializer& element : list->elements) place_in(&element, addresses);
  const auto* symbol = std::get_if<SymbolAddress>(&initial->value);
  const auto found = symbol ? addresses.find(symbol->name) : addresses.end();
  if (found == addresses.end()) return;
  uint64_t value = found->second + static_cast<uint64_t>(symbol->offset);
  if (symbol->mask) value = *symbol->mask ? (value & *symbol->mask) >> std::countr_zero(*symbol->mask) : 0;
  initial->value = Integer{value, false};
}

// One function's uses of managed variables become registers.
class FunctionPlacer {
 public:
  FunctionPlacer(const Addresses& addresses, Function* function)
      : addresses_(addresses), function_(*function), prefix_(unused_prefix(*function, "%managed")) {}

  void run() {
    const Scope scope(nullptr, function_);
    block(&*function_.body, scope);
    if (!registers_.empty()) define_registers();
  }

 private:
  void block(Block* block_, const Scope& scope) {
    for (Statement& statement : block_->statements) {
      if (auto* inner = statement.as<Block>()) {
        block(inner, Scope(&scope, *inner));
      } else if (auto* instruction = statement.as<Instruction>()) {
        for (Operand& operand : instruction->operands) walk_operand(operand, [&](Operand& o) { replace(&o, scope); });
      } else if (auto* variable = statement.as<Variable>()) {
        if (is_managed(*variable)) throw ManagedError(variable->name + ": a managed variable inside of a function");
        if (variable->initial) place_in(&*variable->initial, addresses_);
      }
    }
  }

  void replace(Operand* operand, const Scope& scope) {
    if (const auto* symbol = operand->as<Symbol>()) {
      if (auto value = value_of(*symbol, scope)) operand->value = register_of(*value);
    } else if (auto* address = operand->as<Address>()) {
      const auto* base = std::get_if<Symbol>(&address->base);
      if (auto value = base ? value_of(*base, scope) : std::nullopt) address->base = register_of(*value);
    }
  }

  std::optional<uint64_t> value_of(const Symbol& symbol, const Scope& scope) const {
    const auto found = addresses_.find(symbol.name);
    if (found == addresses_.end() || scope.find(symbol.name)) return std::nullopt;
    return found->second + static_cast<uint64_t>(symbol.offset);
  }

  Register register_of(uint64_t value) {
    return {registers_.try_emplace(value, prefix_ + std::to_string(registers_.size())).first->second, ""};
  }

  // At the beginning, where every path comes by; behind the declarations, because that is how people read functions.
  void define_registers() {
    auto& statements = function_.body->statements;
    auto at = std::find_if(statements.begin(), statements.end(),
                           [](const Statement& s) { return !s.as<Registers>() && !s.as<Variable>(); });
    std::vector<Statement> added;
    Registers declared;
    declared.type = Type::kB64;
    declared.names.push_back({prefix_, static_cast<uint32_t>(registers_.size())});
    added.push_back({{}, std::move(declared)});
    for (const auto& [value, name] : registers_) {
      Instruction move;
      move.opcode = "mov";
      move.modifiers = {"b64"};
      move.operands.push_back({Register{name, ""}});
      move.operands.push_back({Integer{value, false}});
      added.push_back({{}, std::move(move)});
    }
    statements.insert(at, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  }

  const Addresses& addresses_;
  Function& function_;
  const std::string prefix_;
  std::map<uint64_t, std::string> registers_;  // by what they hold
};

// The source is a variable like the managed one, but for the driver to place.
Variable source_of(const Variable& managed, const std::set<std::string, std::less<>>& names) {
  Variable source = managed;
  source.attributes.clear();
  source.linkage = Linkage::kVisible;  // or its address could not be asked for
  source.name += "$initial";
  while (names.contains(source.name)) source.name += '_';
  return source;
}

class Placer {
 public:
  Placer(Module* module, const Addresses& addresses) : module_(*module), addresses_(addresses) {
    for (const Item& item : module_.items) {
      if (const auto* function = std::get_if<Function>(&item)) names_.insert(function->name);
      const auto* variable = std::get_if<Variable>(&item);
      if (!variable) continue;
      names_.insert(variable->name);
    }
  }

  std::vector<PlacedVariable> run() {
    std::vector<Item> kept;
    for (Item& item : module_.items) {
      auto* function = std::get_if<Function>(&item);
      if (function && function->body) FunctionPlacer(addresses_, function).run();
      auto* variable = std::get_if<Variable>(&item);
      if (variable && variable->initial) place_in(&*variable->initial, addresses_);
      if (!variable || !is_managed(*variable)) {
        kept.push_back(std::move(item));
      } else if (variable->linkage != Linkage::kExtern) {
        place(std::move(*variable), &kept);
      }
    }
    module_.items = std::move(kept);
    return std::move(placed_);
  }

 private:
  void place(Variable variable, std::vector<Item>* kept) {
    PlacedVariable placed;
    if (variable.initial && !addresses_in(*variable.initial).empty()) {
      Variable source = source_of(variable, names_);
      names_.insert(source.name);
      placed.source = source.name;
      kept->push_back(std::move(source));
    }
    placed.declaration = std::move(variable);
    placed_.push_back(std::move(placed));
  }

  Module& module_;
  const Addresses& addresses_;
  std::set<std::string, std::less<>> names_;
  std::vector<PlacedVariable> placed_;
};

}  // namespace

bool may_have_managed(std::string_view text) { return text.find(".managed") != std::string_view::npos; }

std::vector<ManagedVariable> managed_variables(const Module& module) {
  std::vector<ManagedVariable> list;
  std::set<std::string_view> declared, defined;
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (!variable || !is_managed(*variable)) continue;
    if (variable->space != Space::kGlobal || variable->count)
      throw ManagedError(variable->name + ": not a form of managed variable");
    declared.insert(variable->name);
    if (variable->linkage == Linkage::kExtern) continue;
    if (!defined.insert(variable->name).second) throw ManagedError(variable->name + ": two definitions");
    list.push_back({variable->name, variable->bytes(), variable->alignment()});
  }
  for (const std::string_view name : declared)
    if (!defined.contains(name)) throw ManagedError(std::string(name) + ": a managed variable without a definition");
  return list;
}

std::vector<PlacedVariable> place_managed(Module* module, const Addresses& addresses) {
  const std::vector<ManagedVariable> managed = managed_variables(*module);
  if (managed.empty()) return {};
  if (module->address_size != 64) throw ManagedError("managed variables in code with addresses of 32 bits");
  Addresses wanted;  // nothing but managed variables is replaced, whatever else the caller names
  for (const ManagedVariable& variable : managed) {
    const auto found = addresses.find(variable.name);
    if (found == addresses.end()) throw ManagedError(variable.name + ": a managed variable without an address");
    wanted.insert(*found);
  }
  drop_debug_data(module);
  std::erase(module->targets, "debug");
  return Placer(module, wanted).run();
}

}  // namespace bandsaw::ptx
