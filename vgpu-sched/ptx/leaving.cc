#include "vgpu-sched/ptx/leaving.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/control.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

class LeavingCheck {
 public:
  LeavingCheck(const ProgramFacts& facts, const Closure& closure)
      : facts_(facts), closure_(closure), flow_(*facts.functions[closure.functions[0]].function) {}

  Leaving run() {
    Leaving leaving;
    leaving.reason = find_reason(&leaving.whole_warps);
    return leaving;
  }

 private:
  std::string find_reason(bool* whole_warps) {
    if (std::string reason = leaves_inside(facts_, closure_); !reason.empty()) return reason;
    if (!find_meetings()) return "";
    const Control control(flow_);
    Divergence divergence(flow_, control);
    const std::vector<bool> past_warps = leaves_past(kOfWarp, control), past_blocks = leaves_past(kOfBlock, control);
    find_definitions();
    for (const uint32_t branch : std::vector<uint32_t>(divergence.branches())) {
      if (!divergence.known()) break;
      if (!past_blocks[branch]) continue;
      Meeting most = kNone;
      divergence.between(branch, [&](uint32_t node) { most = std::max(most, meeting_[node]); });
      if (most == kOfWarp && !past_warps[branch]) continue;
      const bool warps_only = most == kOfWarp && parts_whole_warps(flow_.steps()[branch]);
      *whole_warps |= warps_only;
      if (most != kNone && !warps_only)
        return "may lose some of a block's threads while the others still meet (barriers after early exits)";
    }
    return divergence.known() ? "" : "is too intricate to tell whether its threads leave together";
  }

  // Whom a step waits for.
  enum Meeting : uint8_t { kNone, kOfWarp, kOfBlock };

  // False: no step waits for anybody.
  bool find_meetings() {
    Meeting most = kNone, called = kNone;
    for (size_t f = 1; f < closure_.functions.size(); ++f)
      called = std::max(called, meeting_inside(closure_.functions[f]));
    for (const Step& step : flow_.steps()) {
      meeting_.push_back(step.kind == Kind::kCall ? called : meeting_at(*step.instruction));
      most = std::max(most, meeting_.back());
    }
    return most != kNone;
  }

  static Meeting meeting_at(const Instruction& i) {
    if (kind_of(i) == Kind::kBarrier) return is_full_barrier(i) ? kOfBlock : kNone;
    return i.has("sync") || i.opcode == "bar" ? kOfWarp : kNone;
  }

  Meeting meeting_inside(uint32_t f) const {
    Meeting most = kNone;
    walk(*facts_.functions[f].function->body, [&](const Statement& statement) {
      if (const auto* i = statement.as<Instruction>()) most = std::max(most, meeting_at(*i));
    });
    return most;
  }

  // The only step that writes a node, if there is only one.
  void find_definitions() {
    definition_.resize(flow_.nodes());
    for (const Step& step : flow_.steps())
      for (const Use& use : flow_.uses(step))
        if (use.role == Role::kResult && use.named == Named::kNode) {
          auto& [first, more] = definition_[use.index];
          more = first != nullptr;
          first = &step;
        }
  }
  const Instruction* definition(const Use& use) const {
    if (use.named != Named::kNode || use.role == Role::kResult) return nullptr;
    const auto& [step, more] = definition_[use.index];
    return step && !more && !step->instruction->guard ? step->instruction : nullptr;
  }

  // A guard that compares %tid.x with a multiple of a warp's size, or %tid.x / 32 with anything constant.
  bool parts_whole_warps(const Step& branch) const {
    if (branch.uses == 0) return false;
    const Use& guard = flow_.uses(branch)[0];
    const Instruction* compare = guard.role == Role::kGuard ? definition(guard) : nullptr;
    if (!compare || compare->opcode != "setp" || compare->operands.size() != 3) return false;
    const auto* constant = compare->operands[2].as<Integer>();
    if (!constant) return false;
    const Step& made = *definition_[guard.index].first;
    if (const Instruction* shift = compared(made); shift && shift->opcode == "shr") {
      const auto* by = shift->operands.size() == 3 ? shift->operands[2].as<Integer>() : nullptr;
      return by && by->bits == 5 && is_tid_x(shift->operands[1], flow_.uses(*step_of(made)));
    }
    if (!is_tid_x(compare->operands[1], flow_.uses(made))) return false;
    for (std::string_view below : {"lt", "ge", "lo", "hs"})
      if (compare->has(below)) return constant->bits % 32 == 0;
    for (std::string_view above : {"gt", "le", "hi", "ls"})
      if (compare->has(above)) return constant->bits % 32 == 31;
    return false;
  }

  // The step that computes what a comparison reads first.
  const Step* step_of(const Step& compare) const {
    for (const Use& use : flow_.uses(compare))
      if (definition(use) && use.role == Role::kRead) return definition_[use.index].first;
    return nullptr;
  }
  const Instruction* compared(const Step& compare) const {
    const Step* step = step_of(compare);
    return step ? step->instruction : nullptr;
  }

  // %tid.x itself, or a register that holds nothing else; `uses` are those of the instruction with the operand.
  bool is_tid_x(const Operand& operand, std::span<const Use> uses) const {
    const auto* r = operand.as<Register>();
    if (!r) return false;
    if (r->name == "%tid") return r->component == "x";
    for (const Use& use : uses) {
      const Instruction* move = use.role == Role::kRead ? definition(use) : nullptr;
      if (move) return move->opcode == "mov" && move->operands.size() == 2 && is_tid_x(move->operands[1], {});
    }
    return false;
  }

  // From where a way leads to the end past every meeting of that kind and above.
  std::vector<bool> leaves_past(Meeting kind, const Control& control) const {
    std::vector<bool> free(control.end() + 1);
    std::vector<uint32_t> work{control.end()};
    free[control.end()] = true;
    while (!work.empty()) {
      const uint32_t node = work.back();
      work.pop_back();
      for (const uint32_t before : control.predecessors(node)) {
        const Step& step = flow_.steps()[before];
        const bool trap = step.kind == Kind::kEnd && step.instruction->opcode == "trap" && !step.instruction->guard;
        if (free[before] || meeting_[before] >= kind || trap) continue;
        free[before] = true;
        work.push_back(before);
      }
    }
    return free;
  }

  const ProgramFacts& facts_;
  const Closure& closure_;
  const Flow flow_;
  std::vector<Meeting> meeting_;
  std::vector<std::pair<const Step*, bool>> definition_;  // and whether there are more
};

}  // namespace

std::string leaves_inside(const ProgramFacts& facts, const Closure& closure) {
  for (size_t f = 1; f < closure.functions.size(); ++f) {
    const FunctionFacts& called = facts.functions[closure.functions[f]];
    if (called.exits) return "leaves from inside of the function '" + called.function->name + "'";
  }
  return "";
}

Leaving leaves_apart(const ProgramFacts& facts, const Closure& closure) { return LeavingCheck(facts, closure).run(); }

}  // namespace bandsaw::ptx
