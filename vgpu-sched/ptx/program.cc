#include "vgpu-sched/ptx/program.h"

#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/flow.h"
#include "vgpu-sched/ptx/names.h"
#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/rename.h"
#include "vgpu-sched/ptx/spin.h"
#include "vgpu-sched/ptx/values.h"

namespace bandsaw::ptx {
namespace {

// What may become of an address.
enum Leak : uint8_t { kWritten = 1, kEscapes = 2 };
// Where the target of a call may come from.
enum Origin : uint8_t { kFunctionName = 1, kElsewhere = 2 };

// Names that the compiler gives to strings and tables of its own; the program cannot name them.
bool is_compilers_own(std::string_view name) {
  return name.starts_with("$str") || name.starts_with("__cudart_") || name.starts_with("__unnamed_");
}

// Why an instruction cannot run in a grid of another shape; "": it can.
std::string obstacle_of(const Instruction& i) {
  const std::string& o = i.opcode;
  if (o == "griddepcontrol") return "orders itself against the next grid (griddepcontrol)";
  if (o == "clusterlaunchcontrol") return "takes over other blocks of its grid (clusterlaunchcontrol)";
  const bool cluster = o == "mapa" || o == "getctarank" || (o == "barrier" && i.has("cluster")) ||
                       i.has("multicast::cluster") || o == "multimem";
  if (cluster) return "works with the other blocks of a cluster (" + i.full_name() + ")";
  return "";
}

// What would still be there when the same threads start on another block.
std::string state_left_by(const Instruction& i) {
  const std::string& o = i.opcode;
  if (o == "mbarrier") return "has barriers in shared memory (mbarrier)";
  if (o == "setmaxnreg") return "changes its number of registers (setmaxnreg)";
  if (o == "alloca") return "allocates on its stack (alloca)";
  const bool asynchronous =
      o == "wgmma" || o == "tcgen05" || (o == "cp" && i.has("bulk")) || ((o == "st" || o == "red") && i.has("async"));
  return asynchronous ? "has asynchronous work in flight (" + i.full_name() + ")" : "";
}

// Orders memory for threads of other blocks.
bool is_wide_fence(const Instruction& i) {
  const bool fence =
      i.opcode == "membar" || i.opcode == "fence" || i.has("release") || i.has("acquire") || i.has("acq_rel");
  return fence && (i.has("gl") || i.has("gpu") || i.has("sys"));
}

std::string obstacle_of(Special special) {
  switch (special) {
    case Special::kGridid:
      return "reads %gridid";
    case Special::kCluster:
      return "reads its place in a cluster";
    case Special::kEnvironment:
      return "may synchronise the whole grid (cooperative launch)";
    default:
      return "";
  }
}

class FunctionReader {
 public:
  FunctionReader(ProgramFacts* facts, FunctionFacts* mine, std::vector<uint8_t>* leaks)
      : facts_(*facts), mine_(*mine), leaks_(*leaks), flow_(*mine->function) {}

  void run() {
    directives();
    for (const Step& step : flow_.steps()) this->step(step);
    names();
    pointers();
    locals(*mine_.function->body);
    auto once = [](std::vector<uint32_t>* list) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    };
    once(&mine_.callees);
    once(&mine_.taken);
    once(&mine_.variables);
  }

 private:
  void obstacle(std::string text) {
    if (mine_.obstacle.empty()) mine_.obstacle = std::move(text);
  }

  void directives() {
    for (std::string_view name : {"reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters"})
      if (mine_.function->directive(name)) obstacle("is made for clusters of blocks (." + std::string(name) + ")");
    for (const Variable& parameter : mine_.function->parameters)
      if (parameter.pointer_space == Space::kConst || parameter.type == Type::kTexref ||
          parameter.type == Type::kSurfref || parameter.type == Type::kSamplerref)
        obstacle("takes '" + parameter.name + "', which only its own module can address");
  }

  // Variables declared in the body: those that outlive a launch would exist twice.
  void locals(const Block& block) {
    for (const Statement& statement : block.statements) {
      if (const auto* inner = statement.as<Block>()) locals(*inner);
      const auto* variable = statement.as<Variable>();
      if (variable && (variable->space == Space::kGlobal || variable->space == Space::kConst))
        obstacle("has a variable '" + variable->name + "' inside of its body that outlives a launch");
    }
  }

