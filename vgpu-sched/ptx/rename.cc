#include "vgpu-sched/ptx/rename.h"

#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

class Renamer {
 public:
  explicit Renamer(const Renaming& renaming) : renaming_(renaming) {}

  void apply(std::string* name) const {
    auto found = renaming_.find(*name);
    if (found != renaming_.end()) *name = found->second;
  }

  void item(Item* item) const {
    if (auto* variable = std::get_if<Variable>(item)) {
      apply(&variable->name);
      if (variable->initial) initializer(&*variable->initial, nullptr);
    } else if (auto* function = std::get_if<Function>(item)) {
      apply(&function->name);
      Scope scope(nullptr, *function);
      if (function->body) block(&*function->body, scope);
    } else if (auto* alias = std::get_if<Alias>(item)) {
      apply(&alias->name);
      apply(&alias->target);
    }
  }

 private:
  // `scope` is the function's own: what it knows is no module-level name.
  void use(std::string* name, const Scope* scope) const {
    if (renaming_.contains(*name) && !(scope && scope->find(*name))) apply(name);
  }

  void initializer(Initializer* initial, const Scope* scope) const {
    if (auto* address = std::get_if<SymbolAddress>(&initial->value)) use(&address->name, scope);
    if (auto* list = std::get_if<InitializerList>(&initial->value))
      for (Initializer& element : list->elements) initializer(&element, scope);
  }

  void block(Block* block_, const Scope& scope) const {
    for (Statement& statement : block_->statements) {
      if (auto* inner = statement.as<Block>()) {
        block(inner, Scope(&scope, *inner));
      } else if (auto* instruction = statement.as<Instruction>()) {
        for (Operand& operand : instruction->operands)
          walk_operand(operand, [&](Operand& o) {
            if (auto* symbol = o.as<Symbol>()) use(&symbol->name, &scope);
            auto* address = o.as<Address>();
            if (auto* base = address ? std::get_if<Symbol>(&address->base) : nullptr) use(&base->name, &scope);
          });
      } else if (auto* variable = statement.as<Variable>()) {
        if (variable->initial) initializer(&*variable->initial, &scope);
      } else if (auto* targets = statement.as<Targets>()) {
        for (std::string& name : targets->names) use(&name, &scope);
      }
    }
  }

  const Renaming& renaming_;
};

void drop_locations(Block* block) {
  std::erase_if(block->statements, [](const Statement& s) { return s.as<Location>() != nullptr; });
  for (Statement& statement : block->statements)
    if (auto* inner = statement.as<Block>()) drop_locations(inner);
}

void collect(const Initializer& initial, std::vector<std::string>* names) {
  if (const auto* address = std::get_if<SymbolAddress>(&initial.value)) names->push_back(address->name);
  if (const auto* list = std::get_if<InitializerList>(&initial.value))
    for (const Initializer& element : list->elements) collect(element, names);
}

}  // namespace

void rename(Module* module, const Renaming& renaming) {
  if (renaming.empty()) return;
  Renamer renamer(renaming);
  for (Item& item : module->items) renamer.item(&item);
}

void drop_debug_data(Module* module) {
  std::erase_if(module->items,
                [](const Item& i) { return std::holds_alternative<Section>(i) || std::holds_alternative<File>(i); });
  for (Item& item : module->items)
    if (auto* function = std::get_if<Function>(&item); function && function->body) drop_locations(&*function->body);
}

std::vector<std::string> addresses_in(const Initializer& initial) {
  std::vector<std::string> names;
  collect(initial, &names);
  return names;
}

}  // namespace bandsaw::ptx
