#include "vgpu-sched/ptx/values.h"

namespace bandsaw::ptx {

int64_t variable_named(const Flow& flow, const Step& step) {
  for (const Use& use : flow.uses(step))
    if (use.role == Role::kAddress && use.named == Named::kNode && flow.is_variable(use.index)) return use.index;
  return -1;
}

bool loads_constant(const Step& step) {
  const Instruction& i = *step.instruction;
  return step.kind == Kind::kLoad && (i.has("nc") || i.has("const") || i.has("param"));
}

Values::Values(const Flow& flow, bool guards, const Carries& carries)
    : nodes_(flow.nodes()), forward_(nodes_ + flow.steps().size()), backward_(forward_.size()) {
  for (size_t s = 0; s < flow.steps().size(); ++s) {
    const Step& step = flow.steps()[s];
    const uint32_t me = step_node(s);
    const int64_t variable = variable_named(flow, step);
    const bool passes = step.kind == Kind::kValue || step.kind == Kind::kUnknown ||
                        (variable >= 0 && (step.kind == Kind::kLoad || step.kind == Kind::kStore));
    size_t at = 0;
    for (const Use& use : flow.uses(step)) {
      const size_t here = at++;
      if (use.named != Named::kNode) continue;
      if (use.role == Role::kResult) connect(me, use.index);
      if (passes && use.role == Role::kRead && (!carries || carries(step, here))) connect(use.index, me);
      if (guards && use.role == Role::kGuard) connect(use.index, me);
      if (guards && use.role == Role::kAddress && loads_constant(step)) connect(use.index, me);
    }
    if (variable >= 0 && step.kind == Kind::kLoad) connect(static_cast<uint32_t>(variable), me);
    if (variable >= 0 && step.kind == Kind::kStore) connect(me, static_cast<uint32_t>(variable));
  }
}

void Values::connect(uint32_t from, uint32_t to) {
  forward_[from].push_back(to);
  backward_[to].push_back(from);
}

void Values::spread_bits(std::vector<uint8_t>* marks, bool forward) const {
  spread(marks, forward, [](uint8_t& into, uint8_t from) {
    const uint8_t before = into;
    into |= from;
    return into != before;
  });
}

}  // namespace bandsaw::ptx
