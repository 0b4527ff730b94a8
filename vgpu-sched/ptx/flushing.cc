#include "vgpu-sched/ptx/flushing.h"

#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

// The word behind the ticket says what became of the block that runs: 0: nothing yet, 1: it did what cannot be done
// again, 2: it was dropped. Whoever comes first decides.
const char* const kDrop = "st.shared.b32 [$ticket+8], 2;\n";
const char* const kDropUnlessMarked = R"(
  atom.shared.cas.b32 %$other, [$ticket+8], 0, 2;
  setp.eq.u32 %$p, %$other, 1;
  @%$p bra $on_NUMBER;
)";
const char* const kMark = R"(
  ld.volatile.shared.b32 %$other, [$ticket+8];
  setp.eq.u32 %$p, %$other, 1;
  @%$p bra $marked_NUMBER;
  atom.shared.cas.b32 %$other, [$ticket+8], 0, 1;
  setp.eq.u32 %$p, %$other, 2;
  @%$p bra $again;
$marked_NUMBER:
)";

// Where threads leave together none marks while others are about to drop, so a word that is read or written will do,
// and no thread parts from the others.
const char* const kDropTogether = R"(
  ld.volatile.shared.b32 %$other, [$ticket+8];
  setp.eq.u32 %$p, %$other, 1;
  @%$p bra $on_NUMBER;
  st.shared.b32 [$ticket+8], 2;
)";
const char* const kMarkTogether = "st.volatile.shared.b32 [$ticket+8], 1;\n";

std::string numbered(std::string text, size_t number) {
  for (size_t at = text.find("NUMBER"); at != text.npos; at = text.find("NUMBER", at))
    text.replace(at, 6, std::to_string(number));
  return text;
}

// Leaves in $other what the stop word says, or the block's own.
std::string read_text(bool told_apart) {
  std::string text = "ld.param.b64 %$at, [$stop];\nld.volatile.global.u32 %$other, [%$at];\n";
  if (told_apart) {
    text += "setp.eq.u32 %$p, %$other, 2;\n@%$p bra $read_NUMBER;\nld.volatile.global.u32 %$other, [%$told_at+" +
            std::to_string(kBlockStopsAt) + "];\n$read_NUMBER:\n";
  }
  return text;
}

std::string drop_text(const char* drop) { return std::string(drop) + "bra $again;\n$on_NUMBER:\n"; }

// A thread asks each sixteenth time only, as what it reads lies far away.
std::string poll_text(Flush flush, bool told_apart) {
  return R"(
  add.u32 %$passes, %$passes, 1;
  and.b32 %$other, %$passes, 15;
  setp.ne.u32 %$p, %$other, 0;
  @%$p bra $on_NUMBER;
)" + read_text(told_apart) +
         "setp.ne.u32 %$p, %$other, 2;\n@%$p bra $on_NUMBER;\n" +
         drop_text(flush == Flush::kAlways ? kDrop : kDropUnlessMarked);
}

// The barrier itself tells all threads whether one of them has been told: they leave together. It is passed less often
// than a branch, and asks each fourth time. Its number is put in afterwards.
std::string barrier_text(Flush flush, bool told_apart) {
  return R"(
  add.u32 %$passes, %$passes, 1;
  and.b32 %$other, %$passes, 3;
  setp.ne.u32 %$p, %$other, 0;
  mov.u32 %$other, 0;
  @%$p bra $asked_NUMBER;
)" + read_text(told_apart) +
         R"($asked_NUMBER:
  setp.eq.u32 %$p, %$other, 2;
  barrier.red.or.pred %$p, 0, %$p;
  @!%$p bra $on_NUMBER;
)" + drop_text(flush == Flush::kAlways ? kDrop : kDropTogether);
}

// A barrier of the whole block that does nothing else.
bool is_plain_barrier(const Instruction& i) {
  return is_full_barrier(i) && i.has("sync") && i.operands.size() == 1 && !i.guard;
}

bool goes_back(const Instruction& i, const std::set<std::string>& passed) {
  if (i.opcode != "bra" || i.operands.size() != 1) return false;
  const auto* target = i.operands[0].as<Symbol>();
  return target && passed.contains(target->name);
}

// By its text alone, and so more than the analysis names: every store, and every call.
bool is_irreversible(const Instruction& i) {
  const Space space = i.space();
  const bool global = space == Space::kGlobal || space == Space::kNone;
  switch (kind_of(i)) {
    case Kind::kLoad:
      return global && (i.has("volatile") || i.has("relaxed") || i.has("acquire") || i.has("mmio"));
    case Kind::kStore:
    case Kind::kAtomic:
      return global;
    case Kind::kCopy:
    case Kind::kTexture:
    case Kind::kCall:
    case Kind::kUnknown:
      return true;
    default:
      return false;
  }
}

class Inserter {
 public:
  Inserter(const Transplant& moved, Flush flush, bool told_apart, bool at_barriers)
      : moved_(moved), flush_(flush), told_apart_(told_apart), at_barriers_(at_barriers) {}

