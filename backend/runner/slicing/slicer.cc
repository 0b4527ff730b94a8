#include "backend/runner/slicing/slicer.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>

namespace bandsaw::runner {
namespace {

// Of a shape's whole launches, numbers 1, 2, 4, 8 and so on are measured, and each one whose number this divides.
constexpr uint64_t kMeasureEvery = 1024;

vgpu_device_info info_of(Device& device) {
  vgpu_device_info info{};
  device.info(&info);
  return info;
}

uint32_t capability_of(Device& device) {
  const vgpu_device_info info = info_of(device);
  return static_cast<uint32_t>(10 * info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
                               info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]);
}

uint32_t sms_of(Device& device) {
  return static_cast<uint32_t>(std::max(1, info_of(device).attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]));
}

}  // namespace

Slicer::Slicer(Device* device, GateView* gate, UsagePageView* usage_page, StreamOrder* order,
               const SlicingSettings& settings, const Clock* clock)
    : settings_(settings),
      order_(*order),
      stats_(usage_page),
      cloner_(device, settings.any_gpu ? 0 : capability_of(*device)),
      kernels_(&cloner_, [enabled = settings.enabled, usage_page] { return enabled || usage_page->swaps(); }),
      timer_(device, clock),
      control_blocks_(device),
      tracks_(device),
      describer_(gate, &settings_),
      variants_(device, &cloner_, settings_, &stats_, &allocations_),
      parts_{*device,         *gate,           settings_,
             *clock,          sms_of(*device), stats_,
             variants_,       describer_,      timer_,
             control_blocks_, tracks_,         std::make_shared<UniqueFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))},
      chooser_(&kernels_, &parts_) {}

// With a context its memory goes; what others have is then not known either.
void Slicer::forget_context(const Context* context) {
  allocations_.clear();
  tracks_.forget(context);
  kernels_.forget_context(context);
}

bool Slicer::holds(const CommandRing& ring) const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const auto& launch) { return launch->caller().ring.get() == &ring; });
}

PreparedLaunch Slicer::prepare(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch) {
  PreparedLaunch prepared;
  timer_.probe();
  const LaunchChoice choice = chooser_.choose(caller, stream, launch);
  prepared.shape = choice.shape;
  if (choice.clone) prepared.cut = CutLaunch::make(&parts_, caller, stream, launch, choice);
  if (!prepared.cut && !busy() && parts_.gate.is_planned(kCompute)) {
    if (const KnownKernelRef kernel = kernels_.find(launch.code))
      describer_.describe_whole(parts_.device, *kernel, launch);
  }
  return prepared;
}

// The first grid slice asks at once, unless those of a launch before it wait at the gate.
CUresult Slicer::launch(PreparedLaunch prepared, const LaunchCaller& caller, const StreamRef& stream,
                        const Launch& launch) {
  const bool copied = copied_.erase(caller.stream_key) != 0;
  if (prepared.shape) ++prepared.shape->launches;
  if (!prepared.cut) return launch_whole(caller, stream, launch, prepared.shape);
  order_.add(caller.stream_key);
  under_way_.push_back(std::move(prepared.cut));
  auto last = std::prev(under_way_.end());
  if (copied) (*last)->await_copies();
  if (may_enter(**last)) advance_one(&last);
  return CUDA_SUCCESS;
}

CUresult Slicer::launch_whole(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch,
                              const std::shared_ptr<LaunchShape>& shape) {
  const uint64_t number = shape ? shape->launches : 0;
  const bool due = shape && (shape->size.wants_whole() || (number & (number - 1)) == 0 || number % kMeasureEvery == 0);
  StreamTimer::Span span;
  if (!due || !chooser_.refusal(caller, stream, launch).empty() || !timer_.begin(caller.context, stream, &span)) {
    return parts_.device.launch(stream, launch);
  }
  const CUresult result = parts_.device.launch(stream, launch);
  timer_.end(caller.context, stream, std::move(span),
             [shape](uint64_t nanoseconds) { shape->learn_whole(nanoseconds); });
  return result;
}

bool Slicer::advance(bool failed) {
  at_gate_ = false;
  bool any = false;
  for (auto at = under_way_.begin(); at != under_way_.end();) {
    if (failed) {
      at = drop(at);
      any = true;
    } else if (may_enter(**at)) {
      any |= advance_one(&at);
    } else {
      ++at;
    }
  }
  return any;
}

// Those before it do not wait at the gate, or wait for the ends of other streams' time slices.
bool Slicer::may_enter(const CutLaunch& launch) const {
  return !at_gate_ || parts_.gate.may_enter(kCompute, launch.caller().stream_key);
}

// Goes on to the next launch.
bool Slicer::advance_one(Launches::iterator* at) {
  CutLaunch& launch = ***at;
  const CutLaunch::Progress progress = launch.advance();
  at_gate_ |= progress.at_gate;
  if (progress.over) launch.finish();
  *at = progress.over ? drop(*at) : std::next(*at);
  return progress.issued;
}

Slicer::Launches::iterator Slicer::drop(Launches::iterator at) {
  order_.remove((*at)->caller().stream_key);
  return under_way_.erase(at);
}

bool Slicer::moved() const {
  return !at_gate_ &&
         std::any_of(under_way_.begin(), under_way_.end(), [](const auto& launch) { return launch->may_advance(); });
}

bool Slicer::is_watching() const {
  return std::any_of(under_way_.begin(), under_way_.end(), [](const auto& launch) { return launch->is_watched(); });
}

std::chrono::nanoseconds Slicer::longest_sleep() const {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  for (const auto& launch : under_way_) least = std::min(least, launch->look_again());
  return least;
}

}  // namespace bandsaw::runner