  void step(const Step& step) {
    const Instruction& i = *step.instruction;
    if (step.kind == Kind::kUnknown || step.kind == Kind::kOther || step.kind == Kind::kCopy ||
        step.kind == Kind::kAtomic)
      if (std::string text = obstacle_of(i); !text.empty()) obstacle(std::move(text));
    if (step.kind == Kind::kBarrier) barrier(i);
    if (mine_.one_block.empty()) mine_.one_block = state_left_by(i);
    if (i.opcode == "exit") mine_.exits = true;
    mine_.polls |= polls_memory(i);
    mine_.wide_fence |= is_wide_fence(i);
    mine_.global_atomic |= step.kind == Kind::kAtomic && i.space() != Space::kShared;
    if (i.has("const")) {
      mine_.to_const = true;
      if (i.opcode == "isspacep") obstacle("asks whether an address is in constant memory");
    }
    for (const Use& use : flow_.uses(step)) {
      if (use.named == Named::kSpecial)
        if (std::string text = obstacle_of(static_cast<Special>(use.index)); !text.empty()) obstacle(std::move(text));
      if (use.named == Named::kNode && use.role == Role::kTarget) mine_.calls_pointer = true;
    }
    for (const Operand& operand : i.operands) grid_reads(operand);
  }

  void barrier(const Instruction& i) {
    mine_.full_barrier |= is_full_barrier(i);
    const size_t at = i.has("red") ? 1 : 0;
    const auto* number = at < i.operands.size() ? i.operands[at].as<Integer>() : nullptr;
    if (number && number->bits < 16)
      mine_.barriers |= static_cast<uint16_t>(1 << number->bits);
    else
      mine_.one_block = "computes the number of a barrier";
  }

  void grid_reads(const Operand& operand) {
    if (const auto* vector = operand.as<Vector>())
      for (const Operand& element : vector->elements) grid_reads(element);
    const auto* r = operand.as<Register>();
    const Special special = r ? special_of(r->name) : Special::kNone;
    if (special != Special::kCtaid && special != Special::kNctaid) return;
    const int shift = special == Special::kCtaid ? 0 : 3;
    const char part = r->component.empty() ? '*' : r->component[0];
    for (int axis = 0; axis < 3; ++axis)
      if (part == '*' || part == "xyz"[axis]) mine_.reads |= static_cast<uint8_t>(1 << (axis + shift));
  }

  // Module-scope names: functions called or taken, variables.
  void names() {
    std::vector<bool> called(flow_.names().size()), used(called);
    for (const Step& step : flow_.steps())
      for (const Use& use : flow_.uses(step))
        if (use.named == Named::kGlobal) (use.role == Role::kTarget ? called : used)[use.index] = true;
    for (size_t n = 0; n < called.size(); ++n) {
      const std::string_view name = flow_.names()[n];
      const auto variable = facts_.variable_index.find(name);
      if (variable != facts_.variable_index.end()) {
        mine_.variables.push_back(variable->second);
      } else if (const auto function = facts_.function(name)) {
        if (called[n]) mine_.callees.push_back(*function);
        if (used[n]) mine_.taken.push_back(*function);
      } else if (called[n]) {
        if (is_driver_function(name) && facts_.declared.contains(name))
          mine_.declarations.push_back(name);
        else
          obstacle("calls '" + std::string(name) + "', which this module does not define");
      } else if (name != "WARP_SZ") {
        obstacle("uses '" + std::string(name) + "', which this module does not define");
      }
    }
  }

  // What becomes of the addresses of variables and functions, and where call targets come from.
  void pointers() {
    const Values values(flow_);
    std::vector<uint8_t> leaks(values.size()), origins(values.size());
    for (size_t s = 0; s < flow_.steps().size(); ++s) sinks(s, values, &leaks, &origins);
    values.spread_bits(&leaks, false);
    values.spread_bits(&origins, true);
    for (size_t s = 0; s < flow_.steps().size(); ++s) {
      const Step& step = flow_.steps()[s];
      for (const Use& use : flow_.uses(step)) {
        if (use.named == Named::kGlobal) leak(flow_.names()[use.index], use, step, leaks[values.step_node(s)]);
        if (use.named == Named::kNode && use.role == Role::kTarget && origins[use.index] != kFunctionName)
          obstacle("calls a function through a pointer that comes from memory");
      }
    }
  }

  void sinks(size_t s, const Values& values, std::vector<uint8_t>* leaks, std::vector<uint8_t>* origins) const {
    const Step& step = flow_.steps()[s];
    const bool inside = variable_named(flow_, step) >= 0;
    bool function_named = false;
    for (const Use& use : flow_.uses(step)) {
      if (use.named == Named::kGlobal && use.role == Role::kRead && facts_.function(flow_.names()[use.index]))
        function_named = true;
      if (use.named != Named::kNode) continue;
      if (use.role == Role::kAddress && !inside) (*leaks)[use.index] |= through_address(step.kind);
      if (use.role == Role::kRead && !(inside && step.kind == Kind::kStore)) (*leaks)[use.index] |= as_value(step);
      if (flow_.parameter_of(use.index) >= 0) (*origins)[use.index] |= kElsewhere;
    }
    if (inside && step.kind == Kind::kStore && returns_it(step))  // it is out of sight then
      (*leaks)[values.step_node(s)] |= kWritten | kEscapes;
    if (function_named && step.kind == Kind::kValue) (*origins)[values.step_node(s)] |= kFunctionName;
    const bool fresh = step.kind != Kind::kValue && step.kind != Kind::kStore && !(inside && step.kind == Kind::kLoad);
    if (fresh) (*origins)[values.step_node(s)] |= kElsewhere;
  }

