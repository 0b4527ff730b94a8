#include "backend/runner/slicing/persistent_launch.h"

#include <algorithm>
#include <utility>

#include "backend/control/gate_link.h"
#include "memory/base/clock.h"
#include "memory/base/log.h"
#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/slice/preemption.h"

namespace bandsaw::runner {
namespace {

// Persistent blocks are not told to stop before they have run for this long.
constexpr std::chrono::milliseconds kGrace{1};
// Without an arbiter nobody says whether others want the engine: they stop after as many blocks, so that what is lost
// while they end is 2 % at most.
constexpr uint64_t kTurnBlocks = 32;
// Between two checks whether others want the engine.
constexpr std::chrono::milliseconds kTick{1};
constexpr std::chrono::microseconds kQuickTick{50};  // where others are to have SMs within a bound
constexpr std::chrono::microseconds kAtOnce{1};      // where that is shorter, and while it is seen to
// Between two probes of the counter.
constexpr std::chrono::microseconds kProbeLeast{100};
constexpr std::chrono::milliseconds kProbeMost{2};
// Tests (force_blocks) stop each launch as often as this.
constexpr int kForcedStops = 3;
// And change as often how many run.
constexpr int kForcedResizes = 4;
// The track of those that are launched beside others.
constexpr size_t kBeside = 1;

}  // namespace

std::unique_ptr<PersistentLaunch> PersistentLaunch::make(SlicingParts* parts, LaunchUnderWay* launch,
                                                         std::shared_ptr<const KernelClone> clone,
                                                         std::string* why_not) {
  std::unique_ptr<PersistentLaunch> made(new PersistentLaunch(parts, launch, std::move(clone)));
  made->most_resident_ = made->clone_launch_.resident(parts->device);
  *why_not = made->why_not();
  if (!why_not->empty()) return nullptr;
  const SlicingSettings& settings = parts->settings;
  if (launch->shape) {
    launch->shape->persistent_tuner.fit(static_cast<int>(made->most_resident_),
                                        settings.variant == VariantChoice::kAuto);
  }
  made->blocks_ = std::min(settings.force_blocks ? settings.force_blocks : made->best(), launch->blocks);
  auto control_block = parts->control_blocks.take(launch->caller.context);
  if (!control_block) {
    *why_not = "there is no memory for its counter";
    return nullptr;
  }
  if (made->clone().redo_at != 0 && !parts->control_blocks.add_redo_list(launch->caller.context, control_block.get())) {
    *why_not = "there is no memory for its list of dropped blocks";
    return nullptr;
  }
  if (made->clone().limit_at != 0 &&
      !parts->control_blocks.add_sm_counters(launch->caller.context, control_block.get())) {
    *why_not = "there is no memory for its counters by SM";
    return nullptr;
  }
  if (made->clone().places_at != 0 && !parts->control_blocks.add_places(launch->caller.context, control_block.get())) {
    *why_not = "there is no memory for its blocks' places";
    return nullptr;
  }
  made->counter_.emplace(&parts->device, std::move(control_block));
  if (made->clone().places_at != 0 && settings.take_ns)
    made->taking_.emplace(&*made->counter_, launch, *settings.take_ns, made->clone().redo_at != 0);
  made->counter_->put_into(&made->clone_launch_, static_cast<uint32_t>(launch->blocks));
  return made;
}

std::string PersistentLaunch::why_not() const {
  const auto& block = launch_.program.block;
  if (launch_.blocks > ptx::kMaxPersistentBlocks) return "its grid is too large for persistent blocks";
  if (clone().whole_warps && block[0] % 32 != 0 && (block[1] != 1 || block[2] != 1)) {
    return "rows of its blocks are not whole warps";
  }
  if (most_resident_ == 0) return "none of its blocks would be resident";
  // Fewer are resident than the program may count on.
  const bool fits = launch_.blocks <= most_resident_ * parts_.sms;
  if (clone().dependency == ptx::InterBlockDependency::kAny ||
      (clone().dependency == ptx::InterBlockDependency::kLowerBlocks && fits)) {
    return "its blocks may wait for one another";
  }
  return "";
}

void PersistentLaunch::give_back() { counter_->give_back(&parts_.control_blocks); }

// How many persistent blocks are best for the kernel alone: fewer than fit may be as fast
// (vgpu-sched/slice/persistent_tuner.h). Not searched for where others run beside it and would hide the difference.
uint64_t PersistentLaunch::best() const {
  const bool alone = !parts_.settings.mps || parts_.gate.is_planned(kCompute);
  const int best = launch_.shape && alone ? launch_.shape->persistent_tuner.next() : slice::PersistentTuner::kSliced;
  launch_.tuned_blocks.reset();
  if (best == slice::PersistentTuner::kSliced) return most_resident_ * parts_.sms;
  launch_.tuned_blocks = best;
  return static_cast<uint64_t>(best) * parts_.sms;
}

// Takes over how many persistent blocks were granted.
void PersistentLaunch::take_plan() {
  const GateAnswer answer = parts_.gate.answer(kCompute);
  granted_ = answer.planned;
  resident_ = answer.resident;
  if (!answer.planned || (answer.resident == 0 && parts_.settings.force_blocks != 0)) return;
  const uint64_t wanted = answer.resident == 0 ? best() : uint64_t{answer.resident} * parts_.sms;
  launch_.paired |= answer.resident != 0;
  blocks_ = std::clamp<uint64_t>(std::min(wanted, most_resident_ * parts_.sms), 1, launch_.blocks);
}

// The plan wants another number of persistent blocks than run, or they were launched before there was a plan. Those of
// the latter that can leave single SMs go on until the plan has others.
bool PersistentLaunch::is_replanned() const {
  if (!parts_.gate.is_planned(kCompute)) return false;
  const uint32_t resident = parts_.gate.planned_resident(kCompute);
  if (!granted_) return !taking_ || resident == kNoResident;
  return resident != resident_;
}

bool PersistentLaunch::may_issue() const {
  if (taking_ && taking_->is_under_way()) return false;
  return launch_.flight->launches == 0 && launch_.next < launch_.blocks;
}

CUresult PersistentLaunch::issue() {
  if (launch_.call != 0) take_plan();
  const bool limited = clone().limit_at != 0, beside = limited || taking_;
  if (!beside) launch_.fork(parts_, (launch_.blocks - 1) / blocks_ + 1);
  const auto next = static_cast<uint32_t>(launch_.next);
  CUresult result = claiming_ ? counter_->go_on(launch_.stream, &clone_launch_) : counter_->begin(launch_.stream, next);
  if (result == CUDA_SUCCESS && limited) {
    limit_ = rows();
    result = counter_->limit_next(launch_.stream, limit_);
  }
  if (result == CUDA_SUCCESS && taking_) {
    clone_launch_.set(clone().first_place_at, uint32_t{0});
    result = taking_->begin(blocks_);
  }
  // Those that are launched beside them find the counters as they begin.
  if (result == CUDA_SUCCESS && beside) launch_.fork(parts_, 2);
  if (result != CUDA_SUCCESS) return result;
  claiming_ = true;
  launch_.measure(parts_);
  result = parts_.device.launch(launch_.stream, clone_launch_.with(blocks_));
  if (result != CUDA_SUCCESS) return result;
  launch_.issued(parts_, 0);
  issued_ = parts_.clock.now();
  told_ = probed_ = false;
  next_probe_ = issued_ + kProbeMost;
  parts_.gate.leave(kCompute, [](uint64_t) {});
  if (counter_->read_at_end(launch_.stream, launch_.flight) !=
      CUDA_SUCCESS) {  // nothing will tell of its end, so it is not told to stop either
    launch_.flight->failed = true;
    launch_.flight->land(0);
  }
  if (parts_.settings.force_blocks != 0 && stops_ < kForcedStops && !launch_.stalled && !drops() && !beside)
    tell_to_stop();
  return CUDA_SUCCESS;
}

// Blocks on each SM, if the device lays them evenly.
uint32_t PersistentLaunch::rows() const { return static_cast<uint32_t>((blocks_ - 1) / parts_.sms + 1); }

// What was launched has begun, so that nothing resets what is written beside it from now on.
bool PersistentLaunch::has_begun() const { return launch_.forked && launch_.tracks->has_begun(); }

bool PersistentLaunch::is_resizable() const { return clone().limit_at != 0 && has_begun(); }

// Tests (force_blocks) take one SM, and give it back, as often as they change how many run.
uint32_t PersistentLaunch::wanted_sms() const {
  if (parts_.settings.force_blocks != 0) return taking_->taken() == 0 && gives_ < kForcedResizes ? 1 : 0;
  return parts_.gate.is_planned(kCompute) ? parts_.gate.wanted_sms(kCompute) : 0;
}

// Chimera's algorithm for several SMs. What is given back is launched beside those that run; while such run still, or
// where places are used up, all stop and are launched again.
void PersistentLaunch::leave_sms() {
  if (!taking_ || !has_begun()) return;
  const uint32_t wanted = wanted_sms();
  taking_->look(wanted, launch_.shape ? launch_.shape->block_ns() : 0);
  uint32_t first = 0;
  const uint64_t blocks = taking_->give_back(wanted, &first);
  if (blocks == 0) return;
  ++gives_;
  if (first == ptx::kBlockPlaces || launch_.flight->on_track[kBeside] != 0) return tell_to_stop();
  clone_launch_.set(clone().first_place_at, first);
  add_beside(blocks);
}

// Makes them as many as the plan wants. False: that takes a stop and another launch.
bool PersistentLaunch::follows_plan() {
  if (!granted_ || clone().limit_at == 0 || !launch_.forked) return false;
  const uint32_t wanted = parts_.gate.planned_resident(kCompute);
  if (wanted == kNoResident) return false;
  if (!is_resizable()) return true;  // it is looked at again
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(most_resident_, kNoResident - 1));
  resident_ = wanted;
  launch_.paired = true;  // its time is that of no number
  resize(wanted == 0 ? most : std::min(wanted, most));
  return true;
}

