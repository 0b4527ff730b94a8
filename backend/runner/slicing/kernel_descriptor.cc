#include "backend/runner/slicing/kernel_descriptor.h"

#include <algorithm>

#include "vgpu-sched/ptx/analysis.h"

namespace bandsaw::runner {
namespace {

// FNV-1a: the same in all processes.
uint64_t hash_of(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint32_t attribute(const FunctionInfo& info, CUfunction_attribute which) {
  return static_cast<uint32_t>(std::max(0, info.info.attributes[which]));
}

}  // namespace

uint32_t descriptor_part(double value) {
  return static_cast<uint32_t>(std::clamp(value, 0.0, 1.0) * static_cast<double>(kDescriptorParts));
}

CodeTraits CodeTraits::of(Device* device, std::string_view text, const FunctionRef& function,
                          const ptx::Program& program, std::string_view kernel) {
  CodeTraits traits;
  traits.hash = hash_of(text);
  FunctionInfo info;
  if (device->function_info({nullptr, function}, &info) == CUDA_SUCCESS) {
    traits.registers = attribute(info, CU_FUNC_ATTRIBUTE_NUM_REGS);
    traits.shared_bytes = attribute(info, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  }
  const ptx::InstructionMix mix = ptx::instruction_mix_of(program, kernel);
  const double accesses = mix.load_global + mix.store_global + mix.atomic;
  if (accesses > 0) {
    traits.memory = descriptor_part(accesses / mix.total());
    traits.scattered = descriptor_part(mix.scattered / accesses);
  }
  return traits;
}

uint64_t whole_launch_hash(std::string_view kernel, const Launch& launch) {
  CodeTraits traits;
  traits.hash = hash_of({reinterpret_cast<const char*>(launch.grid), sizeof launch.grid}, hash_of(kernel));
  return shape_hash(traits, launch);
}

uint64_t shape_hash(const CodeTraits& traits, const Launch& launch) {
  const uint32_t rest[] = {launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes};
  return hash_of({reinterpret_cast<const char*>(rest), sizeof rest}, traits.hash);
}

}  // namespace bandsaw::runner
