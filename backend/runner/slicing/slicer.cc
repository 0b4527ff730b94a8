#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/slicer_run.h"
#include "memory/base/eventfd.h"
#include "memory/base/log.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::runner {
namespace {

constexpr size_t kShapesMost = 64;
// Of a shape's whole launches, numbers 1, 2, 4, 8 and so on are measured, and each one whose number this divides.
constexpr uint64_t kMeasureEvery = 1024;

vgpu_device_info info_of(Device& device) {
  vgpu_device_info info{};
  device.info(&info);
  return info;
}

uint32_t capability(const vgpu_device_info& info) {
  return static_cast<uint32_t>(10 * info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
                               info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]);
}

uint64_t blocks_of(const Launch& launch) {
  uint64_t blocks = 0;
  const bool too_many =
      __builtin_mul_overflow(uint64_t{launch.grid[0]} * launch.grid[1], uint64_t{launch.grid[2]}, &blocks);
  return too_many ? 0 : blocks;
}

// CUDA's limits. A larger grid goes to the device as it is, which refuses it.
bool is_valid_grid(const Launch& launch) {
  constexpr uint32_t kMostX = 0x7fffffff, kMostYZ = 0xffff;
  return launch.grid[0] <= kMostX && launch.grid[1] <= kMostYZ && launch.grid[2] <= kMostYZ;
}

}  // namespace

void Slicer::Flight::land(size_t track) {
  --on_track[track];
  --launches;
  notify();
}

void Slicer::Flight::notify() const {
  if (!signal_event(wake->get())) log::warn("cannot tell of the end of a launch: {}", std::strerror(errno));
}

Slicer::Slicer(Device* device, GateView* gate, UsagePageView* usage_page, StreamOrder* order,
               const SlicingSettings& settings)
    : device_(*device),
      gate_(*gate),
      usage_page_(*usage_page),
      order_(*order),
      settings_(settings),
      stats_(usage_page),
      info_(info_of(*device)),
      sms_(static_cast<uint32_t>(std::max(1, info_.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]))),
      cloner_(device, settings.any_gpu ? 0 : capability(info_)),
      kernels_(&cloner_, settings.enabled),
      wake_(std::make_shared<UniqueFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))),
      timer_(device),
      control_blocks_(device),
      tracks_(device),
      variants_(device, &cloner_, settings_, &stats_) {}

Slicer::~Slicer() = default;

void Slicer::forget_context(const Context* context) {
  tracks_.forget(context);
  kernels_.forget_context(context);
}

// Under variant `auto` and where the arbiter plans: persistent blocks, unless the last launch was planned alone and
// grid slices are faster for the kernel. Else grid slices.
KernelVariant Slicer::wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const {
  if (settings_.variant == VariantChoice::kPersistent) return KernelVariant::kPersistent;
  if (settings_.variant == VariantChoice::kSliced || kernel.only_grid_slices) return KernelVariant::kSliced;
  const bool stays = !shape || shape->paired || shape->persistent_tuner.next() != slice::PersistentTuner::kSliced;
  return stays && gate_.is_planned(kCompute) ? KernelVariant::kPersistent : KernelVariant::kSliced;
}

bool Slicer::holds(const CommandRing& ring) const {
  return std::any_of(runs_.begin(), runs_.end(), [&](const Run& run) { return run.caller.ring.get() == &ring; });
}

// Where all others go first, what they wait for is the end of a block.
bool Slicer::is_long(const LaunchShape& shape) const {
  return shape.block_ns() >= gate_.uncut_block_ns() && shape.typical_ns >= settings_.threshold_ns &&
         shape.size.blocks() < shape.blocks && !shape.size.hopeless();
}

// Null: the grid fits on the device at once, so that there is nothing to cut.
std::shared_ptr<LaunchShape> Slicer::shape_of(KnownKernel& kernel, const Launch& launch) {
  const uint64_t blocks = blocks_of(launch);
  if (blocks <= sms_) return nullptr;
  auto shape = kernel.find_shape(launch);
  if (!shape) {
    if (kernel.shapes.size() >= kShapesMost) kernel.shapes.erase(kernel.shapes.begin());
    uint32_t resident = 0;
    const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    if (threads <= 1024) {
      device_.occupancy(launch.code, static_cast<uint32_t>(threads), launch.shared_bytes, &resident);
    }
    shape = std::make_shared<LaunchShape>(launch, blocks, uint64_t{std::max(resident, 1u)} * sms_, sms_);
    kernel.shapes.push_back(shape);
  }
  return shape->blocks > shape->wave ? shape : nullptr;
}

