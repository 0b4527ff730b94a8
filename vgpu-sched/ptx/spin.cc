#include "vgpu-sched/ptx/spin.h"

#include <algorithm>
#include <map>
#include <vector>

#include "vgpu-sched/ptx/control.h"
#include "vgpu-sched/ptx/values.h"

namespace bandsaw::ptx {
namespace {

// Where a value comes from.
enum Source : uint8_t { kFromBlock = 1, kFromGrid = 2, kFromParameter = 4, kFromMemory = 8 };

class SpinFinder {
 public:
  SpinFinder(const ProgramFacts& facts, const Function& function)
      : facts_(facts),
        flow_(function),
        control_(flow_),
        values_(flow_),
        sources_(values_.size()),
        member_(control_.end() + 1) {}

  Spin run() {
    if (flow_.has_unknown_target()) return Spin::kAny;
    mark_sources();
    definitions();
    Spin worst = Spin::kNone;
    std::map<uint32_t, std::vector<uint32_t>> loops;  // the branches back, by where they go
    for (uint32_t s = 0; s < control_.end(); ++s)
      for (const uint32_t target : flow_.targets(s))
        if (target <= s) loops[target].push_back(s);
    for (const auto& [target, branches] : loops) worst = std::max(worst, loop(target, branches));
    return worst;
  }

 private:
  struct BackwardSlice {
    std::vector<uint32_t> polls;
    uint8_t outside = 0;  // sources of what the loop does not compute
  };

  bool is_poll(uint32_t s) const {
    const Step& step = flow_.steps()[s];
    if (polls_memory(*step.instruction)) return true;
    if (step.kind != Kind::kCall) return false;
    for (const Use& use : flow_.uses(step)) {
      const auto callee = use.role == Role::kTarget && use.named == Named::kGlobal
                              ? facts_.function(flow_.names()[use.index])
                              : std::nullopt;
      if (callee && facts_.functions[*callee].polls) return true;
    }
    return false;
  }

  void mark_sources() {
    for (uint32_t s = 0; s < control_.end(); ++s) {
      const Step& step = flow_.steps()[s];
      uint8_t& mine = sources_[values_.step_node(s)];
      polls_.push_back(is_poll(s));
      if (step.kind == Kind::kAtomic) mine |= kFromBlock;  // a ticket
      if ((step.kind == Kind::kLoad && variable_named(flow_, step) < 0) || step.kind == Kind::kCall)
        mine |= kFromMemory;
      for (const Use& use : flow_.uses(step)) {
        if (use.named == Named::kSpecial && use.index == static_cast<uint32_t>(Special::kCtaid)) mine |= kFromBlock;
        if (use.named == Named::kSpecial && use.index == static_cast<uint32_t>(Special::kNctaid)) mine |= kFromGrid;
        if (use.named == Named::kNode && flow_.parameter_of(use.index) >= 0) sources_[use.index] |= kFromParameter;
      }
    }
    values_.spread_bits(&sources_, true);
  }

  void definitions() {
    defined_by_.resize(flow_.nodes());
    for (uint32_t s = 0; s < control_.end(); ++s) {
      const Step& step = flow_.steps()[s];
      const int64_t variable = step.kind == Kind::kStore ? variable_named(flow_, step) : -1;
      if (variable >= 0) defined_by_[static_cast<size_t>(variable)].push_back(s);
      for (const Use& use : flow_.uses(step))
        if (use.role == Role::kResult && use.named == Named::kNode) defined_by_[use.index].push_back(s);
    }
  }

