// Of the slicer: the first grid slice of a launch counts what its blocks do, once for each shape, so that whoever plans
// knows how a kernel uses the device alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/slicer_run.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

// Makes the first grid slice of the launch one that counts, if the counting variant is ready. The clone that the launch
// has now follows it.
void Slicer::begin_counted(Run& run, const Launch& launch) {
  LaunchShape* const shape = run.shape.get();
  if (!settings_.count || !shape || shape->counted || run.total <= shape->wave) return;
  if (!gate_.is_planned(kCompute)) return;
  const auto counted = variants_.find(run.kernel, run.caller.context, launch, KernelVariant::kCounting);
  if (!counted) return;
  shape->counted = true;
  // The counting variant needs more registers, and may not fit.
  uint32_t resident = 0;
  device_.occupancy({nullptr, counted->function}, launch.block[0] * launch.block[1] * launch.block[2],
                    launch.shared_bytes, &resident);
  run.counts = resident == 0 ? nullptr : control_blocks_.take(run.caller.context);
  if (!run.counts) return;
  run.next_clone = run.clone;
  run.counted = run.held_up = true;
  use_clone(run, counted);
}

// Issues the counting grid slice, of one wave at most. Nothing is issued behind it before it has ended.
CUresult Slicer::issue_counted(Run& run, uint64_t most) {
  const uint64_t blocks = std::min(most, run.shape->wave);
  const vgpu_fill zeros = run.counts->zeros(ControlBlock::kCountsAt, sizeof(ptx::CountsOfBlocks));
  CUresult result = device_.fill(run.stream, zeros, nullptr);
  if (result != CUDA_SUCCESS) return result;
  std::memset(run.parameters.data() + run.clone->first_at, 0, 3 * sizeof(uint32_t));
  run.launch.grid[0] = static_cast<uint32_t>(blocks);
  measure(run);
  result = device_.launch(run.stream, run.launch);
  if (result != CUDA_SUCCESS) return result;
  run.next = blocks;
  run.turns = true;
  note_issued(run, 0);
  gate_.leave(kCompute, [](uint64_t) {});
  *run.counts->counts = {};  // zeros are not taken for counts, if the copy fails
  const auto land = [flight = run.flight, control = run.counts](CUresult) { flight->land(0); };
  if (device_.copy(run.stream, run.counts->counts_to_host(), land) != CUDA_SUCCESS) land(CUDA_SUCCESS);
  return CUDA_SUCCESS;
}

// The device counted instructions of threads; this makes them instructions of warps. Warps whose threads diverge
// execute more than this says. A program that wrote to memory not its own may have left any value there.
void Slicer::take_counts(Run& run) {
  constexpr double kMost = 1e15;
  const ptx::CountsOfBlocks found = *run.counts->counts;
  const auto& block = run.launch.block;
  const double threads = static_cast<double>(block[0]) * block[1] * block[2], blocks = static_cast<double>(run.next);
  const double instructions = static_cast<double>(found.instructions), warps = std::ceil(threads / 32);
  if (!(instructions >= threads * blocks)) return;
  BlockCounts& counts = run.shape->counts;
  counts.instructions = static_cast<uint64_t>(std::min(kMost, instructions / blocks / threads * warps));
  counts.bytes = static_cast<uint64_t>(std::min(kMost, static_cast<double>(found.bytes) / blocks));
  counts.accesses = std::min(1.0, static_cast<double>(found.accesses) / instructions);
  log::info("{}: a block has {} instructions of its warps, {:.1f} % of them to global memory, {} bytes there",
            run.kernel->name, counts.instructions, 100 * counts.accesses, counts.bytes);
}

}  // namespace bandsaw::runner
