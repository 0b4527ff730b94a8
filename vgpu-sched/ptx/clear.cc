#include "vgpu-sched/ptx/clear.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/guard_helpers.h"
#include "vgpu-sched/ptx/names.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {
namespace {

// Counts those that leave together; the last of all clear. From what stands behind the count on, the block has
// %total_smem_size bytes.
const char* const kLeave = R"(.func $leave()
{
  .reg .b32 %$first, %$end, %$at, %$step, %$t, %$zero, %$mask, %$rank, %$count, %$left, %$low; .reg .pred %$p;
  membar.cta;
  activemask.b32 %$mask;
  popc.b32 %$count, %$mask;
  mov.u32 %$rank, %lanemask_lt;
  and.b32 %$rank, %$rank, %$mask;
  popc.b32 %$rank, %$rank;
  brev.b32 %$low, %$mask;
  clz.b32 %$low, %$low;
  mov.u32 %$left, 0;
  setp.ne.u32 %$p, %$rank, 0;
  @%$p bra $counted;
  mov.u32 %$t, $left;
  atom.shared.add.u32 %$left, [%$t], %$count;
$counted:
  shfl.sync.idx.b32 %$left, %$left, %$low, 31, %$mask;
  add.u32 %$left, %$left, %$count;
  mov.u32 %$t, %ntid.x;
  mov.u32 %$at, %ntid.y;
  mul.lo.u32 %$t, %$t, %$at;
  mov.u32 %$at, %ntid.z;
  mul.lo.u32 %$t, %$t, %$at;
  setp.ne.u32 %$p, %$left, %$t;
  @%$p ret;
  membar.cta;
  mov.u32 %$zero, 0;
  mov.u32 %$t, $left;
  ld.shared.u32 %$first, [%$t+4];
  mov.u32 %$end, %total_smem_size;
  add.u32 %$end, %$end, %$first;
  shl.b32 %$at, %$rank, 4;
  add.u32 %$at, %$at, %$first;
  shl.b32 %$step, %$count, 4;
$again:
  add.u32 %$t, %$at, 16;
  setp.gt.u32 %$p, %$t, %$end;
  @%$p bra $rest;
  st.shared.v4.b32 [%$at], {%$zero, %$zero, %$zero, %$zero};
  add.u32 %$at, %$at, %$step;
  bra $again;
$rest:
  setp.ge.u32 %$p, %$at, %$end;
  @%$p ret;
  st.shared.b8 [%$at], %$zero;
  add.u32 %$at, %$at, 1;
  bra $rest;
}
)";

// All threads are still there. FIRST sets %$first to where the block's memory begins.
const char* const kBegin = R"(
  .reg .b32 %$x, %$y, %$t, %$first; .reg .pred %$p;
  mov.u32 %$x, %tid.x;
  mov.u32 %$y, %tid.y;
  or.b32 %$x, %$x, %$y;
  mov.u32 %$y, %tid.z;
  or.b32 %$x, %$x, %$y;
  setp.ne.u32 %$p, %$x, 0;
FIRST
  mov.u32 %$t, $left;
  mov.u32 %$x, 0;
  @!%$p st.shared.u32 [%$t], %$x;
  @!%$p st.shared.u32 [%$t+4], %$first;
  bar.sync 0;
)";

// What a function says of shared memory and of others.
struct Mentions {
  std::set<std::string_view> names;   // all symbols
  std::set<std::string_view> shared;  // its own variables
  bool pointers = false;              // calls through some
  bool exits = false;
};

Mentions mentions_of(const Function& function) {
  Mentions found;
  walk(*function.body, [&](const Statement& statement) {
    const auto* variable = statement.as<Variable>();
    if (variable && variable->space == Space::kShared) found.shared.insert(variable->name);
    const auto* i = statement.as<Instruction>();
    if (!i) return;
    found.exits |= i->opcode == "exit";
    if (i->opcode == "call") {
      const CallParts parts = call_parts(*i);
      found.pointers |= !parts.target || !parts.target->as<Symbol>();
    }
    for (const Operand& operand : i->operands)
      walk_operand(operand, [&](const Operand& o) {
        if (const auto* symbol = o.as<Symbol>()) found.names.insert(symbol->name);
        const auto* address = o.as<Address>();
        if (const auto* base = address ? std::get_if<Symbol>(&address->base) : nullptr) found.names.insert(base->name);
      });
  });
  return found;
}

class Clearer {
 public:
  explicit Clearer(const Module& module)
      : prefix_(free_prefix(module)),
        knows_begin_(architecture_of(module) >= 90 &&
                     std::pair(module.version_major, module.version_minor) >= std::pair(8u, 1u)) {
    for (const Item& item : module.items) {
      const auto* variable = std::get_if<Variable>(&item);
      if (variable && variable->space == Space::kShared) shared_.insert(variable->name);
      const auto* function = std::get_if<Function>(&item);
      if (!function || !function->body) continue;
      mentions_.emplace(function->name, mentions_of(*function));
    }
  }

