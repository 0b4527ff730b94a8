#include "backend/runner/slicing/launch_describer.h"

#include <algorithm>
#include <utility>

#include "backend/runner/slicing/kernel_descriptor.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/launch_variant.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kAtOpenGate = ~uint64_t{0};  // KernelDescriptor::call of launches that no plan has

}  // namespace

KernelDescriptor LaunchDescriber::descriptor_of(const LaunchUnderWay& launch, const LaunchVariant& variant) const {
  const CodeTraits& traits = variant.clone().traits;
  const auto& block = launch.program.block;
  KernelDescriptor descriptor;
  descriptor.call = launch.call;
  descriptor.shape = shape_hash(traits, launch.program);
  descriptor.stream = launch.caller.stream_key;
  descriptor.blocks = launch.blocks;
  descriptor.left = launch.blocks - launch.next;
  descriptor.threads = block[0] * block[1] * block[2];
  descriptor.registers = traits.registers;
  descriptor.shared_bytes = traits.shared_bytes + launch.program.shared_bytes;
  descriptor.memory = traits.memory;
  descriptor.scattered = traits.scattered;
  descriptor.alone = launch.alone ? 1 : 0;
  if (const LaunchShape* const shape = launch.shape.get()) {
    const auto best = static_cast<uint64_t>(shape->persistent_tuner.best());
    descriptor.block_ps = (best ? best : shape->typical_ns) * 1000 / std::max<uint64_t>(1, shape->blocks);
    descriptor.instructions = shape->counts.instructions;
    descriptor.bytes = shape->counts.bytes;
    if (shape->counts.instructions != 0) descriptor.memory = descriptor_part(shape->counts.accesses);
    if (settings_.count) descriptor.half_speed = descriptor_part(shape->persistent_tuner.half_speed());
  }
  variant.describe(&descriptor);
  launch.kernel->name.copy(descriptor.kernel, sizeof descriptor.kernel - 1);
  return descriptor;
}

void LaunchDescriber::describe(LaunchUnderWay& launch, const LaunchVariant& variant) {
  const bool tried = launch.begun != 0 || launch.kernel->cut;
  if (!tried || !gate_.has_plans()) return;
  if (!gate_.is_planned(kCompute)) {
    if (launch.call != 0 || std::exchange(launch.noted, true)) return;
    KernelDescriptor descriptor = descriptor_of(launch, variant);
    descriptor.call = kAtOpenGate;
    return gate_.describe(kCompute, descriptor);
  }
  if (launch.call == 0) launch.call = ++calls_;
  gate_.describe(kCompute, descriptor_of(launch, variant));
}

void LaunchDescriber::describe_whole(Device& device, KnownKernel& kernel, const Launch& launch) {
  if (!gate_.is_planned(kCompute)) return;
  const std::optional<BlockCode> code = kernel.block_code(device, launch.code);
  if (!code) return;
  KernelDescriptor descriptor;
  descriptor.brief = 1;
  descriptor.shape = whole_launch_hash(kernel.name, launch);
  descriptor.blocks = LaunchUnderWay::blocks_of(launch);
  descriptor.threads = launch.block[0] * launch.block[1] * launch.block[2];
  descriptor.registers = code->registers;
  descriptor.shared_bytes = code->shared_bytes + launch.shared_bytes;
  kernel.name.copy(descriptor.kernel, sizeof descriptor.kernel - 1);
  gate_.describe_short_work(kCompute, descriptor);
}

void LaunchDescriber::report(const LaunchUnderWay& launch, const LaunchVariant& variant, uint64_t claimed,
                             uint32_t resident) {
  KernelDescriptor descriptor = descriptor_of(launch, variant);
  descriptor.left = launch.blocks - claimed;
  descriptor.resident = resident;
  descriptor.seen_ns = launch.flight->seen_ns;
  gate_.report(kCompute, descriptor);
}

void LaunchDescriber::withdraw(const LaunchUnderWay& launch) {
  if (launch.call != 0 || launch.noted) gate_.describe(kCompute, {});
}

}  // namespace bandsaw::runner
