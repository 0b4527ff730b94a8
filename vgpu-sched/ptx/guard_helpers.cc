#include "vgpu-sched/ptx/guard_helpers.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {
namespace {

constexpr unsigned kIllegalAddress = 700, kMisaligned = 716, kWrongPc = 718;  // of CUresult
constexpr char kDollar = '\1';  // stands for a '$' of the module's own while '$' stands for the prefix

// What GPUs from 8.0 on have in front of a block's own shared memory; code for earlier ones cannot ask.
constexpr uint64_t kReservedShared = 1024;

bool calls_by_name(const Instruction& call) {
  const CallParts parts = call_parts(call);
  return parts.target && parts.target->as<Symbol>();
}

void put_in(std::string* text, std::string_view from, const std::string& to) {
  for (size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size()))
    text->replace(at, from.size(), to);
}

// Names that stand in initial values: their addresses can be loaded.
void collect(const Initializer& initial, std::set<std::string_view>* names) {
  if (const auto* list = std::get_if<InitializerList>(&initial.value))
    for (const Initializer& element : list->elements) collect(element, names);
  if (const auto* symbol = std::get_if<SymbolAddress>(&initial.value)) names->insert(symbol->name);
}

// Binary search for the last range that begins at the address or below.
const char* const kSearch = R"(
  mov.u64 %$t, TABLE;
  ld.volatile.global.u32 %$low, [%$t+4];
  shr.u32 %$high, %$low, 16;
  mul.wide.u32 %$o, %$high, LIST_BYTES;
  add.u64 %$t, %$t, %$o;
  and.b32 %$high, %$low, 65535;
  mov.u32 %$low, 0;
$search:
  setp.ge.u32 %$p, %$low, %$high;
  @%$p bra $found;
  add.u32 %$middle, %$low, %$high;
  shr.u32 %$middle, %$middle, 1;
  mul.wide.u32 %$o, %$middle, 16;
  add.u64 %$o, %$t, %$o;
  ld.volatile.global.u64 %$u, [%$o+16];
  setp.le.u64 %$p, %$u, %$a;
  @!%$p mov.u32 %$high, %$middle;
  @%$p add.u32 %$low, %$middle, 1;
  bra $search;
$found:
  setp.eq.u32 %$p, %$low, 0;
  @%$p bra $no;
  mul.wide.u32 %$o, %$low, 16;
  add.u64 %$o, %$t, %$o;
  ld.volatile.global.u64 %$u, [%$o+8];
  setp.le.u64 %$p, %$end, %$u;
  @%$p bra $yes;
)";

}  // namespace

std::string guard_call(const std::string& function, const std::string& wide, std::initializer_list<const char*> others,
                       bool returns) {
  std::string text = "{\n.param .b64 $c0;\nst.param.b64 [$c0], " + wide + ";\n", list = "$c0";
  unsigned n = 0;
  for (const char* other : others) {
    const std::string name = "$c" + std::to_string(++n);
    text += ".param .b32 " + name + ";\nst.param.b32 [" + name + "], " + other + ";\n";
    list += ", " + name;
  }
  text += returns ? ".param .b32 $cr;\ncall ($cr), $" : "call $";
  text += function + ", (" + list + ");\n";
  return text + (returns ? "ld.param.b32 %$ok, [$cr];\n}\n" : "}\n");
}

std::string unless(const std::optional<Guard>& guard, const std::string& text, const std::string& label) {
  if (!guard) return text;
  return (guard->negated ? "@" : "@!") + own_name(guard->predicate.name) + " bra $past" + label + ";\n" + text +
         "$past" + label + ":\n";
}

std::string own_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '$', kDollar);
  return text;
}

std::vector<Statement> guard_statements(std::string text, const std::string& prefix) {
  put_in(&text, "$", prefix);
  std::replace(text.begin(), text.end(), kDollar, '$');
  Module parsed = parse(".version 9.0\n.target sm_90\n.address_size 64\n.func f() {\n" + text + "\n}\n");
  return std::move(std::get<Function>(parsed.items.at(0)).body->statements);
}

