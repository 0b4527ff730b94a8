#include "vgpu-sched/ptx/idempotence.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "vgpu-sched/ptx/access.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {
namespace {

using Is = GlobalAccess::Kind;
using In = GlobalAccess::Place;

// What a kernel's accesses are, all together.
struct AllAccesses {
  std::set<std::pair<In, size_t>> reads, writes;
  bool unknown_read = false, unknown_write = false;

  explicit AllAccesses(const std::vector<GlobalAccess>& all) {
    for (const GlobalAccess& one : all) {
      if (one.kind == Is::kOnce) continue;
      const bool write = one.kind == Is::kWrite;
      if (one.place == In::kUnknown)
        (write ? unknown_write : unknown_read) = true;
      else
        (write ? writes : reads).insert({one.place, one.at});
    }
  }
  bool reads_any() const { return unknown_read || !reads.empty(); }
  bool writes_any() const { return unknown_write || !writes.empty(); }
};

std::string why_not_strict(const std::vector<GlobalAccess>& accesses, const AllAccesses& all) {
  for (const GlobalAccess& one : accesses) {
    if (one.kind == Is::kOnce) return one.reason;
    if (one.strong) return "reads or writes memory that others may use meanwhile (volatile, or ordered)";
  }
  if (!all.reads_any() || !all.writes_any()) return "";
  if (all.unknown_write) return "writes through a pointer that comes from memory, and reads";
  if (all.unknown_read) return "reads through a pointer that comes from memory, and writes";
  const bool same =
      std::any_of(all.reads.begin(), all.reads.end(), [&](const auto& at) { return all.writes.contains(at); });
  return same ? "reads and writes through the same pointer" : "";
}

bool is_irreversible(const GlobalAccess& one, const AllAccesses& all) {
  return one.kind == Is::kOnce || one.strong || (one.kind == Is::kWrite && all.reads_any());
}

std::optional<uint64_t> pointer_at(std::span<const std::byte> parameters, size_t at) {
  uint64_t pointer = 0;
  if (at > parameters.size() || parameters.size() - at < sizeof pointer) return std::nullopt;
  std::memcpy(&pointer, parameters.data() + at, sizeof pointer);
  return pointer;
}

// Of those pointers that are not null; none: one is not known.
std::optional<std::vector<MemoryRange>> ranges_of(const std::vector<size_t>& offsets,
                                                  std::span<const std::byte> parameters, const FindRange& find_range) {
  std::vector<MemoryRange> ranges;
  for (const size_t at : offsets) {
    const auto pointer = pointer_at(parameters, at);
    if (!pointer) return std::nullopt;
    if (*pointer == 0) continue;
    const auto range = find_range(*pointer);
    if (!range) return std::nullopt;
    ranges.push_back(*range);
  }
  return ranges;
}

}  // namespace

BlockIdempotence block_idempotence(const Program& program, std::string_view kernel) {
  const ProgramFacts& facts = program.facts();
  const Closure closure = reach(facts, kernel);
  const std::vector<GlobalAccess> accesses = global_accesses(facts, closure);
  const AllAccesses all(accesses);
  BlockIdempotence block;
  block.not_strict = why_not_strict(accesses, all);
  for (const GlobalAccess& one : accesses) {
    if (!is_irreversible(one, all)) continue;
    if (one.function == closure.functions[0])
      block.irreversible.push_back(one.instruction);
    else if (block.not_relaxed.empty())
      block.not_relaxed =
          "'" + facts.functions[one.function].function->name + "', which it calls, does what cannot be done again";
  }
  for (const uint32_t f : closure.functions) {
    if (!facts.functions[f].calls_pointer) continue;
    block.not_strict = block.not_relaxed = "calls through a pointer";
  }
  for (const auto& [place, at] : all.reads) {
    if (place == In::kParameter) block.reads.push_back(at);
    block.reads_variables |= place == In::kVariable;
  }
  for (const auto& [place, at] : all.writes) {
    if (place == In::kParameter) block.writes.push_back(at);
    block.writes_variables |= place == In::kVariable;
  }
  return block;
}

bool disjoint(const BlockIdempotence& block, std::span<const std::byte> parameters, const FindRange& find_range) {
  const bool reads = !block.reads.empty() || block.reads_variables;
  const bool writes = !block.writes.empty() || block.writes_variables;
  if (!reads || !writes) return true;
  // A pointer to a module's variable lies in no allocation, so it is not known.
  const auto read = ranges_of(block.reads, parameters, find_range);
  const auto written = ranges_of(block.writes, parameters, find_range);
  if (!read || !written) return false;
  for (const MemoryRange& from : *read) {
    for (const MemoryRange& to : *written)
      if (from.begin < to.end && to.begin < from.end) return false;
  }
  return true;
}

}  // namespace bandsaw::ptx
