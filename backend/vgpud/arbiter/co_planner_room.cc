// Short work beside what is planned: whether it finds room, and who makes some.

#include <algorithm>

#include "backend/vgpud/arbiter/co_planner.h"
#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw {
namespace {

// Room for short work is kept for so long after the last of it.
constexpr CoPlanner::Time kRoomFor = 100 * slice::kMillisecond;
// Of single SMs, which are soon taken again, for twice as long as was between the last two, and no less than this.
constexpr CoPlanner::Time kSmsForLeast = 4 * slice::kMillisecond;
constexpr uint64_t kMostShortBlocks = uint64_t{1} << 40;
constexpr double kLongest = 1e15;  // ns

// Blocks on each SM of a kernel that nobody has planned, as its runner says.
uint32_t unplanned(const KernelDescriptor& descriptor) {
  return descriptor.best != 0 ? descriptor.best : descriptor.most_resident;
}

bool leaves_single_sms(const KernelDescriptor& descriptor) {
  return descriptor.variant == static_cast<uint32_t>(KernelVariant::kPersistent) && descriptor.leaves_sms != 0;
}

}  // namespace

int CoPlanner::blocks_on_sm(const Kernel& kernel) const {
  const uint32_t planned = kernel.is_persistent() ? resident_of(kernel) : static_cast<uint32_t>(kernel.resident);
  return static_cast<int>(planned != 0 ? planned : unplanned(kernel.descriptor));
}

// Of kernels that are cut into grid slices what is in flight counts, of persistent blocks the rest of the launch.
std::vector<slice::RunningKernel> CoPlanner::running() const {
  std::vector<slice::RunningKernel> all;
  for (const auto& [place, kernel] : kernels_) {
    const auto shape = shapes_.find(kernel.shape);
    if (kernel.id == 0 || kernel.flying.empty() || shape == shapes_.end()) continue;
    const slice::KernelProfile profile = profile_of(shape->second);
    uint64_t left = 0;
    if (kernel.is_persistent()) {
      const slice::ReadyKernel* ready = scheduler_.queues().find_ready(kernel.id);
      left = ready ? ready->blocks - std::min(ready->done, ready->blocks) : 0;
    }
    for (const Flying& flying : kernel.flying) left += kernel.is_persistent() ? 0 : flying.range.blocks;
    const slice::Fit* fit = model_.fit(shape->second.id);
    all.push_back({.needs = profile.needs,
                   .resident = blocks_on_sm(kernel),
                   .left = static_cast<Time>(std::min(static_cast<double>(left) * profile.block_ns, kLongest)),
                   .issue = fit ? fit->pur : 0});
  }
  return all;
}

// It has been told of no plan. How far it is nobody says: it is taken to have begun just now.
std::optional<slice::RunningKernel> CoPlanner::at_open_gate(const KernelDescriptor& descriptor) const {
  if (!is_sound(descriptor)) return std::nullopt;
  const slice::BlockNeeds needs{static_cast<int>(descriptor.threads), static_cast<int>(descriptor.registers),
                                static_cast<int>(descriptor.shared_bytes)};
  const double left = static_cast<double>(descriptor.left) * static_cast<double>(descriptor.block_ps) / 1000;
  return slice::RunningKernel{.needs = needs,
                              .resident = static_cast<int>(unplanned(descriptor)),
                              .left = static_cast<Time>(std::min(left, kLongest))};
}

std::optional<CoPlanner::ShortWork> CoPlanner::foresee(Owner owner, const KernelDescriptor& descriptor,
                                                       std::span<const KernelDescriptor> open) {
  const slice::BlockNeeds needs{static_cast<int>(descriptor.threads), static_cast<int>(descriptor.registers),
                                static_cast<int>(descriptor.shared_bytes)};
  // What fits no SM of the model is nothing to forecast with.
  if (descriptor.brief == 0 || descriptor.call != 0 || descriptor.blocks == 0 || descriptor.blocks > kMostShortBlocks ||
      slice::resident_blocks(options_.gpu, needs) == 0) {
    return std::nullopt;
  }
  ++counts_.foreseen;
  const slice::ShortWorkTimes::Key key{owner, descriptor.shape};
  const Time alone = short_work_.alone(key);
  const slice::OverlapKernel work{.needs = needs, .blocks = descriptor.blocks, .time = alone};
  std::vector<slice::RunningKernel> all = running();
  for (const KernelDescriptor& one : open) {
    if (const auto kernel = at_open_gate(one)) all.push_back(*kernel);
  }
  ShortWork meets{.forecast = slice::forecast_short_work(options_.gpu, all, work)};
  const double takes = static_cast<double>(alone) * meets.forecast.slowdown * short_work_.correction(key);
  meets.takes = static_cast<Time>(std::min(takes, kLongest));
  meets.sms = sms_for(descriptor.blocks, needs, open);
  return meets;
}

