#include "vgpu-sched/ptx/function_mover.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

constexpr std::string_view kAxes = "xyz";

Instruction make(std::string opcode, std::vector<std::string> modifiers, std::vector<Operand> operands) {
  Instruction i;
  i.opcode = std::move(opcode);
  i.modifiers = std::move(modifiers);
  i.operands = std::move(operands);
  return i;
}

bool is_grid(const Operand& operand) {
  const auto* r = operand.as<Register>();
  const Special special = r ? special_of(r->name) : Special::kNone;
  return special == Special::kCtaid || special == Special::kNctaid;
}

}  // namespace

std::vector<Handed> handed_to(const Closure& closure, uint32_t function) {
  std::vector<Handed> list;
  const uint8_t reads = closure.reads.at(function);
  for (int bit = 0; bit < 6; ++bit)
    if (reads >> bit & 1) list.push_back({std::string(bit < 3 ? "" : "g") + kAxes[bit % 3], Type::kB32});
  if (const auto variables = closure.variables.find(function); variables != closure.variables.end())
    for (const uint32_t v : variables->second) list.push_back({FunctionMover::variable_register(v), Type::kB64});
  return list;
}

bool takes_registers(const Function& function) {
  auto is_register = [](const Variable& v) { return v.space == Space::kReg; };
  return std::any_of(function.parameters.begin(), function.parameters.end(), is_register) ||
         std::any_of(function.returns.begin(), function.returns.end(), is_register);
}

static const std::vector<uint32_t>& variables_of(const Closure& closure, uint32_t function) {
  static const std::vector<uint32_t> none;
  const auto found = closure.variables.find(function);
  return found == closure.variables.end() ? none : found->second;
}

FunctionMover::FunctionMover(const ProgramFacts& facts, const Closure& closure, uint32_t function,
                             const std::string& prefix)
    : facts_(facts),
      closure_(closure),
      function_(function),
      prefix_(prefix),
      variables_(variables_of(closure, function)) {}

Function FunctionMover::run() {
  const Function& from = *facts_.functions[function_].function;
  Function to;
  to.place = from.place;
  to.entry = from.entry;
  to.linkage = from.entry ? Linkage::kVisible : Linkage::kNone;
  to.name = from.name;
  to.returns = from.returns;
  to.parameters = from.parameters;
  to.directives = from.directives;
  to.attributes = from.attributes;
  to.body = block(*from.body, Scope(nullptr, from));
  return to;
}

Block FunctionMover::block(const Block& from, const Scope& scope) {
  Block to;
  to.statements.reserve(from.statements.size() + 8);
  for (const Statement& statement : from.statements) {
    if (const auto* inner = statement.as<Block>())
      to.statements.push_back({statement.place, block(*inner, Scope(&scope, *inner))});
    else if (statement.as<Instruction>())
      instruction(statement, scope, &to.statements);
    else if (!statement.as<Location>())
      to.statements.push_back(statement);
  }
  return to;
}

void FunctionMover::instruction(const Statement& from, const Scope& scope, std::vector<Statement>* to) {
  Instruction i = *from.as<Instruction>();
  if (grid_vector(i, to)) return;
  grid_scalar(&i);
  constants(&i);
  for (Operand& operand : i.operands) walk_operand(operand, [&](Operand& o) { names(&o, scope); });
  if (i.opcode == "call") return call(std::move(i), from.place, scope, to);
  to->push_back({from.place, std::move(i)});
}

// mov.v4.u32 {a, b, c, d}, %ctaid: a move for each part that is wanted.
bool FunctionMover::grid_vector(const Instruction& from, std::vector<Statement>* to) {
  const bool whole =
      from.operands.size() == 2 && is_grid(from.operands[1]) && from.operands[1].as<Register>()->component.empty();
  if (!whole) return false;
  const auto* parts = from.operands[0].as<Vector>();
  if (from.opcode != "mov" || !parts || parts->elements.size() > 4 || bits_of(from.type()) != 32) {
    refusal_ = "reads its block's index in an unknown way (" + from.full_name() + ")";
    return true;
  }
  for (size_t e = 0; e < parts->elements.size(); ++e) {
    if (parts->elements[e].as<Sink>()) continue;
    Operand source{Integer{0, false}};
    if (e < 3) source.value = Register{grid_name(*from.operands[1].as<Register>(), kAxes[e]), ""};
    Instruction move = make("mov", {"b32"}, {parts->elements[e], std::move(source)});
    move.guard = from.guard;
    to->push_back({{}, std::move(move)});
  }
  return true;
}

// Moves of 16 bits took the lower half in early PTX; the new registers have 32 bits.
void FunctionMover::grid_scalar(Instruction* i) {
  if (i->opcode == "mov" && i->operands.size() == 2 && is_grid(i->operands[1]) && bits_of(i->type()) == 16) {
    i->opcode = "cvt";
    i->modifiers = {"u16", "u32"};
  }
}

// A .const variable is reached through the address that it has in the global window.
void FunctionMover::constants(Instruction* i) const {
  const auto at = std::find(i->modifiers.begin(), i->modifiers.end(), "const");
  if (at == i->modifiers.end()) return;
  *at = "global";
  const bool plain =
      i->opcode == "ld" && at == i->modifiers.begin() && i->modifiers.size() == (i->vector() > 1 ? 3u : 2u);
  if (plain) i->modifiers.insert(i->modifiers.begin() + 1, "nc");
}

