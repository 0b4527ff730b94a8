// Of the slicer: launches as persistent blocks that claim blocks of the grid, and stop when others want the engine.
#include <algorithm>
#include <cstring>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/slicer_run.h"
#include "memory/base/clock.h"
#include "memory/base/log.h"
#include "vgpu-sched/ptx/persistent.h"

namespace bandsaw::runner {
namespace {

// Persistent blocks are not told to stop before they have run for this long.
constexpr std::chrono::milliseconds kGrace{1};
// Without an arbiter nobody says whether others want the engine: they stop after as many blocks, so that what is lost
// while they end is 2 % at most.
constexpr uint64_t kTurnBlocks = 32;
// Between two probes of the counter.
constexpr std::chrono::microseconds kProbeLeast{100};
constexpr std::chrono::milliseconds kProbeMost{2};
// Tests (force_blocks) stop each launch as often as this.
constexpr int kForcedStops = 3;

}  // namespace

// Why this launch cannot run as persistent blocks; empty: it can, and its control block is ready.
std::string Slicer::prepare_persistent(Run& run) {
  const KernelClone& clone = *run.clone;
  const auto& block = run.launch.block;
  if (run.total > ptx::kMaxPersistentBlocks) return "its grid is too large for persistent blocks";
  if (clone.whole_warps && block[0] % 32 != 0 && (block[1] != 1 || block[2] != 1)) {
    return "rows of its blocks are not whole warps";
  }
  uint32_t resident = 0;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads <= 1024) {
    device_.occupancy(run.launch.code, static_cast<uint32_t>(threads), run.launch.shared_bytes, &resident);
  }
  if (resident == 0) return "none of its blocks would be resident";
  // Fewer are resident than the program may count on.
  const bool fits = run.total <= uint64_t{resident} * sms_;
  if (clone.dependency == ptx::InterBlockDependency::kAny ||
      (clone.dependency == ptx::InterBlockDependency::kLowerBlocks && fits)) {
    return "its blocks may wait for one another";
  }
  run.most_resident = resident;
  if (run.shape) run.shape->persistent_tuner.fit(static_cast<int>(resident), settings_.variant == VariantChoice::kAuto);
  run.step = std::min(settings_.force_blocks ? settings_.force_blocks : best_persistent(run), run.total);
  run.control_block = control_blocks_.take(run.caller.context);
  if (!run.control_block) return "there is no memory for its counter";
  *run.control_block->claimed = static_cast<uint32_t>(run.next);
  const uint64_t counter = run.control_block->address, stop = counter + ControlBlock::kStopAt;
  const auto total = static_cast<uint32_t>(run.total);
  std::memcpy(run.parameters.data() + clone.counter_at, &counter, sizeof counter);
  std::memcpy(run.parameters.data() + clone.stop_at, &stop, sizeof stop);
  std::memcpy(run.parameters.data() + clone.blocks_at, &total, sizeof total);
  return "";
}

// When another kernel was planned beside it: persistent blocks keep the pair's ratio of blocks, grid slices do not.
bool Slicer::may_turn_persistent(const Run& run) const {
  return settings_.variant == VariantChoice::kAuto && !run.stalled && !run.kernel->only_grid_slices &&
         gate_.answer(kCompute).resident != 0;
}

// Goes on with what is left of a launch as another variant: the clone that follows a counting grid slice, or persistent
// blocks. No grid slice of it is in flight. Where the variant is refused or not ready, grid slices go on.
void Slicer::change_variant(Run& run) {
  run.turns = false;
  Launch launch = run.launch;
  launch.code = run.code;
  std::copy_n(run.grid.begin(), 3, launch.grid);
  if (run.next_clone) take_counts(run);
  const auto sliced = run.clone;
  auto clone = std::exchange(run.next_clone, nullptr);
  if (!clone) clone = variants_.find(run.kernel, run.caller.context, launch, KernelVariant::kPersistent);
  if (!clone) return;
  use_clone(run, clone);
  if (!clone->persistent) return;
  if (!prepare_persistent(run).empty()) {
    variants_.turns_to_grid_slices(*run.kernel);
    return use_clone(run, sliced);
  }
  run.most_in_flight = run.most_tracks = 1;
  run.track = 0;
}

// How many persistent blocks are best for the kernel alone: fewer than fit may be as fast
// (vgpu-sched/slice/persistent_tuner.h). Not searched for where others run beside it and would hide the difference.
uint64_t Slicer::best_persistent(Run& run) const {
  const bool alone = !settings_.mps || gate_.is_planned(kCompute);
  const int best = run.shape && alone ? run.shape->persistent_tuner.next() : slice::PersistentTuner::kSliced;
  run.tuned_blocks.reset();
  if (best == slice::PersistentTuner::kSliced) return run.most_resident * sms_;
  run.tuned_blocks = best;
  return static_cast<uint64_t>(best) * sms_;
}

// Clears the flag to stop, for what follows on the stream.
CUresult Slicer::allow_claims(Run& run, const StreamRef& stream) {
  return device_.fill(stream, run.control_block->zeros(ControlBlock::kStopAt, sizeof(uint32_t)), nullptr);
}