// Bashizade's: who is above the limit leaves at the end of its block; where it grows, more are launched beside them.
void PersistentLaunch::resize(uint32_t limit) {
  const uint32_t before = std::exchange(limit_, limit);
  if (limit == before) return;
  ++resizes_;
  const CUresult result = counter_->limit(limit);
  if (result != CUDA_SUCCESS) {
    return log::warn("limiting {}: error {}", launch_.kernel->name, static_cast<int>(result));
  }
  log::debug("{}: {} persistent blocks on an SM, before {}", launch_.kernel->name, limit, before);
  if (limit > before) add_beside(uint64_t{limit - before} * parts_.sms);
}

void PersistentLaunch::add_beside(uint64_t blocks) {
  const StreamRef side = launch_.tracks->at(kBeside);
  if (!side) return;
  parts_.gate.enter_unasked(kCompute);
  const CUresult result = parts_.device.launch(side, clone_launch_.with(std::min(blocks, launch_.blocks)));
  if (result == CUDA_SUCCESS) launch_.issued(parts_, kBeside);
  parts_.gate.leave(kCompute, [](uint64_t) {});
  if (result != CUDA_SUCCESS) {
    return log::warn("more of {}: error {}", launch_.kernel->name, static_cast<int>(result));
  }
  if (counter_->read_at_end(side, launch_.flight, kBeside) != CUDA_SUCCESS) {
    launch_.flight->failed = true;
    launch_.flight->land(kBeside);
  }
}

