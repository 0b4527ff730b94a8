#include "backend/vgpud/arbiter/co_planner.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw {
namespace {

// Between two grid slices a runner needs some tenths of a millisecond; who is silent for longer has something else to
// do.
constexpr CoPlanner::Time kForgetAfter = 2 * slice::kMillisecond;
// The same while the engine stands idle for it.
constexpr CoPlanner::Time kPause = 100 * slice::kMicrosecond;

}  // namespace

std::unique_ptr<CoPlanner> CoPlanner::make(PlanningMode mode, const PlanOptions& options) {
  auto source = options.planners ? options.planners() : std::make_unique<PlannerSource>();
  if (!source->has(mode)) return nullptr;
  return std::unique_ptr<CoPlanner>(new CoPlanner(mode, options, std::move(source)));
}

CoPlanner::CoPlanner(PlanningMode mode, const PlanOptions& options, std::unique_ptr<PlannerSource> source)
    : options_(options),
      model_(options.gpu, options.model),
      source_(std::move(source)),
      meter_(model_),
      scheduler_(source_->make(mode, model_, options.planner), source_->learns(mode) ? &meter_ : nullptr) {}

void CoPlanner::leave(Kernel* kernel, Time now) {
  if (kernel->id == 0) return;
  (void)scheduler_.departure(kernel->id, now);
  forget(kernel);
}

// The co-scheduler no longer knows the kernel, or never did.
void CoPlanner::forget(Kernel* kernel) {
  places_.erase(kernel->id);
  if (const auto shape = shapes_.find(kernel->shape); shape != shapes_.end()) --shape->second.users;
  kernel->id = 0;
  kernel->stays = false;
  kernel->resident = 0;
  kernel->due.clear();
  kernel->flying.clear();
}

bool CoPlanner::arrive(Place place, Kernel* kernel, Time now) {
  Shape& shape = shape_of(kernel->shape, kernel->descriptor);
  const slice::KernelId id = next_kernel_++;
  const slice::Call call{.id = id,
                         .stream = place,
                         .shape = shape.id,
                         .blocks = kernel->descriptor.left,
                         .minimum = std::min(kernel->descriptor.minimum, kernel->descriptor.left),
                         .alone = kernel->descriptor.alone != 0};
  if (scheduler_.arrival(call, now) != slice::Error::kNone) return false;
  ++shape.users;
  kernel->id = id;
  kernel->blocks = call.blocks;
  kernel->quiet_since = now;
  places_[id] = place;
  return true;
}

// Blocks that are left, as far as the co-scheduler and this class know. The runner knows better.
uint64_t CoPlanner::left_of(const Kernel& kernel) const {
  const slice::ReadyKernel* ready = scheduler_.queues().find_ready(kernel.id);
  uint64_t left = ready ? ready->left : 0;
  for (const slice::Range& range : kernel.due) left += range.blocks;
  return left;
}

// Bounds the kernels of one owner, so that a decision stays cheap whatever its processes ask for. A kernel beyond the
// bound is granted as short work.
bool CoPlanner::has_room(Owner owner) const {
  const auto count = std::count_if(kernels_.begin(), kernels_.end(), [owner](const auto& entry) {
    return entry.second.id != 0 && entry.second.shape.first == owner;
  });
  return static_cast<size_t>(count) < kKernelsMost;
}

bool CoPlanner::ask(Place place, Owner owner, const KernelDescriptor& descriptor, Time now) {
  if (!is_sound(descriptor)) {
    ++counts_.refused;
    gone(place, now);
    return false;
  }
  Kernel& kernel = kernels_[place];
  const bool other = kernel.descriptor.call != descriptor.call || kernel.shape != Key(owner, descriptor.shape);
  const bool recut = !kernel.stays && !kernel.is_persistent() && descriptor.left != left_of(kernel);
  if (kernel.id != 0 && (other || recut)) leave(&kernel, now);
  kernel.shape = {owner, descriptor.shape};
  kernel.descriptor = descriptor;
  if (kernel.id == 0 && (!has_room(owner) || !arrive(place, &kernel, now))) return false;
  if (kernel.stays || kernel.is_persistent()) {
    (void)scheduler_.progress(kernel.id, kernel.done(descriptor.left));
  }
  kernel.asks = true;
  return true;
}

void CoPlanner::hold_back(Place place, Time now) {
  const auto found = kernels_.find(place);
  if (found == kernels_.end()) return;
  found->second.asks = false;
  if (found->second.flying.empty()) leave(&found->second, now);
}

