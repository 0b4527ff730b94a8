#include "backend/runner/slicing/counting_launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::runner {

std::unique_ptr<CountingLaunch> CountingLaunch::make(SlicingParts* parts, LaunchUnderWay* launch,
                                                     std::shared_ptr<const KernelClone> next) {
  LaunchShape* const shape = launch->shape.get();
  if (!parts->settings.count || !shape || shape->counted || launch->blocks <= shape->wave) return nullptr;
  if (!parts->gate.is_planned(kCompute)) return nullptr;
  const ContextRef& context = launch->caller.context;
  auto counting = parts->variants.find(launch->kernel, context, launch->program, KernelVariant::kCounting);
  if (!counting) return nullptr;
  shape->counted = true;
  // The counting variant needs more registers, and may not fit.
  Launch as_counted = launch->program;
  as_counted.code = {nullptr, counting->function};
  if (resident_blocks(parts->device, as_counted) == 0) return nullptr;
  auto counts = parts->control_blocks.take(context);
  if (!counts) return nullptr;
  launch->counted = launch->held_up = true;
  return std::unique_ptr<CountingLaunch>(
      new CountingLaunch(parts, launch, std::move(counting), std::move(counts), std::move(next)));
}

CountingLaunch::CountingLaunch(SlicingParts* parts, LaunchUnderWay* launch, std::shared_ptr<const KernelClone> counting,
                               std::shared_ptr<ControlBlock> counts, std::shared_ptr<const KernelClone> next)
    : SlicedLaunch(parts, launch, std::move(counting)), counts_(std::move(counts)), next_(std::move(next)) {
  clone_launch_.set(clone().counts_at, counts_->address + ControlBlock::kCountsAt);
}

// The grid slice that counts is of one wave at most. Nothing is issued behind it before it has ended.
CUresult CountingLaunch::issue() {
  if (!next_) return SlicedLaunch::issue();
  lay_tracks();
  const uint64_t blocks = std::min(next_blocks(), launch_.shape->wave);
  const vgpu_fill zeros = counts_->zeros(ControlBlock::kCountsAt, sizeof(ptx::CountsOfBlocks));
  CUresult result = parts_.device.fill(launch_.stream, zeros, nullptr);
  if (result != CUDA_SUCCESS) return result;
  clone_launch_.set(clone().first_at, std::array<uint32_t, 3>{});
  launch_.measure(parts_);
  result = parts_.device.launch(launch_.stream, clone_launch_.with(blocks));
  if (result != CUDA_SUCCESS) return result;
  launch_.next = blocks;
  turns_ = true;
  launch_.issued(parts_, 0);
  parts_.gate.leave(kCompute, [](uint64_t) {});
  *counts_->counts = {};  // zeros are not taken for counts, if the copy fails
  const auto land = [flight = launch_.flight, counts = counts_](CUresult) { flight->land(0); };
  if (parts_.device.copy(launch_.stream, counts_->counts_to_host(), land) != CUDA_SUCCESS) land(CUDA_SUCCESS);
  return CUDA_SUCCESS;
}

CUresult CountingLaunch::issue_rest() {
  next_ = nullptr;
  return SlicedLaunch::issue_rest();
}

std::shared_ptr<const KernelClone> CountingLaunch::turn() {
  if (!next_) return SlicedLaunch::turn();
  turns_ = false;
  take_counts();
  return std::exchange(next_, nullptr);
}

// The device counted instructions of threads; this makes them instructions of warps. Warps whose threads diverge
// execute more than this says. A program that wrote to memory not its own may have left any value there.
void CountingLaunch::take_counts() {
  constexpr double kMost = 1e15;
  const ptx::CountsOfBlocks found = *counts_->counts;
  const auto& block = launch_.program.block;
  const double threads = static_cast<double>(block[0]) * block[1] * block[2];
  const double blocks = static_cast<double>(launch_.next);
  const double instructions = static_cast<double>(found.instructions), warps = std::ceil(threads / 32);
  if (!(instructions >= threads * blocks)) return;
  BlockCounts& counts = launch_.shape->counts;
  counts.instructions = static_cast<uint64_t>(std::min(kMost, instructions / blocks / threads * warps));
  counts.bytes = static_cast<uint64_t>(std::min(kMost, static_cast<double>(found.bytes) / blocks));
  counts.accesses = std::min(1.0, static_cast<double>(found.accesses) / instructions);
  log::info("{}: a block has {} instructions of its warps, {:.1f} % of them to global memory, {} bytes there",
            launch_.kernel->name, counts.instructions, 100 * counts.accesses, counts.bytes);
}

void CountingLaunch::give_back() { parts_.control_blocks.give(std::move(counts_)); }

}  // namespace bandsaw::runner
