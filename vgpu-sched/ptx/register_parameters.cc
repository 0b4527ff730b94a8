#include "vgpu-sched/ptx/register_parameters.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

using Variables = std::vector<Variable>;

bool can_move(const Variable& v) {
  const uint32_t bits = bits_of(v.type);
  return v.space == Space::kReg && v.vector == 1 && !v.count && !v.is_array() && bits <= 64 && bits % 8 == 0 &&
         std::has_single_bit(bits);
}

bool any_can_move(const Variables& variables) { return std::any_of(variables.begin(), variables.end(), can_move); }

std::string bits_modifier(const Variable& v) { return "b" + std::to_string(bits_of(v.type)); }

// Of the same width, in memory.
Variable moved(const Variable& v, std::string name) {
  Variable result;
  result.place = v.place;
  result.space = Space::kParam;
  result.type = *type_of(bits_modifier(v));
  result.name = std::move(name);
  return result;
}

Instruction access(const char* opcode, const Variable& v, Operand first, Operand second,
                   const std::optional<Guard>& guard) {
  return {guard, opcode, {"param", bits_modifier(v)}, {std::move(first), std::move(second)}};
}

Operand at(const std::string& parameter) { return {Address{Symbol{parameter, 0, std::nullopt}, 0, {}}}; }

// ---- calls ----

class Calls {
 public:
  explicit Calls(std::string prefix) : prefix_(std::move(prefix)) {}

  // A call gets a block of its own. Scopes still point to what blocks hold: each changes when it has been walked.
  void change(Block* block, const Scope& scope) {
    std::vector<std::pair<size_t, Block>> changed;
    for (size_t i = 0; i < block->statements.size(); ++i) {
      Statement& statement = block->statements[i];
      if (auto* inner = statement.as<Block>()) {
        change(inner, Scope(&scope, *inner));
      } else if (const auto* call = statement.as<Instruction>(); call && call->opcode == "call") {
        if (Block around = with_memory(*call, scope, statement.place); !around.statements.empty())
          changed.emplace_back(i, std::move(around));
      }
    }
    for (auto& [i, around] : changed) block->statements[i].value = std::move(around);
  }

 private:
  // Empty: nothing of the call is in registers.
  Block with_memory(const Instruction& call, const Scope& scope, Place place) {
    const CallParts parts = call_parts(call);
    const auto* name = parts.target ? parts.target->as<Symbol>() : nullptr;
    const Function* function = name ? scope.find(name->name).function : nullptr;
    const CallPrototype* prototype = parts.prototype ? scope.find(parts.prototype->name).prototype : nullptr;
    if (!function && !prototype) return {};
    const Variables& returns = function ? function->returns : prototype->returns;
    const Variables& parameters = function ? function->parameters : prototype->parameters;
    if (!any_can_move(returns) && !any_can_move(parameters)) return {};
    Instruction changed = call;
    Block before, after;
    size_t list = 0;
    if (parts.returns) move(returns, &changed.operands[list++], "r", call.guard, place, &before, &after);
    if (parts.arguments) move(parameters, &changed.operands[list + 1], "a", call.guard, place, &before, nullptr);
    before.statements.push_back({place, std::move(changed)});
    std::move(after.statements.begin(), after.statements.end(), std::back_inserter(before.statements));
    return before;
  }

  // `results`: where they are loaded; null: arguments, which are stored before.
  void move(const Variables& declared, Operand* list, const char* kind, const std::optional<Guard>& guard, Place place,
            Block* before, Block* results) {
    std::vector<Operand>& operands = list->as<Group>()->elements;
    if (operands.size() != declared.size())
      throw ParseError(
          place.line, place.column,
          "expected " + std::to_string(declared.size()) + " arguments, found " + std::to_string(operands.size()));
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!can_move(declared[i])) continue;
      const std::string name = prefix_ + kind + std::to_string(i);
      before->statements.push_back({place, moved(declared[i], name)});
      Operand old = std::exchange(operands[i], Operand{Symbol{name, 0, std::nullopt}});
      if (!results)
        before->statements.push_back({place, access("st", declared[i], at(name), std::move(old), guard)});
      else if (!old.as<Sink>())
        results->statements.push_back({place, access("ld", declared[i], std::move(old), at(name), guard)});
    }
  }

  const std::string prefix_;
};

