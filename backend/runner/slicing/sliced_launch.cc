#include "backend/runner/slicing/sliced_launch.h"

#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kMostGridSlice = 0x7fffffff;

}  // namespace

bool SlicedLaunch::may_issue() const {
  return !turns_ && launch_.next < launch_.blocks && launch_.flight->launches < most_in_flight_;
}

std::optional<LaunchId> SlicedLaunch::next_id() const {
  if (!launch_.shape) return std::nullopt;
  const auto launch = reinterpret_cast<uintptr_t>(launch_.shape.get());
  return identify_grid_slice(launch, std::min(launch_.size, launch_.blocks - launch_.next));
}

CUresult SlicedLaunch::issue() {
  lay_tracks();
  const uint64_t blocks = next_blocks();
  turns_ = may_turn_persistent();
  return put(blocks);
}

// Decides how many grid slices are on the device, and on how many streams (tracks). By the dependency between blocks:
//   none          grid slices run beside each other, each on a track of its own
//   lower blocks  they run one after the other. Until one launch has ended so, nothing is queued behind a grid slice:
//                 the analysis may be wrong
//   any           nothing is queued behind a grid slice, or the blocks that it waits for could not begin
void SlicedLaunch::lay_tracks() {
  if (std::exchange(laid_, true)) return;
  const uint64_t slices = std::min<uint64_t>((launch_.blocks - 1) / launch_.size + 1, kGateDepthMax);
  const bool apart = clone().dependency == ptx::InterBlockDependency::kNone;
  const bool in_order = clone().dependency == ptx::InterBlockDependency::kLowerBlocks;
  most_in_flight_ = apart || (in_order && launch_.kernel->in_order) ? parts_.settings.in_flight : 1;
  launch_.fork(parts_, slices);
  if (launch_.forked && apart) most_tracks_ = std::min(most_in_flight_, static_cast<uint32_t>(slices));
}

// Small grid slices fill the device only together. A runner that takes turns with others often has just one on the
// device, so that one is as large as fills the device alone.
uint64_t SlicedLaunch::next_blocks() {
  const uint64_t blocks = granted_blocks(), wave = launch_.shape ? launch_.shape->wave : 0;
  if (blocks != launch_.size || blocks >= wave || parts_.settings.mps || !parts_.gate.was_granted(kCompute)) {
    return blocks;
  }
  launch_.held_up = true;
  return wave;
}

uint64_t SlicedLaunch::granted_blocks() {
  const GateAnswer answer = parts_.gate.answer(kCompute);
  launch_.paired |= answer.resident != 0;
  if (answer.blocks == 0) return launch_.size;
  launch_.held_up = true;  // its time says nothing of grid slices of its own size
  return std::min(answer.blocks, kMostGridSlice);
}

// When another kernel was planned beside it: persistent blocks keep the pair's ratio of blocks, grid slices do not.
bool SlicedLaunch::may_turn_persistent() const {
  return parts_.settings.variant == VariantChoice::kAuto && launch_.call != 0 && !launch_.kernel->only_grid_slices &&
         parts_.gate.answer(kCompute).resident != 0;
}

std::shared_ptr<const KernelClone> SlicedLaunch::turn() {
  turns_ = false;
  return parts_.variants.find(launch_.kernel, launch_.caller.context, launch_.program, KernelVariant::kPersistent);
}

// A track that is free, or else the one whose turn it is.
StreamRef SlicedLaunch::next_track() {
  if (!launch_.tracks) return launch_.stream;
  for (uint32_t i = 1; i < most_tracks_ && launch_.flight->on_track[track_] != 0; ++i) {
    track_ = (track_ + 1) % most_tracks_;
  }
  if (StreamRef stream = launch_.tracks->at(track_)) return stream;
  track_ = 0;  // without more streams they come one after the other
  most_tracks_ = 1;
  return launch_.stream;
}

CUresult SlicedLaunch::put(uint64_t most) {
  const uint64_t blocks = std::min({most, launch_.blocks - launch_.next, kMostGridSlice});
  const StreamRef stream = next_track();
  clone_launch_.set(clone().first_at, ptx::block_at(launch_.next, launch_.grid()));
  launch_.measure(parts_);
  const CUresult result = parts_.device.launch(stream, clone_launch_.with(blocks));
  if (result != CUDA_SUCCESS) return result;
  launch_.next += blocks;
  launch_.issued(parts_, track_);
  parts_.gate.leave(kCompute, [flight = launch_.flight, track = track_](uint64_t) { flight->land(track); });
  if (most_tracks_ > 1) track_ = (track_ + 1) % most_tracks_;
  return CUDA_SUCCESS;
}

// On another stream: the blocks that are waited for may find room beside those that wait. If they do not, the launch
// hangs, as the kernel itself would.
CUresult SlicedLaunch::issue_rest() {
  turns_ = false;
  track_ = most_tracks_;
  most_tracks_ = 0;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && launch_.next < launch_.blocks) {
    parts_.gate.enter_unasked(kCompute);
    result = put(launch_.blocks);
  }
  return result;
}

void SlicedLaunch::describe(KernelDescriptor* descriptor) const {
  descriptor->variant = static_cast<uint32_t>(KernelVariant::kSliced);
  descriptor->minimum = std::min(launch_.size, launch_.blocks);
  if (launch_.shape) descriptor->most_resident = static_cast<uint32_t>(launch_.shape->wave / parts_.sms);
}

}  // namespace bandsaw::runner
