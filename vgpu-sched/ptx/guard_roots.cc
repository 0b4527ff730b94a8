#include "vgpu-sched/ptx/guard_roots.h"

#include <algorithm>
#include <bit>
#include <string>

#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

constexpr size_t kStepsMost = 1 << 18;  // larger functions are checked access by access

uint64_t trailing(uint64_t value) { return value == 0 ? uint64_t{1} << 32 : value & (~value + 1); }

void add_declared(const Block& block, std::set<std::string_view>* names, std::vector<std::string_view>* ranges) {
  walk(block, [&](const Statement& statement) {
    if (const auto* registers = statement.as<Registers>())
      for (const Registers::Name& name : registers->names)
        name.count ? ranges->push_back(name.name) : void(names->insert(name.name));
    if (const auto* variable = statement.as<Variable>()) names->insert(variable->name);
  });
}

const Integer* number(const Instruction& i, size_t n) {
  return n < i.operands.size() ? i.operands[n].as<Integer>() : nullptr;
}

}  // namespace

GuardRoots::GuardRoots(const Function& function, const Scope& scope, uint64_t slack)
    : scope_(scope), slack_(static_cast<int64_t>(slack)), flow_(function), control_(flow_) {
  const size_t count = flow_.steps().size();
  if (count > kStepsMost || flow_.has_unknown_target()) {
    known_ = false;
    return;
  }
  definitions_.assign(flow_.nodes(), kNone);
  for (const Statement& statement : function.body->statements)
    if (const auto* block = statement.as<Block>()) add_declared(*block, &inner_, &inner_ranges_);
  for (uint32_t s = 0; s < count; ++s) {
    const Step& step = flow_.steps()[s];
    steps_[step.instruction] = s;
    for (const Use& use : flow_.uses(step)) {
      if (use.named != Named::kNode) continue;
      uint32_t& definition = definitions_[use.index];
      if (use.role == Role::kResult) definition = definition == kNone ? s : kMany;
    }
  }
  find_cycles();
  find_dominators();
}

// Each step of a cycle is passed over by a jump back.
void GuardRoots::find_cycles() {
  const size_t count = flow_.steps().size();
  std::vector<int32_t> change(count + 1, 0);
  std::vector<uint32_t> joins(count + 1, 0);
  for (uint32_t s = 0; s < count; ++s) {
    for (const uint32_t target : flow_.targets(s)) {
      ++joins[target];
      if (target > s) continue;
      ++change[target];
      --change[s + 1];
    }
  }
  in_cycle_.resize(count);
  joins_.resize(count);
  int32_t depth = 0;
  uint32_t sum = 0;
  for (uint32_t s = 0; s < count; ++s) {
    depth += change[s];
    sum += joins[s];
    in_cycle_[s] = depth > 0;
    joins_[s] = sum;
  }
}

// Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".
void GuardRoots::find_dominators() {
  const uint32_t count = control_.end() + 1;
  std::vector<uint32_t> post, place(count, UINT32_MAX);
  std::vector<std::pair<uint32_t, uint32_t>> work{{0, 0}};
  std::vector<bool> seen(count);
  seen[0] = true;
  while (!work.empty()) {
    const uint32_t node = work.back().first, next = work.back().second++;
    const auto& successors = control_.successors(node);
    if (next == successors.size()) {
      place[node] = static_cast<uint32_t>(post.size());
      post.push_back(node);
      work.pop_back();
    } else if (!seen[successors[next]]) {
      seen[successors[next]] = true;
      work.emplace_back(successors[next], 0);
    }
  }
  above_.assign(count, UINT32_MAX);
  above_[0] = 0;
  size_t budget = kControlBudget;
  const auto meet = [&](uint32_t a, uint32_t b) {
    while (a != b && budget > 0) {
      --budget;
      (place[a] < place[b] ? a : b) = above_[place[a] < place[b] ? a : b];
    }
    return a;
  };
  for (bool changed = true; changed && budget > 0;) {
    changed = false;
    for (size_t n = post.size() - 1; n-- > 0;) {
      uint32_t best = UINT32_MAX;
      for (const uint32_t other : control_.predecessors(post[n]))
        if (above_[other] != UINT32_MAX) best = best == UINT32_MAX ? other : meet(best, other);
      if (best != above_[post[n]]) above_[post[n]] = best, changed = true;
    }
  }
  if (budget == 0)
    known_ = false;
  else
    find_places();
}

// Numbers of the dominators' tree: what a step dominates has the numbers from first_ to last_.
void GuardRoots::find_places() {
  std::vector<std::vector<uint32_t>> below(above_.size());
  for (uint32_t node = 1; node < above_.size(); ++node)
    if (above_[node] != UINT32_MAX) below[above_[node]].push_back(node);
  first_.assign(above_.size(), 1);
  last_.assign(above_.size(), 0);
  uint32_t next = 0;
  std::vector<std::pair<uint32_t, size_t>> work{{0, 0}};
  first_[0] = next++;
  while (!work.empty()) {
    auto& [node, child] = work.back();
    if (child == below[node].size()) {
      last_[node] = next - 1;
      work.pop_back();
      continue;
    }
    const uint32_t to = below[node][child++];
    first_[to] = next++;
    work.emplace_back(to, 0);
  }
}