GuardHelpers::GuardHelpers(const Module& module, const GuardArea& area, std::string prefix)
    : area_(area), prefix_(std::move(prefix)), shared_end_(shared_end_text(module)) {
  std::set<std::string_view> named;
  for (const Item& item : module.items) {
    if (const auto* variable = std::get_if<Variable>(&item); variable && variable->initial)
      collect(*variable->initial, &named);
    const auto* function = std::get_if<Function>(&item);
    if (!function || !function->body) continue;
    walk(*function->body, [&](const Statement& statement) {
      const auto* i = statement.as<Instruction>();
      if (!i) return;
      pointers_ |= i->opcode == "call" && !calls_by_name(*i);
      parameters_ |= i->opcode == "cvta" && i->has("param");
      for (const Operand& operand : i->operands)
        walk_operand(operand, [&](const Operand& o) {
          if (const auto* symbol = o.as<Symbol>()) named.insert(symbol->name);
          const auto* address = o.as<Address>();
          if (const auto* base = address ? std::get_if<Symbol>(&address->base) : nullptr) named.insert(base->name);
        });
    });
  }
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (!variable || !named.contains(variable->name)) continue;
    if (variable->space == Space::kGlobal || variable->space == Space::kConst) variables_.push_back(variable);
  }
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function && function->body && !function->entry && named.contains(function->name))
      functions_.push_back(function);
  }
}

// Called functions are among those whose address may have been taken: more than need be, and none too few.
std::string GuardHelpers::target_text() const {
  if (!pointers_) return "";
  std::string text =
      ".func (.param .b32 $may) $target(.param .b64 $p0)\n{\n.reg .u64 %$a, %$t; .reg .u32 %$e; .reg .pred %$p;\n"
      "ld.param.b64 %$a, [$p0];\nmov.u32 %$e, 1;\nst.param.b32 [$may], %$e;\n";
  for (const Function* function : functions_) {
    text += "mov.u64 %$t, " + own_name(function->name) + ";\nsetp.eq.u64 %$p, %$a, %$t;\n@%$p ret;\n";
  }
  return text + "mov.u32 %$e, " + std::to_string(kWrongPc) + ";\n" + guard_call("fail", "%$a", {"%$e"}, false) +
         "mov.u32 %$e, 0;\nst.param.b32 [$may], %$e;\nret;\n}\n";
}

std::string GuardHelpers::shared_end_text(const Module& module) {
  const auto version = std::pair(module.version_major, module.version_minor);
  if (architecture_of(module) >= 90 && version >= std::pair(8u, 1u)) return "mov.u32 %$s, %aggr_smem_size;\n";
  return "mov.u32 %$s, %total_smem_size;\nadd.u32 %$s, %$s, " + std::to_string(kReservedShared) + ";\n";
}

std::string GuardHelpers::fail_text() const {
  std::string text = R"(.func $fail(.param .b64 $p0, .param .b32 $p1)
{
  .reg .u64 %$a, %$t; .reg .u32 %$e, %$n; .reg .pred %$p;
  ld.param.b64 %$a, [$p0];
  ld.param.b32 %$e, [$p1];
  mov.u64 %$t, REPORT;
  st.volatile.global.u64 [%$t+8], %$a;
  st.volatile.global.u32 [%$t], %$e;
  mov.u64 %$t, TABLE;
  atom.global.add.u32 %$n, [%$t], 1;
  setp.gt.u32 %$p, %$n, MOST;
  @%$p exit;
  ret;
}
)";
  put_in(&text, "REPORT", std::to_string(area_.report));
  put_in(&text, "TABLE", std::to_string(area_.table));
  put_in(&text, "MOST", std::to_string(kGuardFailuresMost));
  return text;
}