// 0: no kernel can leave single SMs.
int CoPlanner::sms_for(uint64_t blocks, const slice::BlockNeeds& needs, std::span<const KernelDescriptor> open) const {
  const bool planned = std::ranges::any_of(
      kernels_, [](const auto& entry) { return entry.second.id != 0 && leaves_single_sms(entry.second.descriptor); });
  if (!options_.take_sms || (!planned && std::ranges::none_of(open, leaves_single_sms))) return 0;
  const auto on_sm = static_cast<uint64_t>(slice::resident_blocks(options_.gpu, needs));
  return static_cast<int>(std::min((blocks - 1) / on_sm + 1, static_cast<uint64_t>(options_.gpu.sms)));
}

// What nobody has seen alone is taken to be as much faster alone as its room says.
void CoPlanner::short_work_done(Owner owner, uint64_t shape, const ShortWork& meets, Time took, bool alone) {
  const slice::ShortWorkTimes::Key key{owner, shape};
  if (alone) return short_work_.learn_alone(key, took);
  if (!meets.forecast.room) return;
  if (meets.takes > 0) return short_work_.learn_beside(key, meets.takes, took);
  short_work_.learn_alone(key, static_cast<Time>(static_cast<double>(took) / std::max(meets.forecast.slowdown, 1.0)));
}

double CoPlanner::part_of(Owner owner) const {
  double part = 0;
  for (const auto& [place, kernel] : kernels_) {
    const auto shape = shapes_.find(kernel.shape);
    if (kernel.id == 0 || kernel.shape.first != owner || kernel.flying.empty() || shape == shapes_.end()) continue;
    part += slice::footprint(options_.gpu, profile_of(shape->second).needs, blocks_on_sm(kernel));
  }
  return std::min(part, 1.0);
}

void CoPlanner::leave_room(int blocks, int sms, Time now) {
  ++counts_.room_requests;
  if (options_.take_sms) leaves_sms_ = std::max(leaves_sms_, static_cast<uint32_t>(std::max(sms, 0)));
  leaves_room_ = std::max(leaves_room_, static_cast<uint32_t>(std::max(blocks, 1)));
  room_until_ = now + room_for(now);
}

void CoPlanner::keep_room(Time now) {
  const Time longer = room_for(now);
  short_work_at_ = now;
  if (leaves_room_ > 0) room_until_ = now + longer;
}

CoPlanner::Time CoPlanner::room_for(Time now) const {
  const Time between = now - short_work_at_;
  if (leaves_sms_ == 0) return kRoomFor;
  return between > kRoomFor / 2 ? kSmsForLeast : std::max(2 * between, kSmsForLeast);
}

// Persistent blocks on each SM: as planned. While short work needs room, the kernel with the most of them has fewer,
// but keeps half. A kernel that runs alone keeps its best number, where that leaves as much.
uint32_t CoPlanner::resident_of(const Kernel& kernel) const {
  const auto planned = static_cast<uint32_t>(kernel.resident);
  const uint32_t all = planned == 0 ? kernel.descriptor.most_resident : planned;
  if (leaves_room_ == 0 || all < 2 || leave_sms_of(kernel) != 0) return planned;
  const uint32_t fewer = all - std::min(leaves_room_, all / 2);
  if (planned == 0) return kernel.descriptor.best != 0 && kernel.descriptor.best <= fewer ? 0 : fewer;
  return makes_way(kernel) ? fewer : planned;
}

// Of those that have a part in the plan the one with the most blocks; or the only one.
bool CoPlanner::makes_way(const Kernel& kernel) const {
  const auto most = std::max_element(kernels_.begin(), kernels_.end(), [](const auto& one, const auto& other) {
    return one.second.resident < other.second.resident;
  });
  return &kernel == &most->second;
}

// Which ones its runner chooses, by what its blocks have done. Half of the GPU stays the kernel's.
uint32_t CoPlanner::leave_sms_of(const Kernel& kernel) const {
  if (!leaves_single_sms(kernel.descriptor)) return 0;
  if (kernel.resident != 0 && !makes_way(kernel)) return 0;
  return std::min(leaves_sms_, static_cast<uint32_t>(options_.gpu.sms) / 2);
}

std::optional<uint32_t> CoPlanner::unplanned_leave_sms() const {
  if (std::ranges::any_of(kernels_, [](const auto& entry) { return entry.second.id != 0; })) return {};
  return std::min(leaves_sms_, static_cast<uint32_t>(options_.gpu.sms) / 2);
}

}  // namespace bandsaw
