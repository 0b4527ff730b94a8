// Calls of functions in which lanes wait: their bodies take the place of the calls.
#include <algorithm>

#include "backend/device/soft/codegen/flattener.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kDeepest = 32;  // bodies in each other

}  // namespace

bool Flattener::inline_call(const ptx::Instruction& in, uint32_t line, const ptx::Scope& scope) {
  const auto found = module_->inlined.find(called_function(in));
  if (found == module_->inlined.end() || added_ + found->second.all > kMostInlined || inlined_.depth == kDeepest)
    return false;
  const ptx::Function& callee = *found->second.source;
  const ptx::CallParts parts = ptx::call_parts(in);
  Names names;
  if (!bind(callee.returns, parts.returns, scope, &names) || !bind(callee.parameters, parts.arguments, scope, &names))
    return false;
  added_ += found->second.own;
  Inlined inlined{callee.name, new_label("end"), ++calls_, inlined_.depth + 1, found->second.last};
  if (in.guard) leave(&inlined, reg(in.guard->predicate, scope, line), !in.guard->negated, line);
  std::swap(names_, names);
  std::swap(inlined_, inlined);
  const uint64_t local_end = local_end_;
  visit(*callee.body, ptx::Scope(globals_, callee));
  local_end_ = local_end;  // what is called behind it may have the same place
  std::swap(names_, names);
  std::swap(inlined_, inlined);
  if (inlined.left) start_block(inlined.end);
  return true;
}

// The caller's buffers are the callee's arguments or results. false: they do not fit.
bool Flattener::bind(const std::vector<ptx::Variable>& declared, const ptx::Group* passed, const ptx::Scope& scope,
                     Names* to) {
  if (declared.size() != (passed ? passed->elements.size() : 0)) return false;
  for (size_t i = 0; i < declared.size(); ++i) {
    const auto* symbol = passed->elements[i].as<ptx::Symbol>();
    const auto found =
        symbol ? names_.places.find({scope.find(symbol->name).variable, symbol->name}) : names_.places.end();
    if (found == names_.places.end()) return false;
    Place* const place = found->second;
    const auto is_taken = [place](const auto& bound) { return bound.second == place; };
    if (!can_be(declared[i], *place->declaration) || !is_buffer(place) ||
        std::any_of(to->places.begin(), to->places.end(), is_taken))
      return false;
    to->places[{&declared[i], declared[i].name}] = place;
  }
  return true;
}

// Not one of the function's own arguments or results.
bool Flattener::is_buffer(const Place* place) const {
  return std::find(f_.parameters.begin(), f_.parameters.end(), place) == f_.parameters.end() &&
         std::find(f_.returns.begin(), f_.returns.end(), place) == f_.returns.end();
}

// A branch to the end of what is called.
void Flattener::leave(Inlined* inlined, int guard, bool negated, uint32_t line) {
  static const ptx::Instruction kBranch{{}, "bra", {}, {}};
  Op op;
  op.in = &kBranch;
  op.line = line;
  op.guard = guard;
  op.guard_negated = negated;
  op.args.emplace_back();
  op.args[0].kind = ArgKind::kLabel;
  op.args[0].name = inlined->end;
  f_.blocks.back().ops.push_back(std::move(op));
  f_.blocks.emplace_back();
  inlined->left = true;
}

}  // namespace bandsaw::soft
