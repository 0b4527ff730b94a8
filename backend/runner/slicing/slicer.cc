#include "backend/runner/slicing/slicer.h"

#include <sys/eventfd.h>

#include <algorithm>

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
      kernels_(&cloner_, settings.enabled),
      timer_(device, clock),
      control_blocks_(device),
      tracks_(device),
      describer_(gate, &settings_),
      variants_(device, &cloner_, settings_, &stats_),
      parts_{*device,         *gate,           settings_,
             *clock,          sms_of(*device), stats_,
             variants_,       describer_,      timer_,
             control_blocks_, tracks_,         std::make_shared<UniqueFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))},
      chooser_(&kernels_, &parts_) {}

void Slicer::forget_context(const Context* context) {
  tracks_.forget(context);
  kernels_.forget_context(context);
}

bool Slicer::holds(const CommandRing& ring) const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const auto& launch) { return launch->caller().ring.get() == &ring; });
}

CUresult Slicer::launch(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch) {
  if (!settings_.enabled) return parts_.device.launch(stream, launch);
  timer_.probe();
  const LaunchChoice choice = chooser_.choose(caller, stream, launch);
  if (choice.shape) ++choice.shape->launches;
  auto cut = choice.clone ? CutLaunch::make(&parts_, caller, stream, launch, choice) : nullptr;
  if (!cut) return launch_whole(caller, stream, launch, choice.shape);
  if (cut->begin() != CUDA_SUCCESS) {
    cut->finish();
    const CUresult result = parts_.device.launch(stream, launch);
    if (result == CUDA_SUCCESS) {  // else it is no launch at all
      count(stats_.counters().fallbacks);
      stats_.refused(*choice.kernel, "the device launches it, but not its rewritten variant");
      choice.kernel->whole = true;
    }
    return result;
  }
  choice.kernel->cut = true;
  count(stats_.counters().launches);
  if (cut->is_over()) {
    cut->finish();
  } else {
    order_.add(caller.stream_key);
    under_way_.push_back(std::move(cut));
  }
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
  for (auto it = under_way_.begin(); it != under_way_.end() && !at_gate_;) {
    CutLaunch& launch = **it;
    CutLaunch::Progress progress;
    if (!failed) progress = launch.advance();
    any |= progress.issued || failed;
    at_gate_ = progress.at_gate;
    if (progress.over) launch.finish();
    if (progress.over || failed) order_.remove(launch.caller().stream_key);
    it = progress.over || failed ? under_way_.erase(it) : std::next(it);
  }
  return any;
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