// Every way to `later` comes by `step` before.
bool GuardRoots::dominates(uint32_t step, uint32_t later) const {
  return step != later && first_[later] <= last_[later] && first_[step] <= first_[later] && last_[later] <= last_[step];
}

bool GuardRoots::is_hidden(std::string_view name) const {
  return inner_.contains(name) ||
         std::any_of(inner_ranges_.begin(), inner_ranges_.end(), [&](auto begin) { return name.starts_with(begin); });
}

// What was written there, and used here for what the access uses, is still the same at the access.
bool GuardRoots::still_holds(uint32_t definition, uint32_t use, uint32_t access) const {
  const bool straight = definition < use && use < access && joins_[definition] == joins_[access];
  return straight || (!in_cycle_[definition] && dominates(definition, use) && dominates(use, access));
}

// The node of the nth operand, where that is a register and each operand before it is one thing.
std::optional<uint32_t> GuardRoots::register_read(const Step& step, size_t operand) const {
  const Instruction& i = *step.instruction;
  if (operand >= i.operands.size() || !i.operands[operand].as<Register>() || step.uses != i.operands.size())
    return std::nullopt;
  const Use& use = flow_.uses(step)[operand];
  if (use.role != Role::kRead || use.named != Named::kNode || flow_.is_variable(use.index)) return std::nullopt;
  return use.index;
}

std::optional<AddressOrigin> GuardRoots::origin(const Instruction& instruction, size_t nth) const {
  const auto found = steps_.find(&instruction);
  if (!known_ || found == steps_.end()) return std::nullopt;
  for (const Use& use : flow_.uses(flow_.steps()[found->second])) {
    if (use.role != Role::kAddress || nth-- != 0) continue;
    const uint32_t made = use.named == Named::kNode ? definition(use.index) : kMany;
    if (made >= kNone || !dominates(made, found->second)) return std::nullopt;
    return derived(made, found->second, 0);
  }
  return std::nullopt;
}

std::optional<GuardRoots::Bounds> GuardRoots::bounds(const Instruction& instruction, size_t operand) const {
  const auto found = steps_.find(&instruction);
  if (!known_ || found == steps_.end()) return std::nullopt;
  return bounds(found->second, operand, 0);
}

// What `use` reads as `name` goes on to be what a check may look at instead.
std::optional<AddressOrigin> GuardRoots::follow(uint32_t node, std::string_view name, uint32_t use, uint32_t access,
                                                int depth) const {
  const uint32_t made = definition(node);
  if (depth > kDeepest || made >= kNone || !still_holds(made, use, access)) return std::nullopt;
  if (auto further = derived(made, access, depth + 1)) return further;
  const Declaration declared = scope_.find(name);
  if (!declared.registers || bits_of(declared.registers->type) != 64 || is_hidden(name)) return std::nullopt;
  AddressOrigin origin;
  origin.root = name;
  origin.made = flow_.steps()[made].instruction;
  origin.once = !in_cycle_[made] && in_cycle_[access];
  return origin;
}

// Of what this step writes. Nothing: it is not made of a pointer and something small.
std::optional<AddressOrigin> GuardRoots::derived(uint32_t at, uint32_t access, int depth) const {
  const Step& step = flow_.steps()[at];
  const Instruction& i = *step.instruction;
  if (i.guard || i.operands.size() < 2) return std::nullopt;
  if (is_plain(i, "mov", {"u64", "s64", "b64"})) {
    const auto* symbol = i.operands[1].as<Symbol>();
    if (!symbol) return sum(at, 1, Bounds{0, 0, uint64_t{1} << 32}, access, depth);
    AddressOrigin origin;
    origin.variable = scope_.find(symbol->name).variable;
    if (!origin.variable || is_hidden(symbol->name)) return std::nullopt;
    origin.generic = origin.variable->space == Space::kGlobal;
    origin.low = origin.high = symbol->offset;
    return origin;
  }
  const bool cast = i.opcode == "cvta" && i.type() == Type::kU64 && !i.has("param") && !i.has("const");
  if (cast) {
    auto origin = sum(at, 1, Bounds{0, 0, uint64_t{1} << 32}, access, depth);
    if (!origin || i.space() == Space::kGlobal) return origin;  // a global address is a generic one, too
    if (!origin->variable || i.has("to") || origin->variable->space != i.space()) return std::nullopt;
    origin->generic = true;
    return origin;
  }
  if (is_plain(i, "add", {"u64", "s64"})) {
    if (const auto added = bounds(at, 2, depth)) return sum(at, 1, added, access, depth);
    return sum(at, 2, bounds(at, 1, depth), access, depth);
  }
  if (i.opcode == "mad" && i.has("wide") && i.operands.size() == 4 && i.modifiers.size() == 2) {
    Instruction product = i;
    product.opcode = "mul";
    product.operands.pop_back();
    return sum(at, 3, bounds_of(product, at, depth), access, depth);
  }
  return std::nullopt;
}