// Why this launch may not be cut; empty: it may.
std::string Slicer::refusal(const Caller& caller, const StreamRef& stream, const Launch& launch) {
  const auto any = [](const uint32_t(&size)[3]) { return size[0] > 1 || size[1] > 1 || size[2] > 1; };
  if (launch.cooperative) return "it is launched cooperatively";
  if (any(launch.cluster) || any(launch.preferred_cluster)) return "it is launched in clusters";
  if (launch.programmatic) return "it is launched before the work ahead of it has ended";
  if (!caller.context) return "it is launched without a current context";
  CaptureInfo info;
  if (caller.may_capture &&
      (device_.capture_info(stream, &info) != CUDA_SUCCESS || info.status != CU_STREAM_CAPTURE_STATUS_NONE)) {
    return "it is launched into a graph";
  }
  return "";
}

CUresult Slicer::launch(const Caller& caller, const StreamRef& stream, const Launch& launch) {
  if (!settings_.enabled) return device_.launch(stream, launch);
  const KnownKernelRef kernel = kernels_.find(launch.code);
  if (!kernel || kernel->whole || gate_.is_slicing_off() || !is_valid_grid(launch)) {
    return device_.launch(stream, launch);
  }
  std::shared_ptr<LaunchShape> shape;
  if (settings_.force_blocks == 0) {
    timer_.probe();
    shape = shape_of(*kernel, launch);
    if (!shape) return device_.launch(stream, launch);
    ++shape->launches;
    if (shape->size.hopeless()) stats_.refused(*kernel, "its rewritten variant is slower");
    if (!is_long(*shape)) return launch_whole(caller, stream, launch, shape);
  }
  if (const std::string reason = refusal(caller, stream, launch); !reason.empty()) {
    stats_.refused(*kernel, reason);
    return device_.launch(stream, launch);
  }
  auto clone = variants_.find(kernel, caller.context, launch, wanted_variant(*kernel, shape.get()));
  if (!clone && settings_.variant == VariantChoice::kAuto)
    clone = variants_.find(kernel, caller.context, launch, KernelVariant::kSliced);
  if (!clone) return launch_whole(caller, stream, launch, shape);
  return begin(caller, stream, launch, kernel, shape, clone);
}

CUresult Slicer::launch_whole(const Caller& caller, const StreamRef& stream, const Launch& launch,
                              const std::shared_ptr<LaunchShape>& shape) {
  const uint64_t number = shape ? shape->launches : 0;
  const bool due = shape && (shape->size.wants_whole() || (number & (number - 1)) == 0 || number % kMeasureEvery == 0);
  StreamTimer::Span span;
  if (!due || !refusal(caller, stream, launch).empty() || !timer_.begin(caller.context, stream, &span)) {
    return device_.launch(stream, launch);
  }
  const CUresult result = device_.launch(stream, launch);
  timer_.end(caller.context, stream, span, [shape](uint64_t nanoseconds) { shape->learn_whole(nanoseconds); });
  return result;
}

CUresult Slicer::begin(const Caller& caller, const StreamRef& stream, const Launch& launch,
                       const KnownKernelRef& kernel, const std::shared_ptr<LaunchShape>& shape,
                       const std::shared_ptr<const KernelClone>& clone) {
  if (launch.parameters.size() < clone->original_bytes) return device_.launch(stream, launch);  // the device refuses it
  Run& run = runs_.emplace_back();
  run.caller = caller;
  run.stream = stream;
  run.kernel = kernel;
  run.shape = shape;
  run.code = launch.code;
  run.total = blocks_of(launch);
  if (shape && !clone->persistent) {
    shape->size.run_beside(settings_.in_flight, clone->dependency == ptx::InterBlockDependency::kNone);
  }
  run.size = shape ? shape->size.blocks() : settings_.force_blocks;
  if (settings_.variant == VariantChoice::kAuto && gate_.is_planned(kCompute))
    run.tuned_blocks = slice::PersistentTuner::kSliced;
  run.step = run.size;
  run.launch = launch;
  std::copy_n(launch.grid, 3, run.grid.begin());
  run.launch.grid[1] = run.launch.grid[2] = 1;
  use_clone(run, clone);
  run.flight = std::make_shared<Flight>();
  run.flight->wake = wake_;
  begin_counted(run, launch);
  if (run.clone->persistent) {
    if (const std::string reason = prepare_persistent(run); !reason.empty()) {
      if (!variants_.turns_to_grid_slices(*kernel)) stats_.refused(*kernel, reason);
      runs_.pop_back();
      return device_.launch(stream, launch);
    }
  }
  run.alone = shape && settings_.variant == VariantChoice::kAuto && gate_.is_planned(kCompute) && shape->wants_alone();
  lay_tracks(run);
  const CUresult refused = waits_for_plan(run) ? CUDA_SUCCESS
                           : run.control_block ? issue_persistent(run)
                                               : issue(run, next_blocks(run));
  if (refused != CUDA_SUCCESS) {
    finish(run);
    runs_.pop_back();
    const CUresult result = device_.launch(stream, launch);
    if (result == CUDA_SUCCESS) {  // else it is no launch at all
      count(stats_.counters().fallbacks);
      stats_.refused(*kernel, "the device launches it, but not its rewritten variant");
      kernel->whole = true;
    }
    return result;
  }
  kernel->cut = true;
  count(stats_.counters().launches);
  if (run.next < run.total) {
    order_.add(caller.stream_key);
  } else {
    finish(run);
    runs_.pop_back();
  }
  return CUDA_SUCCESS;
}

