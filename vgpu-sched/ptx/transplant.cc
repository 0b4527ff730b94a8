#include "vgpu-sched/ptx/transplant.h"

#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/function_mover.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

// Entry parameters of a launch, in bytes.
size_t parameter_limit(const Module& module) {
  const bool large = std::pair(module.version_major, module.version_minor) >= std::pair(8u, 1u);
  return large && architecture_of(module) >= 70 ? 32764 : 4096;
}

uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

unsigned architecture_of(const Module& module) {
  unsigned number = 0;
  if (module.targets.empty() || !module.targets[0].starts_with("sm_")) return 0;
  for (const char c : module.targets[0].substr(3, 4))
    if (c >= '0' && c <= '9') number = number * 10 + static_cast<unsigned>(c - '0');
  return number;
}

std::string grid_declarations(uint8_t reads, uint8_t wanted) {
  std::string text = ".reg .b32 %$t, %$q, %$u;\n";
  const char* const names[] = {"x", "y", "z", "gx", "gy", "gz"};
  for (int bit = 0; bit < 6; ++bit)
    if ((wanted & ~reads) >> bit & 1) text.append(".reg .b32 %$").append(names[bit]).append(";\n");
  return text;
}

std::string grid_loads(uint8_t wanted) {
  std::string text;
  const char* const names[] = {"x", "y", "z"};
  for (int axis = 0; axis < 3; ++axis)
    if (wanted >> (axis + 3) & 1)
      text.append("ld.param.b32 %$g").append(names[axis]).append(", [$grid_").append(names[axis]).append("];\n");
  return text;
}

Transplant::Transplant(const ProgramFacts& facts, const Closure& closure) : facts_(facts), closure_(closure) {
  module_.version_major = facts.module.version_major;
  module_.version_minor = facts.module.version_minor;
  module_.address_size = facts.module.address_size;
  for (const std::string& target : facts.module.targets)
    if (target != "debug") module_.targets.push_back(target);
  reads_ = closure.reads.at(closure.functions[0]);
  prefix_ = facts.prefix;
  declare_variables();
  for (size_t f = closure.functions.size(); f-- > 0 && refusal_.empty();) add_function(closure.functions[f]);
  for (const Variable& parameter : kernel_.parameters) {
    if (parameter.bytes() > 32768 || parameter.alignment() > 32768 || parameter.count) {
      refusal_ = "has parameters of an unknown form";
      return;
    }
    parameter_bytes_ = align_up(parameter_bytes_, parameter.alignment()) + parameter.bytes();
    if (parameter_bytes_ > 32768) refusal_ = "has more parameters than a launch takes";
  }
}

void Transplant::declare_variables() {
  for (const Directive* directive : facts_.directives) module_.items.push_back(*directive);
  for (const std::string_view name : closure_.declarations) module_.items.push_back(*facts_.declared.at(name));
  for (const uint32_t v : closure_.own_variables) {
    Variable variable = *facts_.variables[v].variable;
    if (variable.space == Space::kGlobal) variable.linkage = Linkage::kNone;
    module_.items.push_back(std::move(variable));
  }
}

void Transplant::add_function(uint32_t f) {
  FunctionMover mover(facts_, closure_, f, prefix_);
  Function moved = mover.run();
  handed_ += mover.handed();
  refusal_ = handed_ > kMaxHanded ? "hands too much on between its functions" : mover.refusal();
  if (!refusal_.empty()) return;
  if (moved.entry) {
    kernel_ = std::move(moved);
    entry_text_ = mover.declarations();
    for (const uint32_t v : closure_.variables.contains(f) ? closure_.variables.at(f) : std::vector<uint32_t>{}) {
      const std::string name = prefix_ + FunctionMover::variable_register(v);
      entry_text_ += "ld.param.b64 %" + name + ", [" + name + "];\n";
    }
    entry_text_ += mover.addresses();
    return;
  }
  const bool registers = takes_registers(moved);
  std::string entry = mover.declarations();
  for (const Handed& handed : handed_to(closure_, f)) {
    Variable parameter;
    parameter.space = registers ? Space::kReg : Space::kParam;
    parameter.type = handed.type;
    parameter.name = (registers ? "%" : "") + prefix_ + handed.suffix;
    moved.parameters.push_back(std::move(parameter));
    const std::string name = prefix_ + handed.suffix;
    if (!registers) entry.append("ld.param.").append(spelling(handed.type)).append(" %" + name + ", [" + name + "];\n");
  }
  entry += mover.addresses();
  std::vector<Statement> added = statements(entry);
  auto& body = moved.body->statements;
  body.insert(body.begin(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  Function declaration = moved;
  declaration.body.reset();
  std::erase_if(declaration.directives, [](const Directive& d) { return d.name == "pragma"; });
  module_.items.push_back(std::move(declaration));
  definitions_.push_back(std::move(moved));
}

size_t Transplant::add_parameter(std::string_view suffix, Type type) {
  Variable parameter;
  parameter.space = Space::kParam;
  parameter.type = type;
  parameter.name = prefix_ + std::string(suffix);
  const size_t at = align_up(parameter_bytes_, parameter.alignment());
  parameter_bytes_ = at + parameter.bytes();
  kernel_.parameters.push_back(std::move(parameter));
  return at;
}

std::vector<BorrowedVariable> Transplant::add_variables() {
  std::vector<BorrowedVariable> borrowed;
  const auto found = closure_.variables.find(closure_.functions[0]);
  if (found == closure_.variables.end()) return borrowed;
  for (const uint32_t v : found->second) {
    const size_t at = add_parameter(FunctionMover::variable_register(v), Type::kB64);
    borrowed.push_back({facts_.variables[v].variable->name, at});
  }
  return borrowed;
}

std::vector<Statement> Transplant::statements(std::string text) const {
  for (size_t at = text.find('$'); at != text.npos; at = text.find('$', at)) text.replace(at, 1, prefix_);
  Module parsed = parse(".version 9.0\n.target sm_90\n.address_size 64\n.func f() {\n" + text + "\n}\n");
  return std::move(std::get<Function>(parsed.items.at(0)).body->statements);
}

std::string Transplant::finish() {
  const size_t limit = parameter_limit(module_);
  if (parameter_bytes_ > limit) {
    refusal_ = "has no room for more parameters: a launch takes " + std::to_string(limit) + " bytes of them";
    return "";
  }
  for (Item& definition : definitions_) module_.items.push_back(std::move(definition));
  module_.items.push_back(std::move(kernel_));
  return print(module_);
}

}  // namespace bandsaw::ptx
