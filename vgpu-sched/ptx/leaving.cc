#include "vgpu-sched/ptx/leaving.h"

#include <vector>

#include "vgpu-sched/ptx/control.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

class LeavingCheck {
 public:
  LeavingCheck(const ProgramFacts& facts, const Closure& closure)
      : facts_(facts), closure_(closure), flow_(*facts.functions[closure.functions[0]].function) {}

  std::string run() {
    for (size_t f = 1; f < closure_.functions.size(); ++f)
      if (facts_.functions[closure_.functions[f]].exits)
        return "leaves from inside of the function '" + facts_.functions[closure_.functions[f]].function->name + "'";
    if (!find_meetings()) return "";
    const Control control(flow_);
    Divergence divergence(flow_, control);
    const std::vector<bool> free = leaves_without_meeting(control);
    for (const uint32_t branch : std::vector<uint32_t>(divergence.branches())) {
      if (!divergence.known()) break;
      if (!free[branch]) continue;
      bool meets = false;
      divergence.between(branch, [&](uint32_t node) { meets |= meeting_[node]; });
      if (meets) return "may lose some of a block's threads while the others still meet (barriers after early exits)";
    }
    return divergence.known() ? "" : "is too intricate to tell whether its threads leave together";
  }

 private:
  // Where threads wait for others of their block or warp. False: nowhere.
  bool find_meetings() {
    bool any = false, called = false;
    for (size_t f = 1; f < closure_.functions.size(); ++f) called |= meets_inside(closure_.functions[f]);
    for (const Step& step : flow_.steps()) {
      const bool meets = is_meeting(step) || (step.kind == Kind::kCall && called);
      meeting_.push_back(meets);
      any |= meets;
    }
    return any;
  }

  static bool is_meeting(const Step& step) {
    const Instruction& i = *step.instruction;
    if (step.kind == Kind::kBarrier) return is_full_barrier(i);
    return i.has("sync") || i.opcode == "bar" || i.opcode == "barrier";
  }

  bool meets_inside(uint32_t f) const {
    bool any = false;
    walk(*facts_.functions[f].function->body, [&](const Statement& statement) {
      const auto* i = statement.as<Instruction>();
      if (i) any |= is_meeting({i, kind_of(*i), 0, 0});
    });
    return any;
  }

  // The nodes whose next ways may all miss a meeting, up to the end.
  std::vector<bool> leaves_without_meeting(const Control& control) const {
    std::vector<bool> free(control.end() + 1);
    std::vector<uint32_t> work{control.end()};
    free[control.end()] = true;
    while (!work.empty()) {
      const uint32_t node = work.back();
      work.pop_back();
      for (const uint32_t before : control.predecessors(node)) {
        const Step& step = flow_.steps()[before];
        const bool trap = step.kind == Kind::kEnd && step.instruction->opcode == "trap" && !step.instruction->guard;
        if (free[before] || meeting_[before] || trap) continue;
        free[before] = true;
        work.push_back(before);
      }
    }
    return free;
  }

  const ProgramFacts& facts_;
  const Closure& closure_;
  const Flow flow_;
  std::vector<bool> meeting_;
};

}  // namespace

std::string leaves_apart(const ProgramFacts& facts, const Closure& closure) {
  return LeavingCheck(facts, closure).run();
}

}  // namespace bandsaw::ptx