// Chimera's choice between draining and flushing, with the whole bound for a block of which nobody knows how far it is.
bool PersistentLaunch::drops() const {
  if (clone().redo_at == 0 || !parts_.settings.drop_ns || 2 * blocks_ > ControlBlock::kRedoPlaces) return false;
  const double block_ns = launch_.shape ? static_cast<double>(launch_.shape->block_ns()) : 0;
  const std::vector<slice::RunningBlock> blocks{{.executed = 0, .flushable = true}};
  constexpr auto kAllowed =
      static_cast<slice::Preemptions>(only(slice::Preemption::kDrain) | only(slice::Preemption::kFlush));
  const auto chosen = slice::choose_preemptions({.block_work = block_ns, .ns_per_work = 1}, {&blocks, 1},
                                                static_cast<double>(*parts_.settings.drop_ns), 1, kAllowed);
  return chosen[0].blocks[0] == slice::Preemption::kFlush;
}

// Where blocks are dropped, tests stop them in their middle.
bool PersistentLaunch::is_test_stop(Clock::Point now) const {
  return parts_.settings.force_blocks != 0 && stops_ < kForcedStops && drops() && now - issued_ >= kTick;
}

void PersistentLaunch::tell_to_stop() {
  told_ = launch_.held_up = true;
  ++stops_;
  const bool drop = drops();
  const CUresult result = counter_->tell_to_stop(drop);
  if (result != CUDA_SUCCESS) log::warn("telling {} to stop: error {}", launch_.kernel->name, static_cast<int>(result));
}

// How long they run before they are told to stop, where no arbiter says when. Without MPS: for ever.
std::chrono::nanoseconds PersistentLaunch::longest_run() const {
  if (!parts_.settings.mps || parts_.gate.is_governed()) return std::chrono::nanoseconds::max();
  const LaunchShape* shape = launch_.shape.get();
  const uint64_t block_ns = shape ? shape->typical_ns * std::min(blocks_, shape->blocks) / shape->blocks : 0;
  return std::chrono::nanoseconds(kTurnBlocks * block_ns);
}

