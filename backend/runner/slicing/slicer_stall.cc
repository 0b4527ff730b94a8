// Of the slicer: launches whose grid slices do not end, because their blocks wait for blocks of later grid slices.
#include <algorithm>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/slicer_run.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// A grid slice takes less time than its kernel. The factor allows for others on the device.
constexpr uint64_t kTimesWhole = 20;
constexpr std::chrono::seconds kStallTimeoutLeast{1};
// Between two checks whether others want the engine that persistent blocks have.
constexpr std::chrono::milliseconds kTick{1};

}  // namespace

std::chrono::nanoseconds Slicer::stall_timeout(const Run& run) const {
  if (settings_.timeout_ns != 0) return std::chrono::nanoseconds(settings_.timeout_ns);
  const std::chrono::nanoseconds whole(run.shape ? run.shape->typical_ns : 0);
  return std::max<std::chrono::nanoseconds>(kStallTimeoutLeast, kTimesWhole * whole);
}

bool Slicer::is_stalled(Run& run) {
  const uint32_t flying = run.flight->launches, landed = run.begun - flying;
  const auto now = Run::Clock::now();
  if (flying == 0 || landed != run.landed) {
    run.landed = landed;
    run.moved = now;
    return false;
  }
  if (run.stalled || now - run.moved < stall_timeout(run)) return false;
  run.moved = now;
  // If they have not begun, they wait for earlier work on the stream, not for blocks of their own grid.
  const bool begun = run.tracks && run.tracks->has_begun();
  return begun && !(run.control_block && claims(run));
}

// Whether persistent blocks have claimed something since the last call, as far as it is known. Asks for the counter
// anew.
bool Slicer::claims(Run& run) {
  constexpr uint32_t kUnknown = ~uint32_t{0};
  const uint32_t claimed = run.peeked ? *static_cast<volatile uint32_t*>(run.control_block->peeked) : kUnknown;
  if (run.peeked == claimed) return false;
  run.peeked = claimed;
  return peek(run, [] {}) == CUDA_SUCCESS;
}

// Copies the counter to the host while blocks claim from it. `done` is called when the copy has ended.
CUresult Slicer::peek(Run& run, std::function<void()> done) {
  return device_.copy(run.control_block->side_stream, run.control_block->counter_to(run.control_block->peeked),
                      [control = run.control_block, done = std::move(done)](CUresult) { done(); });
}

// Issues all blocks that are left on another stream, without asking at the gate: the blocks that are waited for may
// find room beside those that wait. If they do not, the launch hangs, as the kernel itself would.
void Slicer::issue_rest(Run& run) {
  stats_.refused(*run.kernel, "its blocks wait for one another");
  run.kernel->whole = run.held_up = run.stalled = true;
  run.track = run.most_tracks;
  run.most_tracks = 0;
  run.next_clone = nullptr;
  while (run.next < run.total) {
    gate_.enter_unasked(kCompute);
    if (const CUresult result = issue(run, run.total); result != CUDA_SUCCESS) {
      count(usage_page_.slot().errors);
      finish_async(*run.caller.ring, {}, result);
      run.next = run.total;
    }
  }
}

// The same for persistent blocks: more of them are launched on another stream, and claim what is left.
void Slicer::issue_more_persistent(Run& run) {
  stats_.refused(*run.kernel, "its blocks wait for one another");
  run.kernel->whole = run.held_up = run.stalled = true;
  const StreamRef side = run.tracks ? run.tracks->at(1) : nullptr;
  if (!side || allow_claims(run, side) != CUDA_SUCCESS) return;
  run.launch.grid[0] = static_cast<uint32_t>(run.total);
  gate_.enter_unasked(kCompute);
  const CUresult result = device_.launch(side, run.launch);
  gate_.leave(kCompute, [](uint64_t) {});
  if (result != CUDA_SUCCESS) log::warn("more of {}: error {}", run.kernel->name, static_cast<int>(result));
}

std::chrono::nanoseconds Slicer::longest_sleep() const {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  const auto now = Run::Clock::now();
  for (const Run& run : runs_) {
    least = std::min<std::chrono::nanoseconds>(least, run.moved + stall_timeout(run) - now);
    if (!is_watched(run)) continue;
    least = std::min<std::chrono::nanoseconds>(least, kTick);
    if (run.call != 0 && !run.flight->probing) least = std::min<std::chrono::nanoseconds>(least, run.next_probe - now);
  }
  return std::max<std::chrono::nanoseconds>(least, std::chrono::microseconds(1));
}

}  // namespace bandsaw::runner