std::optional<AddressOrigin> GuardRoots::sum(uint32_t at, size_t pointer, const std::optional<Bounds>& added,
                                             uint32_t access, int depth) const {
  const Step& step = flow_.steps()[at];
  const auto node = register_read(step, pointer);
  if (!added || !node) return std::nullopt;
  auto origin = follow(*node, step.instruction->operands[pointer].as<Register>()->name, at, access, depth);
  if (!origin) return std::nullopt;
  origin->low += added->low;
  origin->high += added->high;
  origin->alignment = std::min(origin->alignment, added->alignment);
  if (origin->low < -slack_ || origin->high > slack_) return std::nullopt;
  return origin;
}

std::optional<GuardRoots::Bounds> GuardRoots::bounds(uint32_t at, size_t operand, int depth) const {
  const Step& step = flow_.steps()[at];
  const Instruction& i = *step.instruction;
  if (const Integer* constant = number(i, operand)) {
    if (constant->value() < -slack_ || constant->value() > slack_) return std::nullopt;
    return Bounds{constant->value(), constant->value(), trailing(constant->bits)};
  }
  const auto node = register_read(step, operand);
  const uint32_t made = node ? definition(*node) : kMany;
  if (depth > kDeepest || made >= kNone || !dominates(made, at)) return std::nullopt;
  const Instruction& maker = *flow_.steps()[made].instruction;
  if (maker.guard) return std::nullopt;
  // Once for each step: two operands may both be sums of sums.
  const auto [known, fresh] = known_bounds_.try_emplace(made);
  if (fresh) {
    const auto found = bounds_of(maker, made, depth + 1);
    known_bounds_[made] = found;
    return found;
  }
  return known->second;
}

// Whatever is read: by the form of the instruction alone, or what it is made of. 64 bits.
std::optional<GuardRoots::Bounds> GuardRoots::bounds_of(const Instruction& i, uint32_t at, int depth) const {
  const auto in_reach = [this](__int128 low, __int128 high, uint64_t alignment) -> std::optional<Bounds> {
    if (low < -slack_ || high > slack_) return std::nullopt;
    return Bounds{static_cast<int64_t>(low), static_cast<int64_t>(high), alignment};
  };
  const Type type = i.type();
  if (i.opcode == "mul" && i.has("wide") && i.modifiers.size() == 2) {
    const Integer* factor = number(i, 2);
    if (!factor || factor->value() < 0 || factor->value() > INT32_MAX) return std::nullopt;
    const __int128 f = factor->value();
    if (type == Type::kS32) return in_reach(-(f << 31), f << 31, trailing(factor->bits));
    if (type == Type::kU32) return in_reach(0, f << 32, trailing(factor->bits));
    if (type == Type::kU16 || type == Type::kS16) return in_reach(-(f << 16), f << 16, trailing(factor->bits));
    return std::nullopt;
  }
  if (i.opcode == "cvt" && i.modifiers.size() == 2 && bits_of(type) == 64) {
    const Type from = i.type(1);
    if (from == Type::kS32 && type == Type::kS64) return in_reach(-(__int128{1} << 31), __int128{1} << 31, 1);
    if (from == Type::kU32 || from == Type::kU16 || from == Type::kU8) return in_reach(0, __int128{1} << 32, 1);
    return std::nullopt;
  }
  if (is_plain(i, "shl", {"b64"}) && number(i, 2) && number(i, 2)->bits < 32) {
    const auto from = bounds(at, 1, depth);
    const auto shift = number(i, 2)->bits;
    if (!from) return std::nullopt;
    return in_reach(static_cast<__int128>(from->low) * (1LL << shift),
                    static_cast<__int128>(from->high) * (1LL << shift),
                    std::min<uint64_t>(from->alignment << shift, uint64_t{1} << 32));
  }
  if (is_plain(i, "and", {"b64"}) && number(i, 2) && number(i, 2)->value() >= 0)
    return in_reach(0, number(i, 2)->value(), trailing(number(i, 2)->bits));
  if (is_plain(i, "add", {"s64", "u64"})) {
    const auto a = bounds(at, 1, depth), b = bounds(at, 2, depth);
    if (!a || !b) return std::nullopt;
    return in_reach(static_cast<__int128>(a->low) + b->low, static_cast<__int128>(a->high) + b->high,
                    std::min(a->alignment, b->alignment));
  }
  if (is_plain(i, "mov", {"u64", "s64", "b64"})) return bounds(at, 1, depth);
  return std::nullopt;
}

}  // namespace bandsaw::ptx
