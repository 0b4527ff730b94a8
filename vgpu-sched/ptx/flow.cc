#include "vgpu-sched/ptx/flow.h"

#include <string>
#include <utility>

#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

constexpr size_t kMaxBranches = size_t{1} << 22;  // more, and where they go counts as unknown

struct Key {
  const void* declared;
  std::string_view name;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    return std::hash<const void*>{}(k.declared) * 31 + std::hash<std::string_view>{}(k.name);
  }
};

}  // namespace

class Flow::Builder {
 public:
  Builder(Flow* flow, const Function& function) : flow_(*flow), function_(function) {}

  void run() {
    const Scope scope(nullptr, function_);
    block(*function_.body, scope);
    for (const auto& [step, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) flow_.unknown_target_ = true;
      const uint32_t to = found == labels_.end() ? static_cast<uint32_t>(flow_.steps_.size()) : found->second;
      flow_.targets_[step].push_back(to);
    }
    flow_.node_count_ = nodes_.size();
  }

 private:
  void block(const Block& block_, const Scope& scope) {
    for (const Statement& statement : block_.statements) {
      if (const auto* inner = statement.as<Block>())
        block(*inner, Scope(&scope, *inner));
      else if (const auto* label = statement.as<Label>())
        labels_[label] = static_cast<uint32_t>(flow_.steps_.size());
      else if (const auto* instruction = statement.as<Instruction>())
        step(*instruction, scope);
    }
  }

  void step(const Instruction& instruction, const Scope& scope) {
    Step made{&instruction, kind_of(instruction), static_cast<uint32_t>(flow_.uses_.size()), 0};
    if (instruction.guard) name(Role::kGuard, instruction.guard->predicate.name, scope);
    const bool result = has_result(instruction, made.kind);
    for (size_t i = 0; i < instruction.operands.size(); ++i)
      operand(instruction.operands[i], i == 0 && result ? Role::kResult : Role::kRead, scope);
    if (made.kind == Kind::kBranch) branch(instruction, scope);
    if (made.kind == Kind::kCall) call(made);
    made.uses = static_cast<uint32_t>(flow_.uses_.size()) - made.first_use;
    flow_.steps_.push_back(made);
  }

  // What a call returns is written by it.
  void call(const Step& made) {
    const CallParts parts = call_parts(*made.instruction);
    const size_t returns = parts.returns ? parts.returns->elements.size() : 0;
    size_t at = made.first_use + (made.instruction->guard ? 1 : 0);
    for (size_t i = 0; i < returns && at < flow_.uses_.size(); ++i, ++at) flow_.uses_[at].role = Role::kResult;
    if (parts.target && at < flow_.uses_.size()) flow_.uses_[at].role = Role::kTarget;
  }

  void operand(const Operand& operand_, Role role, const Scope& scope) {
    walk_operand(operand_, [&](const Operand& o) {
      if (const auto* r = o.as<Register>()) {
        name(role, r->name, scope);
      } else if (const auto* symbol = o.as<Symbol>()) {
        name(role, symbol->name, scope);
      } else if (const auto* address = o.as<Address>()) {
        if (const auto* base = std::get_if<Register>(&address->base)) name(Role::kAddress, base->name, scope);
        if (const auto* base = std::get_if<Symbol>(&address->base)) name(Role::kAddress, base->name, scope);
      } else if (const auto* integer = o.as<Integer>()) {
        flow_.uses_.push_back({role, Named::kConstant, integer->bits != 0});
      } else if (o.as<Float>()) {
        flow_.uses_.push_back({role, Named::kConstant, 1});
      }
    });
  }

  void name(Role role, std::string_view name, const Scope& scope) {
    const Declaration declared = scope.find(name);
    if (declared.registers || declared.variable) {
      flow_.uses_.push_back({role, Named::kNode, node(declared, name)});
    } else if (declared) {
      return;  // a label or a list of targets
    } else if (const Special special = special_of(name); special != Special::kNone) {
      flow_.uses_.push_back({role, Named::kSpecial, static_cast<uint32_t>(special)});
    } else {
      const auto [known, added] = global_.try_emplace(name, static_cast<uint32_t>(flow_.names_.size()));
      if (added) flow_.names_.push_back(name);
      flow_.uses_.push_back({role, Named::kGlobal, known->second});
    }
  }

  uint32_t node(const Declaration& declared, std::string_view name) {
    const void* at = declared.registers ? static_cast<const void*>(declared.registers) : declared.variable;
    const auto [known, added] = nodes_.try_emplace(Key{at, name}, static_cast<uint32_t>(nodes_.size()));
    if (!added) return known->second;
    const Variable* variable = declared.variable;
    flow_.is_variable_.push_back(variable && variable->space != Space::kReg);
    const auto& parameters = function_.parameters;
    if (variable && !parameters.empty() && variable >= parameters.data() &&
        variable < parameters.data() + parameters.size())
      flow_.parameters_[known->second] = static_cast<int>(variable - parameters.data());
    return known->second;
  }

  void branch(const Instruction& instruction, const Scope& scope) {
    if (branches_.size() > kMaxBranches) {
      flow_.unknown_target_ = true;
      return;
    }
    const auto at = static_cast<uint32_t>(flow_.steps_.size());
    bool any = false;
    for (const Operand& operand_ : instruction.operands) {
      const auto* symbol = operand_.as<Symbol>();
      const Declaration declared = symbol ? scope.find(symbol->name) : Declaration{};
      if (declared.label) branches_.emplace_back(at, declared.label), any = true;
      if (!declared.targets) continue;
      for (const std::string& target : declared.targets->names)
        if (const Label* label = scope.find(target).label) branches_.emplace_back(at, label), any = true;
    }
    if (!any) flow_.unknown_target_ = true;
  }

  Flow& flow_;
  const Function& function_;
  std::unordered_map<Key, uint32_t, KeyHash> nodes_;
  std::unordered_map<std::string_view, uint32_t> global_;
  std::unordered_map<const Label*, uint32_t> labels_;
  std::vector<std::pair<uint32_t, const Label*>> branches_;
};

Flow::Flow(const Function& function) { Builder(this, function).run(); }

int Flow::parameter_of(uint32_t node) const {
  const auto found = parameters_.find(node);
  return found == parameters_.end() ? -1 : found->second;
}

std::span<const uint32_t> Flow::targets(size_t step) const {
  const auto found = targets_.find(static_cast<uint32_t>(step));
  if (found == targets_.end()) return {};
  return found->second;
}

}  // namespace bandsaw::ptx
