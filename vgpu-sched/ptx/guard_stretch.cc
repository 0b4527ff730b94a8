#include "vgpu-sched/ptx/guard_stretch.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/guard_access.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

constexpr size_t kMostMakers = 32;  // of one address

// Special registers whose values do not change while a thread runs.
bool is_constant(std::string_view name) {
  const Special special = special_of(name);
  return special == Special::kCtaid || special == Special::kNctaid || name == "%tid" || name == "%ntid";
}

}  // namespace

const StretchOrigin* StretchAddresses::origin(std::string_view name) const {
  const auto found = origins_.find(name);
  return found == origins_.end() ? nullptr : &found->second;
}

const std::set<size_t>* StretchAddresses::makers(std::string_view name) const {
  const auto found = makers_.find(name);
  return found == makers_.end() ? nullptr : &found->second;
}

void StretchAddresses::pass(size_t at, const Instruction& i) {
  const Kind kind = kind_of(i);
  const bool result = has_result(i, kind);
  Names reads, writes;
  for (size_t n = 0; n < i.operands.size(); ++n) add_registers(i.operands[n], n == 0 && result ? &writes : &reads);
  if (i.guard) reads.insert(i.guard->predicate.name);
  if (result && (i.guard || i.operands[0].as<Address>())) reads.insert(writes.begin(), writes.end());
  const bool plain = kind == Kind::kValue && result && !i.guard && is_alone(i) && i.operands[0].as<Register>();
  const std::string name = plain ? i.operands[0].as<Register>()->name : "";
  // What was known of a register that is written anew is looked up before it is forgotten.
  const bool again = std::any_of(writes.begin(), writes.end(), [&](const auto& one) { return written_.contains(one); });
  for (const std::string& one : writes) {
    if (one != name) origins_.erase(one);
    makers_.erase(one);
  }
  if (plain) {
    follow(i, name);
    if (!again) try_early(at, i, name, reads);
  }
  read_.merge(reads);
  written_.merge(writes);
}

// A pointer, and something less than the slack that is added to it.
void StretchAddresses::follow(const Instruction& i, const std::string& result) {
  std::optional<StretchOrigin> found;
  const auto consider = [&](size_t pointer, const std::optional<GuardRoots::Bounds>& added) {
    const auto* r = pointer < i.operands.size() ? i.operands[pointer].as<Register>() : nullptr;
    const Registers* declared = r ? scope_.find(r->name).registers : nullptr;
    if (found || !added || !declared || bits_of(declared->type) != 64) return;
    const StretchOrigin* before = origin(r->name);
    if (!before && !is_untouched(r->name)) return;
    found = before ? *before : StretchOrigin{r->name, {0, 0, uint64_t{1} << 32}};
    found->added.low += added->low;
    found->added.high += added->high;
    found->added.alignment = std::min(found->added.alignment, added->alignment);
  };
  if (is_plain(i, "add", {"u64", "s64"}) && i.operands.size() == 3) {
    consider(1, roots_.bounds(i, 2));
    consider(2, roots_.bounds(i, 1));
  } else if (is_plain(i, "mov", {"u64", "s64", "b64"}) || (i.opcode == "cvta" && i.space() == Space::kGlobal)) {
    consider(1, GuardRoots::Bounds{0, 0, uint64_t{1} << 32});
  }
  if (found) {
    origins_.insert_or_assign(result, std::move(*found));
  } else {
    origins_.erase(result);
  }
}

// In front of the stretch its operands are what they are here, and nobody reads or writes its result in between.
void StretchAddresses::try_early(size_t at, const Instruction& i, const std::string& result, const Names& reads) {
  if (read_.contains(result) || reads.contains(result)) return;
  std::set<size_t> all{at};
  for (const std::string& name : reads) {
    if (!scope_.find(name).registers) {
      if (!is_constant(name)) return;
      continue;
    }
    if (is_untouched(name)) continue;
    const std::set<size_t>* before = makers(name);
    if (!before) return;
    all.insert(before->begin(), before->end());
  }
  if (all.size() <= kMostMakers) makers_.insert_or_assign(result, std::move(all));
}

}  // namespace bandsaw::ptx