// A clone's parameters begin with the program's own. run.launch has those, from the program or from another clone.
void Slicer::use_clone(Run& run, const std::shared_ptr<const KernelClone>& clone) {
  std::vector<std::byte> parameters = clone->parameters;
  std::memcpy(parameters.data(), run.launch.parameters.data(), clone->original_bytes);
  std::memcpy(parameters.data() + clone->grid_at, run.grid.data(), sizeof run.grid);
  if (clone->counts_at != 0) {
    const uint64_t counts = run.counts->address + ControlBlock::kCountsAt;
    std::memcpy(parameters.data() + clone->counts_at, &counts, sizeof counts);
  }
  run.clone = clone;
  run.parameters = std::move(parameters);
  run.launch.parameters = run.parameters;
  run.launch.code = {nullptr, clone->function};
}

// Decides how many grid slices are on the device, and on how many streams (tracks). By the dependency between blocks:
//   none          grid slices run beside each other, each on a track of its own
//   lower blocks  they run one after the other. Until one launch has ended so, nothing is queued behind a grid slice:
//                 the analysis may be wrong
//   any           nothing is queued behind a grid slice, or the blocks that it waits for could not begin
void Slicer::lay_tracks(Run& run) {
  run.moved = Run::Clock::now();
  const uint32_t slices = static_cast<uint32_t>(std::min<uint64_t>((run.total - 1) / run.step + 1, kGateDepthMax));
  const bool apart = run.clone->dependency == ptx::InterBlockDependency::kNone;
  const bool in_order = run.clone->dependency == ptx::InterBlockDependency::kLowerBlocks;
  run.most_in_flight = apart || (in_order && run.kernel->in_order) ? settings_.in_flight : 1;
  if (run.control_block) run.most_in_flight = 1;
  if (slices == 1) return;
  run.tracks = tracks_.take(run.caller.context, run.stream);
  const bool forked = run.tracks->fork(run.stream) == CUDA_SUCCESS;
  if (forked && apart && !run.control_block) run.most_tracks = std::min(run.most_in_flight, slices);
}

// Blocks of the next grid slice. Small grid slices fill the device only together. A runner that takes turns with others
// often has just one on the device, so that one is as large as fills the device alone.
uint64_t Slicer::next_blocks(Run& run) const {
  const uint64_t blocks = granted_blocks(run), wave = run.shape ? run.shape->wave : 0;
  if (blocks != run.step || blocks >= wave || settings_.mps || !gate_.was_granted(kCompute)) return blocks;
  run.held_up = true;
  return wave;
}

// Begins to measure at the first grid slice: what the launch waited for before that is not its own time.
void Slicer::measure(Run& run) {
  if (run.shape && run.begun == 0) timer_.begin(run.caller.context, run.stream, &run.span);
}