  // Finds the steps of the loop that branches back close: those on a way from their target to one. False: too much
  // work.
  bool find_loop(uint32_t target, const std::vector<uint32_t>& branches) {
    const uint32_t before = ++loop_;
    std::vector<uint32_t> work = branches;
    for (const uint32_t branch : branches) member_[branch] = before;
    member_[target] = before;
    while (!work.empty()) {
      const uint32_t node = work.back();
      work.pop_back();
      if (over(1)) return false;
      if (node == target) continue;
      for (const uint32_t other : control_.predecessors(node))
        if (member_[other] != before) member_[other] = before, work.push_back(other);
    }
    ++loop_;
    body_.assign(1, target);
    member_[target] = loop_;
    for (size_t n = 0; n < body_.size(); ++n) {
      if (over(1)) return false;
      for (const uint32_t other : control_.successors(body_[n]))
        if (member_[other] == before) member_[other] = loop_, body_.push_back(other);
    }
    return true;
  }
  bool inside(uint32_t node) const { return member_[node] == loop_; }

  // What a loop waits for: it does if every way out of it hangs on what it polls.
  Spin loop(uint32_t target, const std::vector<uint32_t>& branches) {
    if (!find_loop(target, branches)) return Spin::kAny;
    if (std::none_of(body_.begin(), body_.end(), [&](uint32_t s) { return polls_[s]; })) return Spin::kNone;
    bool any = false;
    Spin worst = Spin::kNone;
    for (const uint32_t s : body_) {
      const auto& ways = control_.successors(s);
      if (std::all_of(ways.begin(), ways.end(), [&](uint32_t to) { return inside(to); })) continue;
      any = true;
      const Spin spin = waits(s);
      if (spin == Spin::kNone) return Spin::kNone;
      worst = std::max(worst, spin);
    }
    return any ? worst : Spin::kNone;
  }

  // Whether a way out of a loop hangs on what is polled at one and the same place.
  Spin waits(uint32_t branch) {
    BackwardSlice condition = backward_slice_of(branch, false);
    Spin worst = Spin::kNone;
    for (const uint32_t poll : condition.polls) {
      const BackwardSlice address = backward_slice_of(poll, true);
      if (!address.polls.empty() || moves_) continue;  // another place in each round
      const bool lower = (address.outside & kFromBlock) &&
                         !(condition.outside & (kFromGrid | kFromParameter | kFromMemory)) &&
                         flow_.steps()[poll].kind != Kind::kCall;
      worst = std::max(worst, lower ? Spin::kLowerBlocks : Spin::kAny);
    }
    return over(0) ? Spin::kAny : worst;
  }

  // What a step's guard and operands (or its address) are computed from inside of a loop. Sets moves_ if a value
  // depends on itself in the round before.
  BackwardSlice backward_slice_of(uint32_t step, bool address) {
    BackwardSlice slice;
    moves_ = false;
    std::vector<uint32_t> work;
    std::vector<uint32_t> steps_seen;
    auto follow = [&](uint32_t node) {
      bool computed = false;
      for (const uint32_t s : defined_by_[node]) {
        if (over(1)) return;
        if (!inside(s)) continue;
        computed = true;
        if (step_seen(s)) continue;
        steps_seen.push_back(s);
        work.push_back(s);
      }
      if (!computed) slice.outside |= sources_[node];
    };
    ++round_;
    follow_uses(step, address ? Role::kAddress : Role::kGuard, !address, follow, &slice);
    while (!work.empty() && !over(1)) {
      const uint32_t s = work.back();
      work.pop_back();
      const Step& made = flow_.steps()[s];
      if (polls_[s]) {
        slice.polls.push_back(s);
        continue;
      }
      const bool loads = made.kind == Kind::kLoad && variable_named(flow_, made) < 0;
      if (loads || made.kind == Kind::kAtomic || made.kind == Kind::kCall) {
        slice.outside |= kFromMemory;
        moves_ = true;
        continue;
      }
      follow_uses(s, Role::kRead, true, follow, &slice);
      for (const Use& use : flow_.uses(made))  // x = f(x)
        for (const Use& result : flow_.uses(made))
          moves_ |= use.role == Role::kRead && result.role == Role::kResult && use.named == Named::kNode &&
                    result.named == Named::kNode && use.index == result.index;
    }
    moves_ |= in_circle(steps_seen);
    return slice;
  }