CUresult Slicer::issue_persistent(Run& run) {
  const uint64_t counter = run.control_block->address;
  const bool first = !std::exchange(run.claiming, true);
  CUresult result = first ? device_.fill(run.stream, run.control_block->zeros(0, ControlBlock::kBytes), nullptr)
                          : allow_claims(run, run.stream);
  if (result == CUDA_SUCCESS && first && run.next != 0) {
    result = device_.fill(run.stream, {counter, 0, 1, 1, sizeof(uint32_t), static_cast<uint32_t>(run.next)}, nullptr);
  }
  if (result != CUDA_SUCCESS) return result;
  run.launch.grid[0] = static_cast<uint32_t>(run.step);
  measure(run);
  result = device_.launch(run.stream, run.launch);
  if (result != CUDA_SUCCESS) return result;
  note_issued(run, 0);
  run.issued = run.moved = Run::Clock::now();
  run.told = run.probed = false;
  run.next_probe = run.issued + kProbeMost;
  gate_.leave(kCompute, [](uint64_t) {});
  result = device_.copy(run.stream, run.control_block->counter_to(run.control_block->claimed),
                        [flight = run.flight, control = run.control_block](CUresult outcome) {
                          if (outcome != CUDA_SUCCESS) flight->failed = true;
                          flight->land(0);
                        });
  if (result != CUDA_SUCCESS) {  // nothing will tell of its end, so it is not told to stop either
    run.flight->failed = true;
    --run.flight->on_track[0];
    --run.flight->launches;
  }
  if (settings_.force_blocks != 0 && run.stops < kForcedStops && !run.stalled) tell_to_stop(run);
  return CUDA_SUCCESS;
}

void Slicer::tell_to_stop(Run& run) {
  run.told = run.held_up = true;
  ++run.stops;
  const CUresult result = device_.write_value(
      run.control_block->side_stream, run.control_block->address + ControlBlock::kStopAt, 1, sizeof(uint32_t), 0);
  if (result != CUDA_SUCCESS) log::warn("telling {} to stop: error {}", run.kernel->name, static_cast<int>(result));
}

// How long persistent blocks run before they are told to stop, where no arbiter says when. Without MPS: for ever.
std::chrono::nanoseconds Slicer::turn(const Run& run) const {
  if (!settings_.mps || gate_.is_governed()) return std::chrono::nanoseconds::max();
  const LaunchShape* shape = run.shape.get();
  const uint64_t block_ns = shape ? shape->typical_ns * std::min(run.step, shape->blocks) / shape->blocks : 0;
  return std::chrono::nanoseconds(kTurnBlocks * block_ns);
}

// Where the arbiter plans, it is told when the last block has been claimed. The counter is probed at ever shorter
// intervals as the end comes near.
void Slicer::watch_end(Run& run) {
  if (run.drained || run.call == 0 || run.flight->probing || !gate_.is_planned(kCompute)) return;
  const auto now = Run::Clock::now();
  if (std::exchange(run.probed, false)) {
    const uint64_t claimed = *static_cast<volatile uint32_t*>(run.control_block->peeked);
    run.drained = claimed >= run.total;
    if (run.drained) return withdraw(run);
    if (!run.told) report(run, claimed);
    const auto each = (now - run.issued) / std::max<uint64_t>(1, claimed - std::min(claimed, run.next));
    run.next_probe =
        now + std::clamp<std::chrono::nanoseconds>(each * (run.total - claimed) / 2, kProbeLeast, kProbeMost);
  } else if (now >= run.next_probe) {
    run.flight->probing = run.probed = true;
    const CUresult result = peek(run, [flight = run.flight] {
      flight->seen_ns = monotonic_ns();
      flight->probing = false;
      flight->notify();
    });
    if (result != CUDA_SUCCESS) run.flight->probing = run.probed = false;
  }
}

// Issues the launch anew, or tells its blocks to stop. False: it has ended, or failed.
bool Slicer::advance_persistent(Run& run, bool* any) {
  if (run.flight->launches != 0) {
    watch_end(run);
    if (run.drained) return true;
    const auto since = Run::Clock::now() - run.issued;
    const bool asked = gate_.is_wanted(kCompute) || is_replanned(run) || since >= turn(run);
    const bool wanted = asked && since >= kGrace;
    if (wanted && !run.told && !run.stalled) tell_to_stop(run);
    return true;
  }
  // A program that wrote to memory not its own may have left any value there. Its launch then ends early, or never, as
  // it could by itself.
  run.next = std::min<uint64_t>(*run.control_block->claimed, run.total);
  if (run.flight->failed || run.next == run.total) return false;
  describe(run);
  if (!gate_.enter_alone(kCompute)) {
    at_gate_ = true;
    return true;
  }
  *any = true;
  take_persistent(run);
  if (const CUresult result = issue_persistent(run); result != CUDA_SUCCESS) {
    count(usage_page_.slot().errors);
    finish_async(*run.caller.ring, {}, result);
    return false;
  }
  return true;
}

// Whether advance() has to look at the launch again soon: its blocks may have to be told to stop, or be about to end.
bool Slicer::is_watched(const Run& run) { return run.control_block && !run.told && !run.stalled && !run.drained; }

bool Slicer::watches_for_stalls() const { return std::any_of(runs_.begin(), runs_.end(), is_watched); }

}  // namespace bandsaw::runner
