#include "backend/device/soft/codegen/gathering.h"

#include <algorithm>
#include <optional>

namespace bandsaw::soft {
namespace {

template <typename Visit>
void for_instructions(const ptx::Block& block, const Visit& visit) {
  for (const auto& s : block.statements) {
    if (const auto* in = s.as<ptx::Instruction>()) visit(*in);
    if (const auto* inner = s.as<ptx::Block>()) for_instructions(*inner, visit);
  }
}

// Not kernels, and not only declared.
template <typename Visit>
void for_functions(const ptx::Module& source, const Visit& visit) {
  for (const auto& item : source.items) {
    const auto* f = std::get_if<ptx::Function>(&item);
    if (f && f->body && !f->entry) visit(*f);
  }
}

using Gathering = std::map<std::string, NamedLanes>;

// Which parameters and constants a function's registers hold, and the parameters of its calls, as far as it has been
// walked through.
class HeldValues {
 public:
  explicit HeldValues(const ptx::Function& function) : function_(function) {}

  void note(const ptx::Instruction& in) {
    if (in.opcode == "st" && in.has("param") && in.operands.size() == 2) return pass(in);
    const auto* to = in.operands.empty() ? nullptr : in.operands[0].as<ptx::Register>();
    if (!to) return;
    held_.erase(to->name);
    if (in.guard || in.operands.size() < 2) return;
    std::optional<NamedLanes> value;
    if (in.opcode == "mov") value = of(in.operands[1]);
    if (in.opcode == "ld" && in.has("param") && ptx::bits_of(in.type()) == 32) value = loaded(in.operands[1]);
    if (value) held_[to->name] = *value;
  }
  std::optional<NamedLanes> of(const ptx::Operand& operand) const {
    if (const auto* number = operand.as<ptx::Integer>()) return NamedLanes{-1, static_cast<uint32_t>(number->bits)};
    const auto* from = operand.as<ptx::Register>();
    return from ? find(from->name) : std::nullopt;
  }
  // The lanes that come together in a call of such a function.
  std::optional<NamedLanes> of_call(const ptx::Instruction& call, const NamedLanes& callee) const {
    if (callee.argument < 0) return callee;
    const auto* arguments = call.operands.back().as<ptx::Group>();
    const auto number = static_cast<size_t>(callee.argument);
    if (!arguments || number >= arguments->elements.size()) return std::nullopt;
    const auto* passed = arguments->elements[number].as<ptx::Symbol>();
    return passed ? find(passed->name) : std::nullopt;
  }

 private:
  void pass(const ptx::Instruction& in) {
    const auto* symbol = whole(in.operands[0]);
    if (!symbol) return;
    held_.erase(symbol->name);
    const auto value = of(in.operands[1]);
    if (value && !in.guard && ptx::bits_of(in.type()) == 32) held_[symbol->name] = *value;
  }
  std::optional<NamedLanes> find(const std::string& name) const {
    const auto found = held_.find(name);
    return found == held_.end() ? std::nullopt : std::optional(found->second);
  }
  static const ptx::Symbol* whole(const ptx::Operand& operand) {
    const auto* address = operand.as<ptx::Address>();
    return address && address->offset == 0 ? std::get_if<ptx::Symbol>(&address->base) : nullptr;
  }
  std::optional<NamedLanes> loaded(const ptx::Operand& operand) const {
    const auto* symbol = whole(operand);
    if (!symbol) return std::nullopt;
    for (size_t i = 0; i < function_.parameters.size(); ++i)
      if (function_.parameters[i].name == symbol->name) return NamedLanes{static_cast<int>(i), 0};
    return std::nullopt;
  }

  const ptx::Function& function_;
  std::map<std::string, NamedLanes> held_;
};

std::optional<NamedLanes> lanes_of_all(const ptx::Function& function, const Gathering& callees) {
  HeldValues held(function);
  std::set<std::optional<NamedLanes>> found;
  for_instructions(*function.body, [&](const ptx::Instruction& in) {
    if (is_gathering(in)) found.insert(names_lanes(in) ? held.of(in.operands.back()) : NamedLanes{-1, ~0u});
    if (const auto callee = callees.find(called_function(in)); callee != callees.end())
      found.insert(held.of_call(in, callee->second));
    held.note(in);
  });
  // Where all lanes must come at some time, they may as well come at once.
  if (const NamedLanes all{-1, ~0u}; found.contains(all)) return all;
  return found.size() == 1 ? *found.begin() : std::nullopt;
}

}  // namespace

bool is_gathering(const ptx::Instruction& in) {
  if (in.opcode == "bar" || in.opcode == "barrier") return !in.has("arrive");
  if (in.opcode == "shfl" || in.opcode == "vote" || in.opcode == "match" || in.opcode == "redux" ||
      in.opcode == "elect" || in.opcode == "mma" || in.opcode == "ldmatrix" || in.opcode == "stmatrix" ||
      in.opcode == "movmatrix" || in.opcode == "wmma" || in.opcode == "wgmma")
    return in.has("sync");
  return false;
}

bool names_lanes(const ptx::Instruction& in) {
  if (in.operands.empty()) return false;
  if (in.opcode == "bar" || in.opcode == "barrier") return in.has("warp");
  return in.has("sync") && (in.opcode == "shfl" || in.opcode == "vote" || in.opcode == "match" ||
                            in.opcode == "redux" || in.opcode == "elect");
}

std::string called_function(const ptx::Instruction& in) {
  if (in.opcode != "call") return {};
  for (const ptx::Operand& operand : in.operands)
    if (const auto* symbol = operand.as<ptx::Symbol>()) return symbol->name;
  return {};
}

std::set<std::string> functions_that_wait(const ptx::Module& source) {
  std::set<std::string> found;
  for (bool more = true; more;) {
    more = false;
    for_functions(source, [&](const ptx::Function& f) {
      if (found.contains(f.name)) return;
      bool waits = false;
      for_instructions(*f.body, [&](const ptx::Instruction& in) {
        const bool barrier = (in.opcode == "bar" || in.opcode == "barrier") && !in.has("warp") && !in.has("arrive");
        waits = waits || barrier || found.contains(called_function(in));
      });
      if (waits) more = found.insert(f.name).second;
    });
  }
  return found;
}

std::map<std::string, NamedLanes> functions_that_gather(const ptx::Module& source) {
  constexpr int kDeepest = 8;  // calls
  Gathering found;
  for (int deep = 0; deep < kDeepest; ++deep) {
    Gathering now;
    for_functions(source, [&](const ptx::Function& f) {
      if (const auto named = lanes_of_all(f, found)) now.emplace(f.name, *named);
    });
    if (now == found) break;
    found = std::move(now);
  }
  return found;
}

}  // namespace bandsaw::soft