  void run(Block* block) {
    std::vector<Statement> made;
    for (Statement& statement : block->statements) {
      if (auto* inner = statement.as<Block>()) run(inner);
      if (const auto* label = statement.as<Label>()) passed_.insert(label->name);
      if (const auto* i = statement.as<Instruction>()) {
        if (!at_barriers_ && goes_back(*i, passed_)) add(numbered(poll_text(flush_, told_apart_), polls_++), &made);
        if (flush_ == Flush::kUntilIrreversible && is_irreversible(*i))
          add(numbered(at_barriers_ ? kMarkTogether : kMark, marks_++), &made);
        if (at_barriers_ && is_plain_barrier(*i)) {
          add_barrier(i->operands[0], &made);
          continue;
        }
      }
      made.push_back(std::move(statement));
    }
    block->statements = std::move(made);
  }
  size_t polls() const { return polls_; }

 private:
  // In the place of one of that number.
  void add_barrier(const Operand& number, std::vector<Statement>* made) {
    const size_t before = made->size();
    add(numbered(barrier_text(flush_, told_apart_), polls_++), made);
    for (size_t at = before; at < made->size(); ++at) {
      auto* i = (*made)[at].as<Instruction>();
      if (i && i->opcode == "barrier") i->operands[1] = number;
    }
  }
  void add(const std::string& text, std::vector<Statement>* made) const {
    std::vector<Statement> more = moved_.statements(text);
    made->insert(made->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  const Transplant& moved_;
  const Flush flush_;
  const bool told_apart_, at_barriers_;
  std::set<std::string> passed_;  // labels
  size_t polls_ = 0, marks_ = 0;
};

// What a kernel has whose threads do not run past each other.
struct Together {
  bool meets = false;    // barriers, operations of a warp
  bool shares = false;   // shared memory
  bool barrier = false;  // of the whole block
  std::string unended;   // what goes on, or stays half done, when threads leave at a barrier

  void look_at(const Statement& statement) {
    if (const auto* variable = statement.as<Variable>()) shares |= variable->space == Space::kShared;
    const auto* i = statement.as<Instruction>();
    if (!i) return;
    const Kind kind = kind_of(*i);
    meets |= kind == Kind::kBarrier || i->has("sync") || i->opcode == "bar";
    barrier |= is_full_barrier(*i);
    if (kind == Kind::kCopy) unended = "its copies to shared memory may go on after that";
    if (kind == Kind::kUnknown) unended = "it is not known what '" + i->full_name() + "' leaves behind";
    if (kind == Kind::kBarrier && !is_full_barrier(*i))
      unended = "some of its threads may have come to another barrier";
  }
};

}  // namespace

DropPlaces drop_places(const ProgramFacts& facts, const Closure& closure) {
  Together all;
  for (const uint32_t f : closure.functions)
    walk(*facts.functions[f].function->body, [&](const Statement& statement) { all.look_at(statement); });
  for (const uint32_t v : closure.own_variables) all.shares |= facts.variables[v].variable->space == Space::kShared;
  if (!all.meets && !all.shares) return {};
  if (all.barrier && all.unended.empty()) return {.refusal = "", .at_barriers = true};
  if (all.barrier) return {.refusal = "cannot be dropped: " + all.unended};
  return {.refusal = all.meets ? "cannot be dropped: its threads meet, and those that have left would be missed"
                               : "cannot be dropped: its threads may wait for what others put into shared memory"};
}

FlushingClaim flushing_claim(Flush flush) {
  if (flush == Flush::kNo) return {};
  return {.begin = R"(
  .reg .b32 %$passes;
  mov.u32 %$passes, 0;
  st.shared.b32 [$ticket+8], 0;
)",
          // The ticket is still that of the dropped block.
          .keep = R"(
  ld.shared.b32 %$other, [$ticket+8];
  setp.ne.u32 %$p, %$other, 2;
  @%$p bra $kept;
  ld.shared.b32 %$ticket, [$ticket];
  ld.param.b64 %$at, [$redo];
  atom.global.add.u32 %$other, [%$at+4], 1;
  ld.param.b32 %$stop, [$redo_mask];
  and.b32 %$other, %$other, %$stop;
  mul.wide.u32 %$place, %$other, 4;
  add.u64 %$at, %$at, %$place;
  st.global.b32 [%$at+8], %$ticket;
$kept:
  st.shared.b32 [$ticket+8], 0;
)",
          // The list is looked at before it is counted up, so that its count ends near its end.
          .redo = R"(
  ld.param.b64 %$at, [$redo];
  ld.param.b32 %$stop, [$redo_end];
  ld.volatile.global.u32 %$other, [%$at];
  sub.u32 %$other, %$stop, %$other;
  setp.le.s32 %$p, %$other, 0;
  @%$p bra $new;
  atom.global.add.u32 %$other, [%$at], 1;
  sub.u32 %$stop, %$stop, %$other;
  setp.le.s32 %$p, %$stop, 0;
  @%$p bra $new;
  ld.param.b32 %$stop, [$redo_mask];
  and.b32 %$other, %$other, %$stop;
  mul.wide.u32 %$place, %$other, 4;
  add.u64 %$at, %$at, %$place;
  ld.volatile.global.u32 %$ticket, [%$at+8];
  bra $told;
$new:
)"};
}

size_t insert_polls(const Transplant& moved, Flush flush, bool told_apart, bool at_barriers, Block* body) {
  Inserter inserter(moved, flush, told_apart, at_barriers);
  inserter.run(body);
  return inserter.polls();
}

}  // namespace bandsaw::ptx
