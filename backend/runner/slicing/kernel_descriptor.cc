// Part of the slicer: where grid slices are planned, it describes launches under way, and cuts them as was granted.
#include "backend/runner/slicing/kernel_descriptor.h"

#include <algorithm>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/slicer_run.h"
#include "vgpu-sched/ptx/analysis.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kMostGridSlice = 0x7fffffff;

// FNV-1a: the same in all processes.
uint64_t hash_of(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint32_t part_of(double value) {
  return static_cast<uint32_t>(std::clamp(value, 0.0, 1.0) * static_cast<double>(kDescriptorParts));
}

uint32_t attribute(const FunctionInfo& info, CUfunction_attribute which) {
  return static_cast<uint32_t>(std::max(0, info.info.attributes[which]));
}

}  // namespace

CodeTraits CodeTraits::of(Device* device, std::string_view text, const FunctionRef& function,
                          const ptx::Program& program, std::string_view kernel) {
  CodeTraits traits;
  traits.hash = hash_of(text);
  FunctionInfo info;
  if (device->function_info({nullptr, function}, &info) == CUDA_SUCCESS) {
    traits.registers = attribute(info, CU_FUNC_ATTRIBUTE_NUM_REGS);
    traits.shared_bytes = attribute(info, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  }
  // The descriptor does not say which accesses are scattered: forecasts that know it choose pairs that spoil each
  // other's L2.
  const ptx::InstructionMix mix = ptx::instruction_mix_of(program, kernel);
  const double accesses = mix.load_global + mix.store_global + mix.atomic;
  if (accesses > 0) traits.memory = part_of(accesses / mix.total());
  return traits;
}

uint64_t shape_hash(const CodeTraits& traits, const Launch& launch) {
  const uint32_t rest[] = {launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes};
  return hash_of({reinterpret_cast<const char*>(rest), sizeof rest}, traits.hash);
}

KernelDescriptor Slicer::descriptor_of(const Run& run) const {
  const CodeTraits& traits = run.clone->traits;
  const auto& block = run.launch.block;
  KernelDescriptor descriptor;
  descriptor.call = run.call;
  descriptor.shape = shape_hash(traits, run.launch);
  descriptor.stream = run.caller.stream_key;
  descriptor.blocks = run.total;
  descriptor.left = run.total - run.next;
  descriptor.minimum = std::min(run.control_block ? uint64_t{sms_} : run.step, run.total);
  descriptor.threads = block[0] * block[1] * block[2];
  descriptor.registers = traits.registers;
  descriptor.shared_bytes = traits.shared_bytes + run.launch.shared_bytes;
  descriptor.memory = traits.memory;
  descriptor.variant = static_cast<uint32_t>(run.control_block ? KernelVariant::kPersistent : KernelVariant::kSliced);
  descriptor.alone = run.alone ? 1 : 0;
  if (run.shape) {
    const auto best = static_cast<uint64_t>(run.shape->persistent_tuner.best());
    descriptor.block_ps = (best ? best : run.shape->typical_ns) * 1000 / std::max<uint64_t>(1, run.shape->blocks);
    descriptor.most_resident = static_cast<uint32_t>(run.control_block ? run.most_resident : run.shape->wave / sms_);
    if (run.control_block && !run.shape->persistent_tuner.searches())
      descriptor.best = static_cast<uint32_t>(run.shape->persistent_tuner.next());
    const BlockCounts& counts = run.shape->counts;
    descriptor.instructions = counts.instructions;
    descriptor.bytes = counts.bytes;
    if (counts.instructions != 0) descriptor.memory = part_of(counts.accesses);
    if (settings_.count) descriptor.half_speed = part_of(run.shape->persistent_tuner.half_speed());
  }
  run.kernel->name.copy(descriptor.kernel, sizeof descriptor.kernel - 1);
  return descriptor;
}

// Call before each ask for a time slice for the launch.
void Slicer::describe(Run& run) {
  if (!gate_.is_planned(kCompute)) return;
  if (run.call == 0) run.call = ++calls_;
  gate_.describe(kCompute, descriptor_of(run));
}

// Says how many blocks persistent blocks have claimed while others are planned beside them: the arbiter measures the
// pair's speed by that.
void Slicer::report(const Run& run, uint64_t claimed) {
  if (run.resident == 0) return;
  KernelDescriptor descriptor = descriptor_of(run);
  descriptor.left = run.total - claimed;
  descriptor.resident = run.resident;
  descriptor.seen_ns = run.flight->seen_ns;
  gate_.report(kCompute, descriptor);
}

// Says that nothing more will be asked for the launch, so that the arbiter does not wait for another ask.
void Slicer::withdraw(const Run& run) {
  if (run.call != 0) gate_.describe(kCompute, {});
}

// Blocks of the next grid slice, after the gate has let it in.
uint64_t Slicer::granted_blocks(Run& run) const {
  const GateAnswer answer = gate_.answer(kCompute);
  run.paired |= answer.resident != 0;
  if (answer.blocks == 0) return run.step;
  run.held_up = true;  // its time says nothing of grid slices of its own size
  return std::min(answer.blocks, kMostGridSlice);
}

// Takes over how many persistent blocks the next launch has.
void Slicer::take_persistent(Run& run) {
  const GateAnswer answer = gate_.answer(kCompute);
  run.granted = answer.planned;
  run.resident = answer.resident;
  if (!answer.planned || (answer.resident == 0 && settings_.force_blocks != 0)) return;
  const uint64_t wanted = answer.resident == 0 ? best_persistent(run) : uint64_t{answer.resident} * sms_;
  run.paired |= answer.resident != 0;
  run.step = std::clamp<uint64_t>(std::min(wanted, run.most_resident * sms_), 1, run.total);
}

// Whether the plan wants another number of persistent blocks than run, or they were launched before there was a plan.
bool Slicer::is_replanned(const Run& run) const {
  if (!gate_.is_planned(kCompute)) return false;
  return !run.granted || gate_.planned_resident(kCompute) != run.resident;
}

// Where grid slices are planned, the first one waits for the plan too, if the kernel has run in grid slices before. The
// launch itself has passed the gate as short work; this gives its grant back.
bool Slicer::waits_for_plan(const Run& run) {
  if (!run.kernel->cut || !gate_.is_planned(kCompute)) return false;
  gate_.cancel_grant(kCompute);
  return true;
}

}  // namespace bandsaw::runner
