#include "backend/device/soft/timing/simulate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "backend/device/soft/timing/reorder.h"
#include "backend/device/soft/timing/sharing.h"

namespace bandsaw::soft::timing {
namespace {

using Warps = std::span<const WarpTrace>;

std::vector<Warps> by_block(const LaunchTrace& launch) {
  std::vector<Warps> blocks;
  const Warps all(launch.warps);
  for (size_t at = 0; at < all.size();) {
    size_t end = at;
    while (end < all.size() && all[end].block == all[at].block) ++end;
    blocks.push_back(all.subspan(at, end - at));
    at = end;
  }
  return blocks;
}

void add(const SmCounts& one, SmCounts* sum) {
  sum->instructions += one.instructions;
  sum->thread_instructions += one.thread_instructions;
  sum->stalls.conflict += one.stalls.conflict;
  sum->stalls.dependency += one.stalls.dependency;
  sum->stalls.fetch += one.stalls.fetch;
  sum->stalls.barrier += one.stalls.barrier;
  sum->stalls.other += one.stalls.other;
  sum->empty += one.empty;
  sum->look_ups += one.look_ups;
  sum->fetches += one.fetches;
  sum->fetch_hits += one.fetch_hits;
  sum->prefetches += one.prefetches;
}

void add(const LoadStoreCounts& one, LoadStoreCounts* sum) {
  sum->l1_reads += one.l1_reads;
  sum->l1_hits += one.l1_hits;
  sum->refused += one.refused;
  sum->requeued += one.requeued;
  sum->bank_turns += one.bank_turns;
}

void add(const MemoryCounts& one, MemoryCounts* sum) {
  sum->l2_reads += one.l2_reads;
  sum->l2_hits += one.l2_hits;
  sum->dram_lines += one.dram_lines;
  sum->row_hits += one.row_hits;
  sum->dram_sectors += one.dram_sectors;
}

// With L1 as large as the blocks' shared memory leaves it.
Machine fitted(Machine machine, uint32_t shared_bytes) {
  if (machine.unified_bytes) machine.l1d.bytes = machine.unified_bytes - std::min(shared_bytes, machine.shared_bytes);
  return machine;
}

}  // namespace

void add(const Timing& one, Timing* sum) {
  sum->cycles += one.cycles;
  sum->launch_cycles += one.launch_cycles;
  sum->blocks += one.blocks;
  sum->oversized = sum->oversized || one.oversized;
  sum->cut = sum->cut || one.cut;
  sum->scheduler_cycles += one.scheduler_cycles;
  add(one.sm, &sum->sm);
  add(one.accesses, &sum->accesses);
  add(one.memory, &sum->memory);
}

Timing simulate(const LaunchTrace& launch, const Machine& whole, const Scheduling& scheduling, uint64_t most_cycles) {
  Timing result;
  // A compiler for this GPU would have fitted the registers to the block.
  const uint32_t registers = std::min(launch.registers, whole.registers / (launch.block_warps() * kMostLanes));
  const uint32_t fits = resident_blocks(whole, launch.threads(), registers, launch.shared_bytes);
  result.oversized = fits == 0;
  result.resident = std::max(fits, 1u);
  result.cut = launch.cut;
  const Machine machine = fitted(whole, result.resident * launch.shared_bytes);
  std::vector<Warps> blocks = by_block(launch);
  // The part of the grid that falls to the SMs that are simulated.
  const uint64_t share = machine.part.blocks_of(launch.blocks());
  if (blocks.size() > share) blocks.resize(share);
  result.blocks = blocks.size();

  const std::optional<Code> moved = machine.reorders ? std::optional(reorder(launch, machine)) : std::nullopt;
  const Code& code = moved ? *moved : launch.code;
  const ProgramPoints points(code, scheduling.point_slots);
  MemorySystem memory(machine, sharing_of(launch, blocks.size(), machine));
  std::vector<std::unique_ptr<Sm>> sms;
  for (uint32_t i = 0; i < machine.part.sms; ++i)
    sms.push_back(std::make_unique<Sm>(machine, scheduling, launch, code, points, i, result.resident, &memory));
  size_t next = 0;
  const auto busy = [&] {
    return next < blocks.size() || std::any_of(sms.begin(), sms.end(), [](const auto& sm) { return !sm->idle(); });
  };
  uint64_t now = 0;
  for (; busy(); ++now) {
    if (now >= most_cycles) {
      result.cut = true;
      break;
    }
    for (const auto& sm : sms)
      if (next < blocks.size() && sm->has_room()) sm->begin_block(blocks[next++]);
    memory.step(now);
    for (const auto& sm : sms) sm->step(now);
  }
  for (const auto& sm : sms) {
    add(sm->counts(), &result.sm);
    add(sm->accesses(), &result.accesses);
  }
  result.memory = memory.counts();
  result.cycles = now;
  result.scheduler_cycles = now * machine.schedulers * machine.part.sms;
  if (!blocks.empty())
    result.launch_cycles = static_cast<double>(now) * static_cast<double>(share) / static_cast<double>(blocks.size());
  return result;
}

}  // namespace bandsaw::soft::timing