// ---- declarations and bodies ----

Statement declared_register(const Variable& v) {
  Registers registers;
  registers.type = v.type;
  registers.names.push_back({v.name, std::nullopt});
  return {v.place, std::move(registers)};
}

using Results = std::vector<std::pair<Variable, std::string>>;

void refuse_hidden(const Block& inner, const Results& results) {
  const Scope scope(nullptr, inner);
  for (const auto& [v, name] : results)
    if (scope.find_local(v.name))
      throw ParseError(v.place.line, v.place.column, "expected a result that no block hides, found '" + v.name + "'");
}

// Before each return, and at the end, where a function may end without one.
void store_before_returns(Block* block, const Results& results) {
  std::vector<Statement> statements;
  for (Statement& statement : block->statements) {
    if (auto* inner = statement.as<Block>()) {
      refuse_hidden(*inner, results);
      store_before_returns(inner, results);
    }
    const auto* i = statement.as<Instruction>();
    if (i && i->opcode == "ret")
      for (const auto& [v, name] : results)
        statements.push_back({statement.place, access("st", v, at(name), {Register{v.name, ""}}, i->guard)});
    statements.push_back(std::move(statement));
  }
  block->statements = std::move(statements);
}

void move_parameters(Function* function) {
  const std::string prefix = function->body ? unused_prefix(*function, "$parameter") : "$parameter";
  std::vector<Statement> head;
  Results results;
  size_t number = 0;
  for (Variable& v : function->returns) {
    if (!can_move(v)) continue;
    const std::string name = prefix + "r" + std::to_string(number++);
    head.push_back(declared_register(v));
    results.emplace_back(v, name);
    v = moved(v, name);
  }
  for (Variable& v : function->parameters) {
    if (!can_move(v)) continue;
    const std::string name = prefix + std::to_string(number++);
    head.push_back(declared_register(v));
    head.push_back({v.place, access("ld", v, {Register{v.name, ""}}, at(name), std::nullopt)});
    v = moved(v, name);
  }
  if (head.empty() || !function->body) return;
  auto& statements = function->body->statements;
  if (!results.empty()) {
    const auto* last = statements.empty() ? nullptr : statements.back().as<Instruction>();
    if (!last || last->opcode != "ret" || last->guard) {
      Instruction end;
      end.opcode = "ret";
      statements.push_back({function->place, std::move(end)});
    }
    store_before_returns(&*function->body, results);
  }
  statements.insert(statements.begin(), std::make_move_iterator(head.begin()), std::make_move_iterator(head.end()));
}

// Most modules have none, and are not looked through for calls.
bool any_in_registers(const Module& module) {
  bool found = false;
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (!function) continue;
    found |= any_can_move(function->returns) || any_can_move(function->parameters);
    if (!function->body) continue;
    walk(*function->body, [&](const Statement& statement) {
      const auto* prototype = statement.as<CallPrototype>();
      found |= prototype && (any_can_move(prototype->returns) || any_can_move(prototype->parameters));
    });
  }
  return found;
}

void move_in_prototypes(Block* block) {
  walk(*block, [](Statement& statement) {
    auto* prototype = statement.as<CallPrototype>();
    if (!prototype) return;
    for (Variables* list : {&prototype->returns, &prototype->parameters})
      for (Variable& v : *list)
        if (can_move(v)) v = moved(v, v.name);
  });
}

}  // namespace

void parameters_in_memory(Module* module) {
  if (!any_in_registers(*module)) return;
  const Scope globals(*module);
  std::vector<Function*> functions;
  for (Item& item : module->items)
    if (auto* function = std::get_if<Function>(&item)) functions.push_back(function);
  for (Function* function : functions)
    if (function->body) Calls(unused_prefix(*function, "$call")).change(&*function->body, Scope(&globals, *function));
  for (Function* function : functions) {
    move_parameters(function);
    if (function->body) move_in_prototypes(&*function->body);
  }
}

}  // namespace bandsaw::ptx
