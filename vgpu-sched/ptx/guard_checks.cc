// What a guarded function looks at in front of its accesses, and how it asks for one of them.
#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/guard_function.h"
#include "vgpu-sched/ptx/guard_helpers.h"

namespace bandsaw::ptx {

// Addresses that may be wrong, by register.
GuardedFunction::Needs GuardedFunction::needs_of(const Instruction& i, const Scope& scope) {
  Needs needs;
  for (const GuardedAccess& access : guarded_accesses(i)) {
    const auto& address = *i.operands[access.operand].as<Address>();
    const auto bytes = static_cast<int64_t>(access.bytes);
    Need need;
    need.space = access.space;
    need.alignment = need.own_alignment = access.alignment;
    need.bytes = access.bytes;
    need.offset = address.offset;
    if (const auto* base = std::get_if<Symbol>(&address.base)) {
      const Variable* variable = scope.find(base->name).variable;
      const bool inside =
          variable && address.offset >= 0 && static_cast<uint64_t>(address.offset) + access.bytes <= variable->bytes();
      const bool shared = access.space == Space::kShared;
      // The name of a variable elsewhere is no address that this instruction takes.
      if (!variable || variable->space != (shared ? Space::kShared : Space::kGlobal))
        refusal_ = "accesses '" + base->name + "' as what it is not";
      else if (!inside && !shared)
        refusal_ = "accesses '" + base->name + "' beyond its end";
      if (inside || !shared) continue;
      need.name = need.at = base->name;
      need.wide = false;
      need.symbol = true;
      need.low = address.offset;
      need.high = address.offset + bytes;
      needs.push_back(std::move(need));
      continue;
    }
    const auto* base = std::get_if<Register>(&address.base);
    const Registers* declared = base ? scope.find(base->name).registers : nullptr;
    if (!declared) {
      refusal_ = "accesses memory at a fixed address (" + i.full_name() + ")";
      continue;
    }
    need.name = need.at = base->name;
    need.wide = bits_of(declared->type) == 64;
    if (!need.wide && (need.space != Space::kShared || bits_of(declared->type) != 32)) {
      refusal_ = "accesses memory by an address of an unknown form (" + i.full_name() + ")";
      continue;
    }
    need.low = address.offset;
    need.high = address.offset + bytes;
    need.shift = static_cast<uint32_t>(address.offset) & (access.alignment - 1);
    const size_t nth = static_cast<size_t>(std::count_if(i.operands.begin(),
                                                         i.operands.begin() + static_cast<ptrdiff_t>(access.operand),
                                                         [](const Operand& o) { return o.as<Address>() != nullptr; }));
    if (need.space == Space::kNone && trace(i, nth, &need)) continue;
    needs.push_back(std::move(need));
  }
  return needs;
}

// Finds what is to be checked in the register's place. True: it is certain that the access is inside of a variable.
bool GuardedFunction::trace(const Instruction& i, size_t nth, Need* need) const {
  const auto origin = roots_.origin(i, nth);
  if (!origin || !origin->generic || origin->alignment < need->alignment) return false;
  if (origin->root.empty()) {
    const Variable& variable = *origin->variable;
    if (need->alignment > variable.alignment()) return false;
    const int64_t low = origin->low + need->low, high = origin->high + need->high;
    if (low >= 0 && static_cast<uint64_t>(high) <= variable.bytes()) return true;
    if (variable.space == Space::kGlobal && variable.bytes() >= need->bytes) need->variable = &variable;
    return false;
  }
  // What it may be in all is looked at, and that would be far outside of the area.
  const auto slack = static_cast<int64_t>(area_.slack);
  if (need->low + origin->low < -slack || need->high + origin->high > slack) return false;
  need->name = origin->root;
  need->low += origin->low;
  need->high += origin->high;
  if (!origin->once || !is_alone(*origin->made)) return false;
  const auto found = masked_.find(origin->made);
  if (found == masked_.end()) return false;
  for (const Need& known : found->second)
    if (known.alignment == need->alignment && known.shift == need->shift) need->bit = known.bit;
  return false;
}

void GuardedFunction::merge(const Need& need, Needs* needs) const {
  for (Need& known : *needs) {
    if (known.name != need.name || known.space != need.space || known.variable != need.variable) continue;
    if ((known.bit == 0) != (need.bit == 0)) continue;
    known.bit |= need.bit;
    if (need.bit != 0) return;
    const bool same_shift = ((known.shift ^ need.shift) & (std::min(known.alignment, need.alignment) - 1)) == 0;
    if (!same_shift) continue;
    if (need.alignment > known.alignment) known.shift = need.shift;
    known.alignment = std::max(known.alignment, need.alignment);
    known.low = std::min(known.low, need.low);
    known.high = std::max(known.high, need.high);
    return;
  }
  needs->push_back(need);
}

// Adds to %$bad what is wrong of an address that is to be in the area. What the text adds to it is less than the slack,
// or it is added before the check.
std::string GuardedFunction::area_text(const Need& need, bool* any) const {
  const uint64_t mask = ~((uint64_t{1} << area_.bits) - 1);
  const auto slack = static_cast<int64_t>(area_.slack);
  const bool near = need.low >= -slack && need.high <= slack;
  std::string text;
  for (const int64_t offset : near ? std::vector<int64_t>{0} : std::vector<int64_t>{need.low, need.high - 1}) {
    if (need.variable) break;
    std::string base = own_name(need.name);
    if (offset != 0) {
      text += "add.s64 %$a, " + base + ", " + std::to_string(offset) + ";\n";
      base = "%$a";
    }
    text += "mov.b64 {%$lo, %$hi}, " + base + ";\nand.b32 %$x, %$hi, " + std::to_string(mask >> 32) +
            ";\nxor.b32 %$x, %$x, " + std::to_string((area_.base & mask) >> 32) + ";\n";
    text += *any ? "or.b32 %$bad, %$bad, %$x;\n" : "mov.b32 %$bad, %$x;\n";
    *any = true;
  }
  if (need.alignment == 1) return text;
  text += "cvt.u32.u64 %$lo, " + own_name(need.name) + ";\n";
  if (need.shift != 0) text += "add.u32 %$lo, %$lo, " + std::to_string(need.shift) + ";\n";
  text += "and.b32 %$x, %$lo, " + std::to_string(need.alignment - 1) + ";\n";
  text += *any ? "or.b32 %$bad, %$bad, %$x;\n" : "mov.b32 %$bad, %$x;\n";
  *any = true;
  return text;
}

// The same of one in shared memory, but whether it is beyond its end.
std::string GuardedFunction::shared_text(const Need& need, bool* any) const {
  std::string text, base = own_name(need.name);
  if (need.symbol) return text;  // the compiler sees to its alignment
  const auto collect = [&](const char* part) {
    text += (*any ? "or.b32 %$bad, %$bad, " : "mov.b32 %$bad, ") + std::string(part) + ";\n";
    *any = true;
  };
  if (need.wide) {
    text += "mov.b64 {%$lo, %$hi}, " + base + ";\n";
    collect("%$hi");
    base = "%$lo";
  }
  if (need.alignment == 1) return text;
  text += "add.u32 %$x, " + base + ", " + std::to_string(need.shift) + ";\nand.b32 %$x, %$x, " +
          std::to_string(need.alignment - 1) + ";\n";
  collect("%$x");
  return text;
}

// Sets %$p if one of the addresses may be wrong; `then` looks at it.
std::string GuardedFunction::check_text(const Needs& needs, const std::string& then) {
  std::string text;
  bool any = false;
  uint32_t bits = 0;
  for (const Need& need : needs) bits |= need.bit;
  if (bits != 0) text += "and.b32 %$bad, %$mask, " + std::to_string(bits) + ";\n";
  any = bits != 0;
  for (const Need& need : needs)
    if (need.bit == 0) text += need.space == Space::kNone ? area_text(need, &any) : shared_text(need, &any);
  if (any) text += "setp.ne.u32 %$p, %$bad, 0;\n";
  const auto collect = [&](const std::string& type, const std::string& what) {
    text += any ? "setp.gt.or." + type + " %$p, " + what + ", %$p;\n" : "setp.gt." + type + " %$p, " + what + ";\n";
    any = true;
  };
  for (const Need& need : needs) {
    if (need.bit != 0) continue;
    if (need.variable) {
      text += "mov.u64 %$a, " + own_name(need.variable->name) + ";\nsub.u64 %$a, " + own_name(need.name) +
              ", %$a;\nadd.s64 %$a, %$a, " + std::to_string(need.low) + ";\n";
      const auto bytes = static_cast<uint64_t>(need.high - need.low);
      collect("u64", "%$a, " + std::to_string(need.variable->bytes() - std::min(bytes, need.variable->bytes())));
    } else if (need.space == Space::kShared) {
      shared_ = true;
      std::string base = own_name(need.name);
      if (need.wide || need.symbol) {
        text += (need.wide ? "cvt.u32.u64 %$lo, " : "mov.u32 %$lo, ") + base + ";\n";
        base = "%$lo";
      }
      text += "add.u32 %$x, " + base + ", " + std::to_string(need.low) + ";\nadd.u32 %$hi, " + base + ", " +
              std::to_string(need.high) + ";\nmax.u32 %$x, %$x, %$hi;\n";
      collect("u32", "%$x, %$s");
    }
  }
  return text + then;
}

// 0 for what was not loaded.
std::string GuardedFunction::zero_text(const Operand& result, const Scope& scope, const std::string& guard) const {
  std::string text;
  walk_operand(result, [&](const Operand& o) {
    const auto* r = o.as<Register>();
    const Registers* declared = r ? scope.find(r->name).registers : nullptr;
    if (!declared) return;
    const uint32_t bits = bits_of(declared->type);
    if (bits == 128)
      text += guard + "mov.b64 %$a, 0;\n" + guard + "mov.b128 " + own_name(r->name) + ", {%$a, %$a};\n";
    else if (bits >= 16)
      text += guard + "mov.b" + std::to_string(bits) + " " + own_name(r->name) + ", 0;\n";
  });
  return text;
}

// Sets %$ok: 1, the access may be; 0, it may not, and was reported; 2, it is not executed.
std::string GuardedFunction::ask_text(const Need& need, const std::optional<Guard>& guard) {
  std::string text = "mov.u32 %$ok, 2;\n", ask;
  if (need.symbol) ask += "mov.u32 %$n, " + own_name(need.at) + ";\n";
  ask += need.symbol ? "cvt.u64.u32 %$a, %$n;\n"
                     : (need.wide ? "mov.b64 %$a, " : "cvt.u64.u32 %$a, ") + own_name(need.at) + ";\n";
  if (need.offset != 0) ask += "add.s64 %$a, %$a, " + std::to_string(need.offset) + ";\n";
  // %$v becomes how many bytes there are.
  ask += "mov.u64 %$v, " + std::to_string(need.bytes) + ";\n";
  if (need.matrix) ask += "sub.u64 %$w, %$w, %$a;\nadd.u64 %$v, %$w, %$v;\nadd.u64 %$w, %$w, %$a;\n";
  if (need.matrix && need.offset != 0) ask += "add.s64 %$v, %$v, " + std::to_string(need.offset) + ";\n";
  if (need.space != Space::kShared) {
    ask += "min.u64 %$v, %$v, 2147483647;\ncvt.u32.u64 %$n, %$v;\nmov.u32 %$x, " +
           std::to_string(need.own_alignment - 1) + ";\n" + guard_call("reach", "%$a", {"%$n", "%$x"}, true);
    return text + unless(guard, ask, next_label());
  }
  shared_ = true;
  const std::string label = next_label();
  ask +=
      "mov.u32 %$ok, 1;\nmov.u32 %$e, 700;\nadd.u64 %$v, %$v, %$a;\ncvt.u64.u32 %$u, %$s;\n"
      "max.u64 %$v, %$v, %$a;\nsetp.gt.u64 %$z, %$v, %$u;\n@%$z bra $bad" +
      label + ";\nmov.u32 %$e, 716;\ncvt.u32.u64 %$x, %$a;\nand.b32 %$x, %$x, " +
      std::to_string(need.own_alignment - 1) + ";\nsetp.eq.u32 %$z, %$x, 0;\n@%$z bra $good" + label + ";\n$bad" +
      label + ":\nmov.u32 %$ok, 0;\n" + guard_call("fail", "%$a", {"%$e"}, false) + "$good" + label + ":\n";
  return text + unless(guard, ask, next_label());
}

// Where the last line of a matrix begins, and that it is touched, too.
std::string GuardedFunction::matrix_text(const Instruction& i, Needs* needs) const {
  const std::vector<GuardedAccess> accesses = guarded_accesses(i);
  if (accesses.empty() || accesses[0].further_lines == 0 || needs->empty()) return "";
  const uint64_t unit = uint64_t{accesses[0].further_lines} * accesses[0].element_bytes;
  Need& first = needs->front();
  std::string text;
  const auto* constant = i.operands[accesses[0].stride].as<Integer>();
  const auto* stride = i.operands[accesses[0].stride].as<Register>();
  if (constant) text = "mov.u64 %$w, " + std::to_string((constant->bits & UINT32_MAX) * unit) + ";\n";
  if (stride) text = "mul.wide.u32 %$w, " + own_name(stride->name) + ", " + std::to_string(unit) + ";\n";
  text += (first.wide ? "mov.b64 %$a, " : "cvt.u64.u32 %$a, ") + own_name(first.at) + ";\nadd.u64 %$w, %$w, %$a;\n";
  first.matrix = true;
  Need last = first;
  last.name = "%" + prefix_ + "w";
  last.wide = true;
  last.low = first.offset;
  last.high = first.offset + static_cast<int64_t>(first.bytes);
  last.shift = static_cast<uint32_t>(first.offset) & (last.alignment - 1);
  last.bit = 0;
  last.variable = nullptr;
  needs->push_back(std::move(last));
  return text;
}

}  // namespace bandsaw::ptx