void CoPlanner::snapshot(Place place, const KernelDescriptor& descriptor, Time now) {
  const auto found = kernels_.find(place);
  if (found == kernels_.end() || found->second.id == 0) return;
  Kernel& kernel = found->second;
  if (descriptor.call == kernel.descriptor.call) return see(kernel, descriptor);
  if (kernel.quiet()) return leave(&kernel, now);
  // Its persistent blocks have claimed the grid's last block. As they end, those of the next kernel take their room.
  if (descriptor.call == 0 && kernel.is_persistent() && !kernel.asks) scheduler_.issued_all(kernel.id);
}

// Takes in how far persistent blocks have come. Runners tell that for both kernels of a pair.
void CoPlanner::see(const Kernel& kernel, const KernelDescriptor& descriptor) {
  if (!kernel.is_persistent() || kernel.flying.empty() || descriptor.seen_ns <= 0 || descriptor.resident != kernel.told)
    return;
  (void)scheduler_.claimed(kernel.id, kernel.done(descriptor.left), static_cast<int>(descriptor.resident),
                           descriptor.seen_ns);
}

void CoPlanner::grid_slice_done(Place place, uint64_t number, Time busy, bool alone, Time now) {
  const auto found = kernels_.find(place);
  if (found == kernels_.end()) return;
  Kernel& kernel = found->second;
  const auto slice = std::find_if(kernel.flying.begin(), kernel.flying.end(),
                                  [number](const Flying& flying) { return flying.number == number; });
  if (slice == kernel.flying.end()) return;
  const slice::Range range = slice->range;
  kernel.flying.erase(slice);
  if (kernel.flying.empty()) kernel.quiet_since = now;
  if (kernel.id == 0) return;
  if (alone) measure(&kernel, range.blocks, busy, now);
  if (kernel.id == 0) return;
  bool over = false;
  if (!kernel.stays) (void)scheduler_.grid_slice_done(kernel.id, range.first, now, &over);
  // Of persistent blocks only their runner knows when all is done.
  const bool drained = kernel.stays && kernel.flying.empty() && kernel.descriptor.left == 0;
  if (drained) (void)scheduler_.grid_slice_done(kernel.id, kernel.whole.first, now, &over);
  if (over) forget(&kernel);
}

void CoPlanner::gone(Place place, Time now) {
  const auto found = kernels_.find(place);
  if (found == kernels_.end()) return;
  leave(&found->second, now);
  kernels_.erase(found);
}

void CoPlanner::clear(Time now) {
  for (auto& [place, kernel] : kernels_) leave(&kernel, now);
  kernels_.clear();
}

void CoPlanner::count_plan() {
  if (scheduler_.plans() == plans_seen_) return;
  plans_seen_ = scheduler_.plans();
  const size_t parts = scheduler_.plan().parts.size();
  if (parts > 0) ++counts_.plans;
  if (parts == 1) ++counts_.alone;
  if (parts > 1) ++counts_.pairs;
}

void CoPlanner::issue(Time now) {
  while (const auto issue = scheduler_.next(now)) {
    count_plan();
    const auto place = places_.find(issue->kernel);
    if (place == places_.end()) continue;
    Kernel& kernel = kernels_.at(place->second);
    // Of persistent blocks no grid slices are planned: what is issued stands for all that is left (see resize).
    if (issue->kind == slice::Issue::Kind::kPersistent || kernel.stays || kernel.is_persistent()) continue;
    kernel.resident = issue->resident;
    if (issue->sharing == slice::Sharing::kPersistent && issue->resident > 0) {
      kernel.stays = true;
      kernel.whole = issue->range;
    } else {
      kernel.due.push_back(issue->range);
    }
  }
  count_plan();
}

// Grants what comes next of the kernel. If the plan sets blocks on each SM, but the runner launches grid slices, a grid
// slice has as many blocks as are to lie on all SMs.
CoPlanner::Grant CoPlanner::give(Place place, Kernel* kernel) {
  const uint32_t resident = kernel->is_persistent() ? resident_of(*kernel) : static_cast<uint32_t>(kernel->resident);
  Grant grant{.place = place, .number = next_number_++, .resident = resident, .leave_sms = leave_sms_of(*kernel)};
  slice::Range range = kernel->whole;
  if (kernel->stays) {
    const uint64_t row = static_cast<uint64_t>(kernel->resident) * static_cast<uint64_t>(options_.gpu.sms);
    const uint64_t blocks = std::min(std::max(row, kernel->descriptor.minimum), kernel->descriptor.left);
    range.blocks = kernel->is_persistent() ? 0 : blocks;
  } else {
    range = kernel->due.front();
    kernel->due.pop_front();
  }
  grant.blocks = range.blocks;
  kernel->told = grant.resident;
  kernel->told_sms = grant.leave_sms;
  kernel->descriptor.left -= std::min(kernel->descriptor.left, range.blocks);
  kernel->flying.push_back({grant.number, range});
  kernel->asks = false;
  ++counts_.grants;
  return grant;
}