std::string GuardHelpers::reach_text() const {
  std::string text = R"(.func (.param .b32 $may) $reach(.param .b64 $p0, .param .b32 $p1, .param .b32 $p2)
{
  .reg .u64 %$a, %$o, %$t, %$u, %$end; .reg .u32 %$n, %$m, %$low, %$high, %$middle, %$e, %$s; .reg .pred %$p;
  ld.param.b64 %$a, [$p0];
  ld.param.b32 %$n, [$p1];
  ld.param.b32 %$m, [$p2];
  cvt.u64.u32 %$o, %$n;
  add.u64 %$end, %$a, %$o;
  mov.u32 %$e, MISALIGNED;
  cvt.u32.u64 %$low, %$a;
  and.b32 %$low, %$low, %$m;
  setp.ne.u32 %$p, %$low, 0;
  @%$p bra $no;
  mov.u32 %$e, ILLEGAL;
  setp.lt.u64 %$p, %$end, %$a;
  @%$p bra $no;
  mov.u64 %$t, AREA_BEGIN;
  sub.u64 %$o, %$end, %$t;
  setp.gt.u64 %$p, %$o, AREA_BYTES;
  @%$p bra $outside;
  sub.u64 %$o, %$a, %$t;
  setp.le.u64 %$p, %$o, AREA_BYTES;
  @%$p bra $yes;
$outside:
  isspacep.shared %$p, %$a;
  @!%$p bra $not_shared;
  cvta.to.shared.u64 %$o, %$a;
  cvt.u32.u64 %$low, %$o;
  add.u32 %$low, %$low, %$n;
  SHARED_END
  setp.le.u32 %$p, %$low, %$s;
  @%$p bra $yes;
  bra $no;
$not_shared:
  isspacep.local %$p, %$a;
  @%$p bra $yes;
)";
  if (parameters_) text += "  isspacep.param::entry %$p, %$a;\n  @%$p bra $yes;\n";
  for (const Variable* variable : variables_) {
    text += "  mov.u64 %$t, " + own_name(variable->name) + ";\n";
    if (variable->space == Space::kConst) text += "  cvta.const.u64 %$t, %$t;\n";
    text += "  sub.u64 %$o, %$a, %$t;\n  setp.gt.u64 %$p, %$o, " + std::to_string(variable->bytes()) +
            ";\n  sub.u64 %$o, %$end, %$t;\n  setp.le.and.u64 %$p, %$o, " + std::to_string(variable->bytes()) +
            ", !%$p;\n  @%$p bra $yes;\n";
  }
  text += std::string(kSearch) + R"(
$no:
FAIL
  mov.u32 %$e, 0;
  st.param.b32 [$may], %$e;
  ret;
$yes:
  mov.u32 %$e, 1;
  st.param.b32 [$may], %$e;
  ret;
}
)";
  put_in(&text, "FAIL\n", guard_call("fail", "%$a", {"%$e"}, false));
  put_in(&text, "SHARED_END", shared_end_);
  put_in(&text, "MISALIGNED", std::to_string(kMisaligned));
  put_in(&text, "ILLEGAL", std::to_string(kIllegalAddress));
  put_in(&text, "AREA_BEGIN", std::to_string(area_.base - area_.slack));
  put_in(&text, "AREA_BYTES", std::to_string((uint64_t{1} << area_.bits) + 2 * area_.slack));
  put_in(&text, "LIST_BYTES", std::to_string(kGuardListBytes));
  put_in(&text, "TABLE", std::to_string(area_.table));
  return text;
}

void GuardHelpers::add(Module* module, std::string text) const {
  put_in(&text, "$", prefix_);
  std::replace(text.begin(), text.end(), kDollar, '$');
  Module parsed = parse(".version 9.0\n.target sm_90\n.address_size 64\n" + text);
  for (Item& item : parsed.items) module->items.push_back(std::move(item));
}

void GuardHelpers::declare(Module* module) const {
  std::string text =
      ".func $fail(.param .b64 $p0, .param .b32 $p1);\n"
      ".func (.param .b32 $may) $reach(.param .b64 $p0, .param .b32 $p1, .param .b32 $p2);\n";
  if (pointers_) text += ".func (.param .b32 $may) $target(.param .b64 $p0);\n";
  add(module, text);
}

void GuardHelpers::define(Module* module) const { add(module, fail_text() + reach_text() + target_text()); }

}  // namespace bandsaw::ptx
