#include "vgpu-sched/ptx/analysis.h"

#include <algorithm>

#include "vgpu-sched/ptx/access.h"
#include "vgpu-sched/ptx/instruction_mix.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/slice.h"
#include "vgpu-sched/ptx/spin.h"

namespace bandsaw::ptx {
namespace {

template <class Result>
std::string reason_of(const Result& result) {
  const auto* refusal = std::get_if<Refusal>(&result);
  return refusal ? refusal->reason : "";
}

void add_shared(const Variable& variable, Analysis* analysis) {
  if (variable.space != Space::kShared) return;
  if (variable.sized_by_launch())
    analysis->dynamic_shared = true;
  else if (__builtin_add_overflow(analysis->static_shared_bytes, variable.bytes(), &analysis->static_shared_bytes))
    analysis->static_shared_bytes = UINT64_MAX;
}

InterBlockDependency inter_block_dependency_of(const ProgramFacts& facts, const Closure& closure) {
  bool fence = false, atomic = false, polls = false;
  for (const uint32_t f : closure.functions) {
    const FunctionFacts& mine = facts.functions[f];
    if (mine.calls_pointer) return InterBlockDependency::kAny;
    fence |= mine.wide_fence;
    atomic |= mine.global_atomic;
    polls |= mine.polls;
  }
  if (polls && spin_of(facts, closure) != Spin::kLowerBlocks) return InterBlockDependency::kAny;
  return polls || (fence && atomic) ? InterBlockDependency::kLowerBlocks : InterBlockDependency::kNone;
}

void describe(const ProgramFacts& facts, const Closure& closure, Analysis* analysis) {
  bool fence = false, atomic = false;
  for (const uint32_t f : closure.functions) {
    const FunctionFacts& mine = facts.functions[f];
    fence |= mine.wide_fence;
    atomic |= mine.global_atomic;
    analysis->calls_by_pointer |= mine.calls_pointer;
    walk(*mine.function->body, [&](const Statement& statement) {
      if (const auto* variable = statement.as<Variable>()) add_shared(*variable, analysis);
    });
  }
  for (const uint32_t v : closure.own_variables) add_shared(*facts.variables[v].variable, analysis);
  for (const std::string_view name : closure.declarations) {
    analysis->prints |= name == "vprintf";
    analysis->allocates |= name == "malloc";
  }
  analysis->spin = spin_of(facts, closure);
  analysis->dependency = inter_block_dependency_of(facts, closure);
  analysis->order_dependent = (fence && atomic) || analysis->spin != Spin::kNone;
  analysis->reads_block_index_yz = closure.reads.at(closure.functions[0]) & (kReadsY | kReadsZ);
  find_accesses(facts, closure, analysis);
  analysis->instruction_mix = instruction_mix_of(facts, closure);
}

}  // namespace

InterBlockDependency inter_block_dependency_of(const Program& program, std::string_view kernel) {
  return inter_block_dependency_of(program.facts(), reach(program.facts(), kernel));
}

InstructionMix instruction_mix_of(const Program& program, std::string_view kernel) {
  return instruction_mix_of(program.facts(), reach(program.facts(), kernel));
}

Analysis analyse(const Program& program, std::string_view kernel) {
  const ProgramFacts& facts = program.facts();
  Analysis analysis;
  const auto found = facts.function_index.find(kernel);
  if (found == facts.function_index.end() || !facts.functions[found->second].function->entry) return analysis;
  const Function& function = *facts.functions[found->second].function;
  analysis.name = function.name;
  for (const Variable& p : function.parameters) {
    const uint64_t alignment = p.alignment(), bytes = p.bytes();
    analysis.parameter_bytes =
        (std::min<uint64_t>(analysis.parameter_bytes, 1 << 20) + alignment - 1) / alignment * alignment;
    analysis.parameter_bytes += std::min<uint64_t>(bytes, 1 << 20);
  }
  analysis.not_sliceable = reason_of(slice(program, kernel));
  analysis.not_persistent =
      analysis.not_sliceable.empty() ? reason_of(persistent(program, kernel)) : analysis.not_sliceable;
  describe(facts, reach(facts, kernel), &analysis);
  return analysis;
}

}  // namespace bandsaw::ptx