  bool returns_it(const Step& step) const {
    const std::vector<Variable>& returns = mine_.function->returns;
    if (returns.size() != 1 || step.instruction->operands.empty()) return !returns.empty();
    const auto* address = step.instruction->operands[0].as<Address>();
    const auto* base = address ? std::get_if<Symbol>(&address->base) : nullptr;
    return base && base->name == returns[0].name;
  }

  static uint8_t through_address(Kind kind) {
    return kind == Kind::kLoad || kind == Kind::kOther || kind == Kind::kTexture ? 0 : kWritten;
  }

  // Of a register's value that an instruction reads.
  uint8_t as_value(const Step& step) const {
    if (step.kind == Kind::kValue || step.kind == Kind::kBarrier || step.kind == Kind::kBranch) return 0;
    if (step.kind == Kind::kCall) return calls_driver(step) ? 0 : kWritten | kEscapes;
    if (step.kind == Kind::kStore) return kEscapes;
    return kWritten | kEscapes;
  }

  bool calls_driver(const Step& step) const {
    for (const Use& use : flow_.uses(step))
      if (use.role == Role::kTarget) return use.named == Named::kGlobal && is_driver_function(flow_.names()[use.index]);
    return false;
  }

  void leak(std::string_view name, const Use& use, const Step& step, uint8_t of_step) {
    uint8_t leak = of_step;
    if (use.role == Role::kAddress) leak = through_address(step.kind);
    if (use.role == Role::kRead && !(step.kind == Kind::kStore && variable_named(flow_, step) >= 0))
      leak |= as_value(step);
    const auto variable = facts_.variable_index.find(name);
    if (variable != facts_.variable_index.end()) leaks_[variable->second] |= leak;
    if (use.role != Role::kTarget && leak && facts_.function(name))
      obstacle("hands out the address of the function '" + std::string(name) + "'");
  }

  ProgramFacts& facts_;
  FunctionFacts& mine_;
  std::vector<uint8_t>& leaks_;
  const Flow flow_;
};

}  // namespace

ProgramFacts::ProgramFacts(Module from) : module(std::move(from)) {
  for (const Item& item : module.items) {
    if (const auto* directive = std::get_if<Directive>(&item)) directives.push_back(directive);
    if (const auto* alias = std::get_if<Alias>(&item)) aliases.emplace(alias->name, alias->target);
    if (const auto* variable = std::get_if<Variable>(&item)) {
      const auto [known, added] = variable_index.try_emplace(variable->name, static_cast<uint32_t>(variables.size()));
      if (added)
        variables.push_back({variable, false});
      else if (variable->linkage != Linkage::kExtern)
        variables[known->second].variable = variable;
    }
    const auto* function = std::get_if<Function>(&item);
    if (!function) continue;
    if (!function->body)
      declared.emplace(function->name, function);
    else if (function_index.try_emplace(function->name, static_cast<uint32_t>(functions.size())).second)
      functions.emplace_back().function = function;
  }
  prefix = free_prefix(module);
  std::vector<uint8_t> leaks(variables.size());
  for (FunctionFacts& facts : functions) FunctionReader(this, &facts, &leaks).run();
  for (size_t v = 0; v < variables.size(); ++v) {
    const Variable& variable = *variables[v].variable;
    // A string's address may lie anywhere, printf's arguments for one: nobody writes to a string.
    const uint8_t forbidden = variable.name.starts_with("$") ? kWritten : kWritten | kEscapes;
    variables[v].may_copy = is_compilers_own(variable.name) && variable.linkage == Linkage::kNone &&
                            variable.space == Space::kGlobal && variable.initial && variable.attributes.empty() &&
                            addresses_in(*variable.initial).empty() && !(leaks[v] & forbidden);
  }
}

std::optional<uint32_t> ProgramFacts::function(std::string_view name) const {
  auto found = function_index.find(name);
  if (found == function_index.end()) {
    const auto alias = aliases.find(name);
    if (alias != aliases.end()) found = function_index.find(alias->second);
  }
  if (found == function_index.end()) return std::nullopt;
  return found->second;
}

Program::Program(Module module) : facts_(std::make_unique<const ProgramFacts>(std::move(module))) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

const Module& Program::module() const { return facts_->module; }

std::vector<std::string_view> Program::kernels() const {
  std::vector<std::string_view> names;
  for (const FunctionFacts& facts : facts_->functions)
    if (facts.function->entry) names.push_back(facts.function->name);
  return names;
}

}  // namespace bandsaw::ptx
