#include "vgpu-sched/ptx/guard_function.h"

#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/guard_helpers.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

constexpr size_t kLongestStretch = 512;                                   // statements: all of them are there twice
constexpr unsigned kAssert = 710, kInvalidPc = 718, kLaunchFailed = 719;  // of CUresult

// It cannot be given another value before.
bool reads_its_result(const Instruction& i) {
  std::set<std::string, std::less<>> written, read;
  if (has_result(i, kind_of(i))) add_registers(i.operands[0], &written);
  for (size_t n = 1; n < i.operands.size(); ++n) add_registers(i.operands[n], &read);
  return std::any_of(written.begin(), written.end(), [&read](const auto& name) { return read.contains(name); });
}

}  // namespace

GuardedFunction::GuardedFunction(const Module& module, const Scope& names, const Function& function,
                                 const GuardArea& area, const std::string& prefix)
    : module_(module),
      function_(function),
      area_(area),
      prefix_(prefix),
      scope_(&names, function),
      roots_(function, scope_, area.slack) {}

void GuardedFunction::add(const std::string& text, Statements* to) const {
  if (text.empty()) return;
  Statements made = guard_statements(text, prefix_);
  to->insert(to->end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
}

Function GuardedFunction::run() {
  Function made = function_;
  find_masked();
  made.body = block(*function_.body, scope_, true);
  Statements begin;
  add(".reg .b32 %$lo, %$hi, %$x, %$bad, %$s, %$mask, %$ok, %$n, %$m, %$e; .reg .b64 %$a, %$v, %$u, %$w; .reg .pred "
      "%$p, %$q, %$z;",
      &begin);
  if (bits_ > 0) add("mov.b32 %$mask, 0;", &begin);
  if (shared_) add(GuardHelpers::shared_end_text(module_), &begin);
  auto& body = made.body->statements;
  body.insert(body.begin(), std::make_move_iterator(begin.begin()), std::make_move_iterator(begin.end()));
  return made;
}

Block GuardedFunction::block(const Block& from, const Scope& scope, bool outermost) {
  Block to;
  Statements slow;
  slow_.push_back(&slow);
  for (size_t i = 0; i < from.statements.size();) {
    const Statement& statement = from.statements[i];
    const auto* instruction = statement.as<Instruction>();
    if (const auto* inner = statement.as<Block>()) {
      to.statements.push_back({statement.place, block(*inner, Scope(&scope, *inner), false)});
    } else if (instruction && special(statement, scope, &to.statements)) {
    } else if (instruction && !needs_of(*instruction, scope).empty()) {
      if (is_alone(*instruction)) {
        i = stretch(from, i, scope, &to.statements);
        continue;
      }
      together(statement, scope, &to.statements);
    } else if (!statement.as<Location>()) {
      emit(statement, &to.statements);
    }
    ++i;
  }
  slow_.pop_back();
  if (slow.empty()) return to;
  const std::string end = next_label();
  const char* const leave = function_.directive("noreturn") ? "exit;" : "ret;";
  add(outermost ? leave : "bra $end" + end + ";", &to.statements);
  to.statements.insert(to.statements.end(), std::make_move_iterator(slow.begin()), std::make_move_iterator(slow.end()));
  if (!outermost) add("$end" + end + ":", &to.statements);
  return to;
}

// Pointers that loops use and do not change.
void GuardedFunction::find_masked() {
  walk(*function_.body, [&](const Statement& statement) {
    const auto* i = statement.as<Instruction>();
    if (!i) return;
    size_t nth = 0;
    for (const GuardedAccess& access : guarded_accesses(*i)) {
      const size_t at = nth++;
      const auto origin = access.space == Space::kNone ? roots_.origin(*i, at) : std::nullopt;
      if (!origin || origin->root.empty() || !origin->once || origin->alignment < access.alignment) continue;
      Need need;
      need.name = origin->root;
      need.alignment = access.alignment;
      need.shift = static_cast<uint32_t>(i->operands[access.operand].as<Address>()->offset) & (access.alignment - 1);
      Needs& needs = masked_[origin->made];
      const auto same = [&](const Need& known) {
        return known.alignment == need.alignment && known.shift == need.shift;
      };
      if (bits_ == UINT32_MAX || std::any_of(needs.begin(), needs.end(), same)) continue;
      need.bit = bits_ + 1;
      bits_ |= need.bit;
      needs.push_back(std::move(need));
    }
  });
}

// Behind what makes such a pointer.
std::string GuardedFunction::mask_text(const Instruction& made) {
  const auto found = masked_.find(&made);
  std::string text;
  for (const Need& need : found == masked_.end() ? Needs{} : found->second) {
    bool any = false;
    text += area_text(need, &any) + "setp.ne.u32 %$p, %$bad, 0;\n@%$p or.b32 %$mask, %$mask, " +
            std::to_string(need.bit) + ";\n";
  }
  return text;
}

void GuardedFunction::emit(const Statement& statement, Statements* to) {
  to->push_back(statement);
  if (const auto* i = statement.as<Instruction>()) add(mask_text(*i), to);
}

// Whether an address can be looked at in front of a stretch of which `addresses` has seen the part before it.
bool GuardedFunction::place(const StretchAddresses& addresses, Need* need, std::set<size_t>* early) const {
  if (addresses.is_untouched(need->name)) return true;
  if (need->bit != 0) return false;
  const StretchOrigin* origin = addresses.origin(need->name);
  if (origin && need->space == Space::kNone && need->wide && !need->variable &&
      origin->added.alignment >= need->alignment) {
    const auto slack = static_cast<int64_t>(area_.slack);
    const int64_t low = need->low + origin->added.low, high = need->high + origin->added.high;
    if (low >= -slack && high <= slack) {
      need->name = origin->root;
      need->low = low;
      need->high = high;
      return true;
    }
  }
  const std::set<size_t>* makers = addresses.makers(need->name);
  if (makers) early->insert(makers->begin(), makers->end());
  return makers != nullptr;
}

GuardedFunction::Stretch GuardedFunction::plan_stretch(const Block& from, size_t begin, const Scope& scope) {
  Stretch made{.end = begin};
  StretchAddresses addresses(roots_, scope);
  for (size_t i = begin; i < from.statements.size() && i - begin < kLongestStretch; ++i) {
    if (from.statements[i].as<Location>()) continue;
    const auto* instruction = from.statements[i].as<Instruction>();
    if (!instruction || !is_alone(*instruction)) break;
    Needs more = needs_of(*instruction, scope);
    std::set<size_t> early;
    if (!std::all_of(more.begin(), more.end(), [&](Need& need) { return place(addresses, &need, &early); })) break;
    for (const Need& need : more) merge(need, &made.needs);
    made.early.merge(early);
    if (!more.empty()) made.end = i + 1;
    addresses.pass(i, *instruction);
  }
  return made;
}

size_t GuardedFunction::stretch(const Block& from, size_t begin, const Scope& scope, Statements* to) {
  const Stretch plan = plan_stretch(from, begin, scope);
  for (const size_t i : plan.early) emit(from.statements[i], to);
  const std::string label = next_label();
  add(check_text(plan.needs, "@%$p bra $slow" + label + ";\n"), to);
  Statements& slow = *slow_.back();
  add("$slow" + label + ":", &slow);
  for (size_t i = begin; i < plan.end; ++i) {
    if (from.statements[i].as<Location>() || plan.early.contains(i)) continue;
    emit(from.statements[i], to);
    slowly(from.statements[i], scope, &slow);
  }
  add("$go_on" + label + ":", to);
  add("bra $go_on" + label + ";", &slow);
  return plan.end;
}

// Of a copy of a stretch. Results are zero before, where that is possible: a register that is written on a condition
// only keeps its place all the time.
void GuardedFunction::slowly(const Statement& from, const Scope& scope, Statements* to) {
  Instruction i = *from.as<Instruction>();
  const Needs needs = needs_of(i, scope);
  if (needs.empty()) return emit(from, to);
  std::string text = "mov.u32 %$m, 2;\n";
  for (const Need& need : needs) text += ask_text(need, i.guard) + "min.u32 %$m, %$m, %$ok;\n";
  text += "setp.eq.u32 %$q, %$m, 1;\n";
  const bool result = has_result(i, kind_of(i)), before = result && !i.guard && !reads_its_result(i);
  if (before) text += zero_text(i.operands[0], scope, "");
  if (result && !before) text += "setp.eq.u32 %$z, %$m, 0;\n";
  add(text, to);
  i.guard = Guard{{"%" + prefix_ + "q", ""}, false};
  const Operand target = result ? i.operands[0] : Operand{Sink{}};
  to->push_back({from.place, std::move(i)});
  if (result && !before) add(zero_text(target, scope, "@%$z "), to);
  add(mask_text(*from.as<Instruction>()), to);
}

// What all threads of a warp execute at once is left out by all of them.
void GuardedFunction::together(const Statement& from, const Scope& scope, Statements* to) {
  const Instruction& i = *from.as<Instruction>();
  const Needs asked = needs_of(i, scope);
  Needs needs = asked;
  add(matrix_text(i, &needs), to);
  const std::string label = next_label();
  const std::string vote = "activemask.b32 %$n;\nvote.sync.any.pred %$q, %$p, %$n;\n";
  add(check_text(needs, vote + "@%$q bra $slow" + label + ";\n"), to);
  add("$do" + label + ":", to);
  to->push_back(from);
  add("$go_on" + label + ":", to);
  Statements& slow = *slow_.back();
  std::string text = "$slow" + label + ":\nmov.u32 %$m, 2;\n";
  for (size_t n = 0; n < asked.size(); ++n) text += ask_text(needs[n], i.guard) + "min.u32 %$m, %$m, %$ok;\n";
  add(text + "setp.eq.u32 %$p, %$m, 0;\n" + vote + "@!%$q bra $do" + label + ";\n", &slow);
  if (has_result(i, kind_of(i))) add(zero_text(i.operands[0], scope, ""), &slow);
  add("bra $go_on" + label + ";", &slow);
}

void GuardedFunction::end_thread(const Instruction& from, unsigned error, Statements* to) {
  const std::string text = "mov.u32 %$e, " + std::to_string(error) + ";\nmov.u64 %$a, 0;\n" +
                           guard_call("fail", "%$a", {"%$e"}, false) + "exit;\n";
  add(unless(from.guard, text, next_label()), to);
}

// What would be a fault in itself, and jumps to computed places.
bool GuardedFunction::special(const Statement& from, const Scope& scope, Statements* to) {
  const Instruction& i = *from.as<Instruction>();
  if (i.opcode == "trap") return end_thread(i, kLaunchFailed, to), true;
  if (i.opcode == "brx") {
    const auto* symbol = i.operands.size() == 2 ? i.operands[1].as<Symbol>() : nullptr;
    const auto* index = i.operands.empty() ? nullptr : i.operands[0].as<Register>();
    const Targets* targets = symbol ? scope.find(symbol->name).targets : nullptr;
    if (!targets || !index) return refusal_ = "jumps in an unknown way", true;
    Instruction check = i;
    check.opcode = "bra";
    const std::string label = next_label();
    add("setp.ge.u32 %$p, " + own_name(index->name) + ", " + std::to_string(targets->names.size()) +
            ";\n@%$p bra $slow" + label + ";\n",
        to);
    to->push_back(from);
    Statements& slow = *slow_.back();
    add("$slow" + label + ":", &slow);
    end_thread({}, kInvalidPc, &slow);
    return true;
  }
  if (i.opcode != "call") return false;
  const CallParts parts = call_parts(i);
  const auto* name = parts.target ? parts.target->as<Symbol>() : nullptr;
  const Function* called = name ? scope.find(name->name).function : nullptr;
  if (called && !called->body && name->name == "__assertfail") return end_thread(i, kAssert, to), true;
  const auto* pointer = parts.target ? parts.target->as<Register>() : nullptr;
  if (!pointer) return false;
  const std::string label = next_label();
  add("mov.u32 %$ok, 1;\n" + unless(i.guard, guard_call("target", own_name(pointer->name), {}, true), next_label()) +
          "setp.eq.u32 %$q, %$ok, 0;\n@%$q bra $go_on" + label + ";\n",
      to);
  to->push_back(from);
  add("$go_on" + label + ":", to);
  return true;
}

}  // namespace bandsaw::ptx