  // What there is of shared memory where a kernel runs.
  struct Use {
    bool any = false;     // or it leaves inside of a function that it calls
    bool unseen = false;  // in functions that are called, or through pointers
    std::set<std::string_view> variables;
  };
  Use use_of(const Function& kernel) const {
    Use use;
    std::set<std::string_view> seen;
    std::vector<std::string_view> work{kernel.name};
    while (!work.empty()) {
      const std::string_view at = work.back();
      work.pop_back();
      const auto found = mentions_.find(at);
      if (found == mentions_.end() || !seen.insert(at).second) continue;
      const Mentions& mentions = found->second;
      const bool own = at == kernel.name;
      if (own) use.variables.insert(mentions.shared.begin(), mentions.shared.end());
      use.unseen |= mentions.pointers || (!own && !mentions.shared.empty());
      use.any |= mentions.exits && !own;
      for (const std::string_view symbol : mentions.names) {
        if (shared_.contains(symbol)) use.variables.insert(symbol);
        work.push_back(symbol);
      }
    }
    use.any |= use.unseen || !use.variables.empty();
    return use;
  }

  // False: where its memory begins cannot be told.
  bool kernel(Function* function, const Use& use) const {
    std::string first =
                    "mov.u32 %$t, %total_smem_size;\nmov.u32 %$first, %aggr_smem_size;\n"
                    "sub.u32 %$first, %$first, %$t;\n",
                text = kBegin;
    if (!knows_begin_) {  // at the first variable, if all are known
      if (use.unseen) return false;
      first = "mov.u32 %$first, $left;\n";
      for (const std::string_view name : use.variables)
        first += "mov.u32 %$t, " + own_name(name) + ";\nmin.u32 %$first, %$first, %$t;\n";
    }
    text.replace(text.find("FIRST\n"), 6, first);
    leave(&*function->body, true);
    auto& body = function->body->statements;
    std::vector<Statement> begin = guard_statements(text, prefix_);
    // Behind what it declares, shared memory among it.
    const auto first_step = std::find_if(body.begin(), body.end(), [](const Statement& one) {
      return one.as<Instruction>() || one.as<Label>() || one.as<Block>();
    });
    body.insert(first_step, std::make_move_iterator(begin.begin()), std::make_move_iterator(begin.end()));
    std::vector<Statement> end = guard_statements("call $leave;\nret;", prefix_);
    body.insert(body.end(), std::make_move_iterator(end.begin()), std::make_move_iterator(end.end()));
    return true;
  }

  // `exit` and, of kernels, `ret` too.
  void leave(Block* from, bool kernel) const {
    std::vector<Statement> old = std::exchange(from->statements, {});
    for (Statement& statement : old) {
      if (auto* inner = statement.as<Block>()) leave(inner, kernel);
      const auto* i = statement.as<Instruction>();
      const bool leaves = i && (i->opcode == "exit" || (kernel && i->opcode == "ret"));
      if (!leaves) {
        from->statements.push_back(std::move(statement));
        continue;
      }
      const std::string text =
          unless(i->guard, "call $leave;\n" + i->opcode + ";\n", "leave" + std::to_string(labels_++));
      std::vector<Statement> made = guard_statements(text, prefix_);
      std::move(made.begin(), made.end(), std::back_inserter(from->statements));
    }
  }

  void declare(Module* to) const { add(to, ".shared .align 128 .b8 $left[128];\n.func $leave();\n"); }
  void define(Module* to) const { add(to, kLeave); }

 private:
  void add(Module* to, std::string text) const {
    for (size_t at = text.find('$'); at != text.npos; at = text.find('$', at)) text.replace(at, 1, prefix_);
    Module parsed = parse(".version 9.0\n.target sm_90\n.address_size 64\n" + text);
    std::move(parsed.items.begin(), parsed.items.end(), std::back_inserter(to->items));
  }

  const std::string prefix_;
  const bool knows_begin_;  // code can ask where a block's own shared memory begins
  std::set<std::string_view> shared_;
  std::map<std::string_view, Mentions> mentions_;
  mutable uint32_t labels_ = 0;
};

}  // namespace

std::variant<Module, Refusal> clear_shared(Module module) {
  const Clearer clearer(module);
  Module made;
  made.version_major = module.version_major;
  made.version_minor = module.version_minor;
  made.targets = module.targets;
  made.address_size = module.address_size;
  bool declared = false;
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (!function || !function->body) {
      made.items.push_back(item);
      continue;
    }
    if (!declared) clearer.declare(&made);
    declared = true;
    Function changed = *function;
    const Clearer::Use use = clearer.use_of(*function);
    if (!function->entry)
      clearer.leave(&*changed.body, false);
    else if (use.any && !clearer.kernel(&changed, use))
      return Refusal{"has shared memory in functions that '" + function->name + "' calls, and is for GPUs before 9.0"};
    made.items.emplace_back(std::move(changed));
  }
  if (declared) clearer.define(&made);
  return made;
}

}  // namespace bandsaw::ptx