  template <class F>
  void follow_uses(uint32_t s, Role role, bool reads, F&& follow, BackwardSlice* slice) {
    const Step& step = flow_.steps()[s];
    for (const Use& use : flow_.uses(step)) {
      const bool variable = use.role == Role::kAddress && use.named == Named::kNode && flow_.is_variable(use.index);
      if (use.role != role && !(reads && use.role == Role::kRead) && !(reads && variable)) continue;
      if (use.named == Named::kNode) follow(use.index);
      if (use.named == Named::kSpecial) slice->outside |= sources_[values_.step_node(s)];
    }
  }

  // Steps that feed each other in a circle compute another value in every round.
  bool in_circle(const std::vector<uint32_t>& steps) {
    // Remove steps none of whose inputs is computed by a remaining one; what is left lies on circles or behind them.
    std::vector<uint32_t> left = steps;
    for (bool removed = true; removed && !left.empty();) {
      removed = false;
      ++round_;
      for (const uint32_t s : left) step_seen(s);
      const uint32_t here = round_;
      std::vector<uint32_t> still;
      for (const uint32_t s : left) {
        bool fed = false;
        for (const Use& use : flow_.uses(flow_.steps()[s])) {
          if (use.named != Named::kNode || use.role == Role::kResult || use.role == Role::kGuard) continue;
          for (const uint32_t from : defined_by_[use.index])
            fed |= !over(1) && inside(from) && !polls_[from] && seen_[from] == here;
        }
        if (over(1)) return true;
        if (fed)
          still.push_back(s);
        else
          removed = true;
      }
      left.swap(still);
    }
    return !left.empty();
  }

  bool step_seen(uint32_t s) {
    if (seen_.empty()) seen_.resize(control_.end());
    if (seen_[s] == round_) return true;
    seen_[s] = round_;
    return false;
  }

  bool over(size_t work) {
    work_ += work;
    return work_ > kControlBudget;
  }

  const ProgramFacts& facts_;
  const Flow flow_;
  const Control control_;
  const Values values_;
  std::vector<uint8_t> sources_;
  std::vector<bool> polls_;
  std::vector<std::vector<uint32_t>> defined_by_;
  std::vector<uint32_t> seen_, member_, body_;  // member_: of which loop
  uint32_t round_ = 0, loop_ = 0;
  size_t work_ = 0;
  bool moves_ = false;
};

}  // namespace

// Loads that are to see what others write meanwhile, and atomics that change nothing.
bool polls_memory(const Instruction& i) {
  const Space space = i.space();
  if (space != Space::kGlobal && space != Space::kNone) return false;
  if (i.opcode == "ld")
    for (const std::string& m : i.modifiers)
      if (m == "volatile" || m == "relaxed" || m == "acquire" || m == "mmio" || m == "cv" || m == "cg") return true;
  if (i.opcode != "atom" || i.operands.size() < 3) return false;
  if (i.has("cas")) return i.operands.size() > 3 && i.operands[2] == i.operands[3];
  const auto* operand = i.operands[2].as<Integer>();
  return operand && operand->bits == 0 && (i.has("add") || i.has("or") || i.has("xor"));
}

Spin spin_of(const ProgramFacts& facts, const Closure& closure) {
  Spin worst = Spin::kNone;
  bool any = false;
  for (const uint32_t f : closure.functions) any |= facts.functions[f].polls;
  if (!any) return worst;
  for (const uint32_t f : closure.functions)
    if (worst != Spin::kAny) worst = std::max(worst, SpinFinder(facts, *facts.functions[f].function).run());
  return worst;
}

std::string why_not_cut(const ProgramFacts& facts, const Closure& closure) {
  if (spin_of(facts, closure) == Spin::kAny) return "may wait in a loop for blocks that come later in its grid";
  return "";
}

}  // namespace bandsaw::ptx