// Tells runners how many of their persistent blocks are to lie on each SM, where that has changed. A kernel that has
// blocks left and no part in the plan gets none.
void CoPlanner::resize(std::vector<Grant>* grants) {
  const auto& parts = scheduler_.plan().parts;
  for (auto& [place, kernel] : kernels_) {
    if (kernel.id == 0 || (!kernel.stays && !kernel.is_persistent())) continue;
    const auto part =
        std::find_if(parts.begin(), parts.end(), [id = kernel.id](const slice::Part& one) { return one.kernel == id; });
    if (part != parts.end()) kernel.resident = part->resident;
    if (!kernel.is_persistent()) continue;
    const slice::ReadyKernel* ready = scheduler_.queues().find_ready(kernel.id);
    kernel.stays = part != parts.end() || ready == nullptr || ready->left == 0;
    if (!kernel.stays) kernel.resident = 0;
    const uint32_t resident = kernel.stays ? resident_of(kernel) : kNoResident;
    const uint32_t leave_sms = leave_sms_of(kernel);
    if (kernel.flying.empty() || (resident == kernel.told && leave_sms == kernel.told_sms)) continue;
    counts_.resizes += resident != kernel.told ? 1 : 0;
    counts_.sm_requests += leave_sms > kernel.told_sms ? 1 : 0;
    kernel.told = resident;
    kernel.told_sms = leave_sms;
    grants->push_back({.place = place, .resident = resident, .leave_sms = leave_sms});
  }
}

void CoPlanner::grant(std::vector<Grant>* grants) {
  for (auto& [place, kernel] : kernels_) {
    if (kernel.asks && (kernel.stays || !kernel.due.empty())) grants->push_back(give(place, &kernel));
  }
}

// Nothing that is planned is on the engine, and somebody asks for it.
bool CoPlanner::stands_idle() const {
  bool asks = false;
  for (const auto& [place, kernel] : kernels_) {
    if (!kernel.flying.empty()) return false;
    asks = asks || kernel.asks;
  }
  return asks;
}

void CoPlanner::drop_quiet(Time since, Time now) {
  for (auto& [place, kernel] : kernels_) {
    if (kernel.quiet() && kernel.quiet_since <= since) leave(&kernel, now);
  }
}

void CoPlanner::answer(Time now, std::vector<Grant>* grants) {
  issue(now);
  resize(grants);
  grant(grants);
}

std::vector<CoPlanner::Grant> CoPlanner::run(Time now) {
  std::vector<Grant> grants;
  if (now >= room_until_) leaves_room_ = leaves_sms_ = 0;
  drop_quiet(now - kForgetAfter, now);
  answer(now, &grants);
  if (!stands_idle()) return grants;
  drop_quiet(now - kPause, now);
  answer(now, &grants);
  const bool waits =
      std::any_of(kernels_.begin(), kernels_.end(), [](const auto& entry) { return entry.second.quiet(); });
  if (waits || !stands_idle()) return grants;
  for (auto& [place, kernel] : kernels_) {
    if (!kernel.asks) continue;
    leave(&kernel, now);
    kernel.asks = false;
    kernel.flying.push_back({next_number_, {}});
    grants.push_back({.place = place, .number = next_number_++});
    ++counts_.unplanned;
  }
  return grants;
}

CoPlanner::Time CoPlanner::next() const {
  bool asks = false;
  Time next = kNever;
  const Time timeout = stands_idle() ? kPause : kForgetAfter;
  for (const auto& [place, kernel] : kernels_) {
    asks = asks || kernel.asks;
    if (kernel.quiet()) next = std::min(next, kernel.quiet_since + timeout);
  }
  return std::min(asks ? next : kNever, leaves_room_ > 0 ? room_until_ : kNever);
}

PlanState CoPlanner::state() const {
  PlanState state = counts_;
  state.planned = true;
  state.shapes = shapes_.size();
  for (const auto& [key, shape] : shapes_) state.measured_shapes += shape.profiler.ready();
  state.observed = meter_.observed();
  state.judged = short_work_.judged();
  state.forecast_error = short_work_.error();
  for (const slice::Part& part : scheduler_.plan().parts) {
    const auto place = places_.find(part.kernel);
    if (place == places_.end()) continue;
    const Kernel& kernel = kernels_.at(place->second);
    const auto shape = shapes_.find(kernel.shape);
    state.owners.push_back(kernel.shape.first);
    state.plan.push_back({{}, shape == shapes_.end() ? "" : shape->second.name, part.slice, part.resident});
  }
  return state;
}

}  // namespace bandsaw