void PersistentLaunch::look() {
  if (launch_.flight->launches == 0) {
    // Where the counter is nonsense, the launch ends early, or never, as it could by itself.
    if (claiming_) {
      const uint64_t claimed = std::min(counter_->claimed(), launch_.blocks);
      launch_.next = claimed - std::min<uint64_t>(claimed, counter_->dropped());
      if (told_)
        log::debug("{}: stopped at block {} of {}, {} of {} persistent blocks dropped theirs", launch_.kernel->name,
                   claimed, launch_.blocks, counter_->dropped(), blocks_);
    }
    if (launch_.flight->failed) launch_.next = launch_.blocks;
    return;
  }
  const Clock::Point now = parts_.clock.now();
  watch_end(now);
  if (is_watched()) leave_sms();
  if (is_watched() && is_test_stop(now)) return tell_to_stop();
  if (!is_watched() || now - issued_ < kGrace) return;
  if (parts_.settings.force_blocks != 0 && resizes_ < kForcedResizes && is_resizable()) resize(limit_ == 1 ? 2 : 1);
  const bool replanned = is_replanned() && !follows_plan();
  if (parts_.gate.is_wanted(kCompute) || replanned || now - issued_ >= longest_run()) tell_to_stop();
}

std::chrono::nanoseconds PersistentLaunch::look_again(Clock::Point now) const {
  if (!is_watched()) return std::chrono::nanoseconds::max();
  if (taking_ && (taking_->is_under_way() || std::chrono::nanoseconds(*parts_.settings.take_ns) < kQuickTick))
    return kAtOnce;
  const std::chrono::nanoseconds tick = parts_.settings.take_ns || parts_.settings.drop_ns ? kQuickTick : kTick;
  if (launch_.call == 0 || launch_.flight->probing) return tick;
  return std::min<std::chrono::nanoseconds>(tick, next_probe_ - now);
}

// Where the arbiter plans, it is told when the last block has been claimed. The counter is probed at ever shorter
// intervals as the end comes near.
void PersistentLaunch::watch_end(Clock::Point now) {
  if (drained_ || launch_.call == 0 || launch_.flight->probing || !parts_.gate.is_planned(kCompute)) return;
  if (std::exchange(probed_, false)) return take_probe(now);
  if (now < next_probe_) return;
  launch_.flight->probing = probed_ = true;
  const CUresult result = counter_->peek([flight = launch_.flight] {
    flight->seen_ns = monotonic_ns();
    flight->probing = false;
    flight->notify();
  });
  if (result != CUDA_SUCCESS) launch_.flight->probing = probed_ = false;
}

void PersistentLaunch::take_probe(Clock::Point now) {
  const uint64_t claimed = counter_->peeked();
  drained_ = claimed >= launch_.blocks && counter_->dropped() == 0;
  if (drained_) return parts_.describer.withdraw(launch_);
  // How far they are while others are planned beside them: the arbiter measures the pair's speed by that.
  if (!told_ && resident_ != 0) parts_.describer.report(launch_, *this, claimed, resident_);
  const auto each = (now - issued_) / std::max<uint64_t>(1, claimed - std::min(claimed, launch_.next));
  next_probe_ =
      now + std::clamp<std::chrono::nanoseconds>(each * (launch_.blocks - claimed) / 2, kProbeLeast, kProbeMost);
}

bool PersistentLaunch::goes_on() {
  constexpr uint32_t kUnknown = ~uint32_t{0};
  const uint32_t claimed = peeked_ ? counter_->peeked() : kUnknown;
  if (peeked_ == claimed) return false;
  peeked_ = claimed;
  return counter_->peek([] {}) == CUDA_SUCCESS;
}

// More of them are launched on another stream, and claim what is left.
CUresult PersistentLaunch::issue_rest() {
  const StreamRef side = launch_.tracks ? launch_.tracks->at(1) : nullptr;
  if (!side || counter_->allow(side) != CUDA_SUCCESS) return CUDA_SUCCESS;
  if (clone().limit_at != 0) (void)counter_->limit_next(side, kNoResident);
  if (taking_) (void)counter_->clear_places(side);
  parts_.gate.enter_unasked(kCompute);
  const CUresult result = parts_.device.launch(side, clone_launch_.with(launch_.blocks));
  parts_.gate.leave(kCompute, [](uint64_t) {});
  if (result != CUDA_SUCCESS) log::warn("more of {}: error {}", launch_.kernel->name, static_cast<int>(result));
  return CUDA_SUCCESS;
}

void PersistentLaunch::describe(KernelDescriptor* descriptor) const {
  descriptor->variant = static_cast<uint32_t>(KernelVariant::kPersistent);
  descriptor->minimum = std::min(uint64_t{parts_.sms}, launch_.blocks);
  descriptor->leaves_sms = taking_ ? 1 : 0;
  if (!launch_.shape) return;
  const slice::PersistentTuner& tuner = launch_.shape->persistent_tuner;
  descriptor->most_resident = static_cast<uint32_t>(most_resident_);
  if (!tuner.searches()) descriptor->best = static_cast<uint32_t>(tuner.next());
}

bool PersistentLaunch::is_comparable() const {
  return parts_.settings.variant == VariantChoice::kPersistent &&
         (!launch_.tuned_blocks || *launch_.tuned_blocks == static_cast<int>(most_resident_));
}

}  // namespace bandsaw::runner