// Puts the next grid slice on a track; the gate's time slice ends with it.
CUresult Slicer::issue(Run& run, uint64_t most) {
  if (run.next_clone) return issue_counted(run, most);
  const uint64_t blocks = std::min({most, run.total - run.next, uint64_t{0x7fffffff}});
  run.launch.grid[0] = static_cast<uint32_t>(blocks);
  for (uint32_t i = 1; i < run.most_tracks && run.flight->on_track[run.track] != 0; ++i) {
    run.track = (run.track + 1) % run.most_tracks;
  }
  StreamRef stream = run.tracks ? run.tracks->at(run.track) : run.stream;
  if (!stream) {  // without more streams they come one after the other
    stream = run.stream;
    run.track = 0;
    run.most_tracks = 1;
  }
  const auto first = ptx::block_at(run.next, run.grid);
  std::memcpy(run.parameters.data() + run.clone->first_at, first.data(), sizeof first);
  measure(run);
  const CUresult result = device_.launch(stream, run.launch);
  if (result != CUDA_SUCCESS) return result;
  run.next += blocks;
  note_issued(run, run.track);
  gate_.leave(kCompute, [flight = run.flight, track = run.track](uint64_t) { flight->land(track); });
  if (run.most_tracks > 1) run.track = (run.track + 1) % run.most_tracks;
  return CUDA_SUCCESS;
}

void Slicer::note_issued(Run& run, size_t track) {
  count(stats_.counters().grid_slices);
  ++run.begun;
  ++run.flight->launches;
  ++run.flight->on_track[track];
}

// Call when no more of the launch will be issued.
void Slicer::finish(Run& run) {
  withdraw(run);
  if (!run.stalled && run.begun > 1) run.kernel->in_order = true;
  if (run.flight->launches == 0 && !run.flight->failed && !run.stalled) {
    if (run.control_block) control_blocks_.give(std::move(run.control_block));
    if (run.counts) control_blocks_.give(std::move(run.counts));
  }
  if (run.tracks) {
    if (const CUresult result = run.tracks->join(); result != CUDA_SUCCESS) {
      count(usage_page_.slot().errors);
      finish_async(*run.caller.ring, {}, result);
    }
  }
  log::debug("{}: {} blocks in {} {}, {}", run.kernel->name, run.total, run.begun,
             run.clone->persistent ? "launches of persistent blocks" : "grid slices",
             run.paired ? "others beside it" : "alone");
  if (run.shape) learn(run);
}

void Slicer::learn(Run& run) {
  if (run.call != 0) run.shape->paired = run.paired;
  // Grid slices that are planned alone always wait for their grants: that wait is part of their time.
  const bool waited = run.held_up && run.tuned_blocks != slice::PersistentTuner::kSliced;
  if (run.paired || waited || run.counted) run.tuned_blocks.reset();
  const bool all_resident = !run.tuned_blocks || *run.tuned_blocks == static_cast<int>(run.most_resident);
  const bool comparable = !run.control_block || (settings_.variant == VariantChoice::kPersistent && all_resident);
  const bool usual = !run.held_up && !run.paired && comparable;
  timer_.end(run.caller.context, run.stream, std::move(run.span),
             [shape = run.shape, size = usual ? run.size : 0, blocks = run.tuned_blocks](uint64_t nanoseconds) {
               shape->learn_cut(size, blocks, nanoseconds);
             });
}

bool Slicer::moved() const {
  return !at_gate_ && std::any_of(runs_.begin(), runs_.end(),
                                  [&](const Run& run) { return run.flight->launches < run.most_in_flight; });
}

bool Slicer::advance(bool failed) {
  at_gate_ = false;
  if (runs_.empty()) return false;
  if (failed) {
    for (const Run& run : runs_) order_.remove(run.caller.stream_key);
    runs_.clear();
    return true;
  }
  bool any = false;
  for (auto run = runs_.begin(); run != runs_.end() && !at_gate_;) {
    if (is_stalled(*run)) run->control_block ? issue_more_persistent(*run) : issue_rest(*run);
    if (run->turns && run->flight->launches == 0) change_variant(*run);
    if (run->control_block && !advance_persistent(*run, &any)) run->next = run->total;
    while (!run->control_block && !run->turns && run->next < run->total &&
           run->flight->launches < run->most_in_flight) {
      describe(*run);
      if (!gate_.enter_alone(kCompute)) {
        at_gate_ = true;
        run->held_up |= gate_.kept_out();
        break;
      }
      any = true;
      const uint64_t blocks = next_blocks(*run);
      run->turns = may_turn_persistent(*run);
      if (const CUresult result = issue(*run, blocks); result != CUDA_SUCCESS) {
        count(usage_page_.slot().errors);
        finish_async(*run->caller.ring, {}, result);
        run->next = run->total;
      }
    }
    if (run->next < run->total) {
      ++run;
      continue;
    }
    finish(*run);
    order_.remove(run->caller.stream_key);
    run = runs_.erase(run);
  }
  return any;
}

}  // namespace bandsaw::runner