void FunctionMover::names(Operand* operand, const Scope& scope) {
  if (is_grid(*operand)) return grid_register(operand);
  if (auto* symbol = operand->as<Symbol>()) {
    const int64_t variable = borrowed(symbol->name, scope);
    if (variable >= 0) {
      const auto v = static_cast<uint32_t>(variable);
      operand->value = Register{address_register(v, symbol->offset), ""};
    } else if (const auto alias = facts_.aliases.find(symbol->name);
               alias != facts_.aliases.end() && !scope.find(symbol->name)) {
      symbol->name = std::string(alias->second);
    }
  } else if (auto* address = operand->as<Address>()) {
    if (const auto* base = std::get_if<Symbol>(&address->base))
      if (const int64_t variable = borrowed(base->name, scope); variable >= 0)
        address->base = Register{address_register(static_cast<uint32_t>(variable), 0), ""};
    const auto* base = std::get_if<Register>(&address->base);
    if (base && (special_of(base->name) == Special::kCtaid || special_of(base->name) == Special::kNctaid))
      refusal_ = "uses its block's index as an address";
  }
}

void FunctionMover::grid_register(Operand* operand) {
  const auto& r = *operand->as<Register>();
  const char axis = r.component.empty() ? '?' : r.component[0];
  if (r.component.size() == 1 && axis == 'w')
    operand->value = Integer{0, false};
  else if (r.component.size() == 1 && kAxes.find(axis) != kAxes.npos)
    operand->value = Register{grid_name(r, axis), ""};
  else
    refusal_ = "reads its block's index in an unknown way (" + r.name + ")";
}

std::string FunctionMover::grid_name(const Register& r, char axis) const {
  return "%" + prefix_ + (special_of(r.name) == Special::kNctaid ? "g" : "") + axis;
}

int64_t FunctionMover::borrowed(const std::string& name, const Scope& scope) const {
  const auto found = facts_.variable_index.find(name);
  if (found == facts_.variable_index.end() || scope.find(name)) return -1;
  return std::binary_search(variables_.begin(), variables_.end(), found->second) ? int64_t{found->second} : -1;
}

std::string FunctionMover::address_register(uint32_t variable, int64_t offset) {
  if (offset == 0) return "%" + prefix_ + variable_register(variable);
  const std::string fresh = "%" + prefix_ + "i" + std::to_string(inside_.size());
  return inside_.try_emplace({variable, offset}, fresh).first->second;
}

// A callee that reads the block's index or borrows variables gets them as parameters.
void FunctionMover::call(Instruction i, Place place, const Scope& scope, std::vector<Statement>* to) {
  const CallParts parts = call_parts(i);
  const auto* target = parts.target ? parts.target->as<Symbol>() : nullptr;
  const auto callee = target && !scope.find(target->name) ? facts_.function(target->name) : std::nullopt;
  const std::vector<Handed> handed = callee ? handed_to(closure_, *callee) : std::vector<Handed>{};
  if (handed.empty()) return to->push_back({place, std::move(i)});
  handed_ += handed.size();
  if (handed_ > kMaxHanded) {
    refusal_ = "hands too much on between its functions";
    return;
  }
  if (parts.prototype) refusal_ = "calls '" + target->name + "' in an unknown way";
  const bool registers = takes_registers(*facts_.functions[*callee].function);
  const size_t after_target = (parts.returns ? 1 : 0) + 1;
  if (!parts.arguments) i.operands.insert(i.operands.begin() + static_cast<ptrdiff_t>(after_target), {Group{}});
  auto& arguments = i.operands[after_target].as<Group>()->elements;
  Block wrapped;
  for (const Handed& h : handed) {
    const Register held{"%" + prefix_ + h.suffix, ""};
    if (registers) {
      arguments.push_back({held});
      continue;
    }
    Variable argument;
    argument.space = Space::kParam;
    argument.type = h.type;
    argument.name = prefix_ + "to_" + h.suffix;
    arguments.push_back({Symbol{argument.name, 0, {}}});
    Address at;
    at.base = Symbol{argument.name, 0, {}};
    wrapped.statements.push_back({{}, std::move(argument)});
    wrapped.statements.push_back({{}, make("st", {"param", std::string(spelling(h.type))}, {{std::move(at)}, {held}})});
  }
  if (registers) return to->push_back({place, std::move(i)});
  wrapped.statements.push_back({place, std::move(i)});
  to->push_back({{}, std::move(wrapped)});
}

std::string FunctionMover::declarations() const {
  std::string text;
  if (!takes_registers(*facts_.functions[function_].function))
    for (const Handed& h : handed_to(closure_, function_))
      text.append(".reg .").append(spelling(h.type)).append(" %").append(prefix_).append(h.suffix).append(";\n");
  if (!inside_.empty()) text += ".reg .b64 %" + prefix_ + "i<" + std::to_string(inside_.size()) + ">;\n";
  return text;
}

std::string FunctionMover::addresses() const {
  std::string text;
  for (const auto& [place, name] : inside_)
    text += "add.s64 " + name + ", %" + prefix_ + variable_register(place.first) + ", " + std::to_string(place.second) +
            ";\n";
  return text;
}

}  // namespace bandsaw::ptx
