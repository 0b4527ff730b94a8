// What the co-planner knows of kernels: as described, then as measured.

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "backend/vgpud/arbiter/co_planner.h"
#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw {
namespace {

constexpr uint64_t kMostBlocks = uint64_t{1} << 40, kLongestBlockPs = 1'000'000'000'000'000;
constexpr uint64_t kMostCounted = uint64_t{1} << 50;  // instructions or bytes of a block
constexpr uint32_t kMostThreads = 1024, kMostRegisters = 255, kMostShared = 1 << 20, kMostResident = 128;
// Fitting a profile takes some microseconds: after the first measurements only every so many are taken in.
constexpr uint32_t kLearnEvery = 32;

// Of what is fitted to the model, but for times.
bool says_other(const KernelDescriptor& one, const KernelDescriptor& other) {
  const auto inputs = [](const KernelDescriptor& descriptor) {
    return std::tie(descriptor.memory, descriptor.scattered, descriptor.half_speed, descriptor.instructions,
                    descriptor.bytes);
  };
  return inputs(one) != inputs(other);
}

double part(uint32_t value) { return static_cast<double>(value) / kDescriptorParts; }

// For people: what is no printable text is none.
std::string name_of(const KernelDescriptor& descriptor) {
  const char* const end = std::find(std::begin(descriptor.kernel), std::end(descriptor.kernel), '\0');
  std::string name(std::begin(descriptor.kernel), end);
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return name;
}

}  // namespace

bool CoPlanner::is_sound(const KernelDescriptor& descriptor) {
  return descriptor.call != 0 && descriptor.variant <= static_cast<uint32_t>(KernelVariant::kPersistent) &&
         descriptor.blocks > 0 && descriptor.blocks <= kMostBlocks && descriptor.left > 0 &&
         descriptor.left <= descriptor.blocks && descriptor.minimum <= descriptor.blocks &&
         descriptor.block_ps <= kLongestBlockPs && descriptor.threads > 0 && descriptor.threads <= kMostThreads &&
         descriptor.registers <= kMostRegisters && descriptor.shared_bytes <= kMostShared &&
         descriptor.most_resident <= kMostResident && descriptor.memory <= kDescriptorParts &&
         descriptor.scattered <= kDescriptorParts && descriptor.half_speed <= kDescriptorParts &&
         descriptor.best <= kMostResident && descriptor.instructions <= kMostCounted &&
         descriptor.bytes <= kMostCounted;
}

// Of a block's time the runner's word counts while there is no measurement. What fits no SM of the model, though it
// runs, is known by its threads alone.
slice::KernelProfile CoPlanner::profile_of(const Shape& shape) const {
  const KernelDescriptor& descriptor = shape.described;
  slice::KernelProfile profile;
  profile.needs = {static_cast<int>(descriptor.threads), static_cast<int>(descriptor.registers),
                   static_cast<int>(descriptor.shared_bytes)};
  if (slice::resident_blocks(options_.gpu, profile.needs) == 0)
    profile.needs = {static_cast<int>(descriptor.threads), 0, 0};
  profile.block_ns = static_cast<double>(descriptor.block_ps) / 1000;
  if (shape.profiler.ready()) profile.block_ns = shape.profiler.profile().block_ns;
  profile.memory = part(descriptor.memory);
  // Of no use to a model of two states: by the mean, forecasts choose pairs that spoil each other's L2.
  if (options_.model.three_states) profile.uncoalesced = part(descriptor.scattered);
  profile.half_speed = part(descriptor.half_speed);
  profile.instructions = static_cast<double>(descriptor.instructions);
  if (profile.block_ns > 0) profile.bytes_per_ns = static_cast<double>(descriptor.bytes) / profile.block_ns;
  profile.most_resident = static_cast<int>(descriptor.most_resident);
  return profile;
}

CoPlanner::Shape& CoPlanner::shape_of(const Key& key, const KernelDescriptor& descriptor) {
  auto found = shapes_.find(key);
  if (found == shapes_.end()) {
    make_room(key.first);
    found = shapes_.emplace(key, Shape(descriptor, name_of(descriptor))).first;
    learn(&found->second);
  }
  Shape& shape = found->second;
  shape.used = ++uses_;
  const KernelDescriptor before = std::exchange(shape.described, descriptor);
  const bool other_time = !shape.profiler.ready() && before.block_ps != descriptor.block_ps;
  if (other_time || says_other(before, descriptor)) learn(&shape);
  return shape;
}

// Of an owner that has too many, the one that was not used for longest goes.
void CoPlanner::make_room(Owner owner) {
  size_t count = 0;
  auto oldest = shapes_.end();
  for (auto it = shapes_.lower_bound({owner, 0}); it != shapes_.end() && it->first.first == owner; ++it) {
    ++count;
    if (it->second.users > 0) continue;
    if (oldest == shapes_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (count < kShapesMost || oldest == shapes_.end()) return;
  drop_shape(oldest);
}

void CoPlanner::drop_shape(std::map<Key, Shape>::iterator shape) {
  if (shape->second.id != slice::kNoShape) {
    model_.remove(shape->second.id);
    source_->remove_shape(shape->second.id);
  }
  shapes_.erase(shape);
}

// Kernels of its programs have gone by then.
void CoPlanner::forget_owner(Owner owner) {
  short_work_.forget_owner(owner);
  for (auto it = shapes_.lower_bound({owner, 0}); it != shapes_.end() && it->first.first == owner;) {
    const auto shape = it++;
    if (shape->second.users == 0) drop_shape(shape);
  }
}

void CoPlanner::learn(Shape* shape) {
  const slice::KernelProfile profile = profile_of(*shape);
  if (profile.block_ns <= 0) return;
  if (shape->id != slice::kNoShape) {
    (void)model_.update(shape->id, profile);
    return;
  }
  shape->id = model_.add(profile);
  if (shape->id == slice::kNoShape) return;
  source_->add_shape(shape->id, shape->name);
}

// Only grid slices that fill the GPU say what a block takes of it.
void CoPlanner::measure(Kernel* kernel, uint64_t blocks, Time busy, Time now) {
  const auto found = shapes_.find(kernel->shape);
  if (found == shapes_.end() || blocks == 0 || busy <= 0) return;
  Shape& shape = found->second;
  const slice::Fit* fit = model_.fit(shape.id);
  const uint64_t resident = fit ? static_cast<uint64_t>(fit->resident) : kernel->descriptor.most_resident;
  if (blocks < resident * static_cast<uint64_t>(options_.gpu.sms)) return;
  shape.profiler.full(blocks, busy);
  const uint32_t sample = shape.samples++;
  if ((sample & (sample - 1)) != 0 && sample % kLearnEvery != 0) return;
  const bool unknown = shape.id == slice::kNoShape;
  learn(&shape);
  if (!unknown || shape.id == slice::kNoShape) return;
  // Now it can be planned: it arrives anew with its next ask.
  leave(kernel, now);
}

}  // namespace bandsaw
