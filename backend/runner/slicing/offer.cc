// Of the slicer too: launches under way are offered where grid slices are planned, and cut as they were granted.
#include "backend/runner/slicing/offer.h"

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
  return static_cast<uint32_t>(std::clamp(value, 0.0, 1.0) * static_cast<double>(kOfferParts));
}

uint32_t attribute(const FunctionInfo& info, CUfunction_attribute which) {
  return static_cast<uint32_t>(std::max(0, info.info.attributes[which]));
}

}  // namespace

OfferCode OfferCode::of(Device* device, std::string_view text, const FunctionRef& function, const ptx::Program& program,
                        std::string_view kernel) {
  OfferCode code;
  code.hash = hash_of(text);
  FunctionInfo info;
  if (device->function_info({nullptr, function}, &info) == CUDA_SUCCESS) {
    code.registers = attribute(info, CU_FUNC_ATTRIBUTE_NUM_REGS);
    code.shared_bytes = attribute(info, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  }
  // Which of them are scattered is not told: forecasts that know it choose pairs that spoil each other's L2.
  const ptx::Mix mix = ptx::mix_of(program, kernel);
  const double accesses = mix.load_global + mix.store_global + mix.atomic;
  if (accesses > 0) code.memory = part_of(accesses / mix.total());
  return code;
}

uint64_t offer_shape(const OfferCode& code, const Launch& launch) {
  const uint32_t rest[] = {launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes};
  return hash_of({reinterpret_cast<const char*>(rest), sizeof rest}, code.hash);
}

OfferFacts Slicer::facts_of(const Run& run) const {
  const OfferCode& code = run.clone->offer;
  const auto& block = run.launch.block;
  OfferFacts facts;
  facts.call = run.call;
  facts.shape = offer_shape(code, run.launch);
  facts.stream = run.caller.stream_key;
  facts.blocks = run.total;
  facts.left = run.total - run.next;
  facts.minimum = std::min(run.control_block ? uint64_t{sms_} : run.step, run.total);
  facts.threads = block[0] * block[1] * block[2];
  facts.registers = code.registers;
  facts.shared_bytes = code.shared_bytes + run.launch.shared_bytes;
  facts.memory = code.memory;
  facts.variant = static_cast<uint32_t>(run.control_block ? KernelVariant::kPersistent : KernelVariant::kSliced);
  facts.alone = run.alone ? 1 : 0;
  if (run.shape) {
    const auto best = static_cast<uint64_t>(run.shape->persistent_tuner.best());
    facts.block_ps = (best ? best : run.shape->typical_ns) * 1000 / std::max<uint64_t>(1, run.shape->blocks);
    facts.most_resident = static_cast<uint32_t>(run.control_block ? run.most_resident : run.shape->wave / sms_);
    if (run.control_block && !run.shape->persistent_tuner.searches())
      facts.best = static_cast<uint32_t>(run.shape->persistent_tuner.next());
    const BlockCounts& counts = run.shape->counts;
    facts.instructions = counts.instructions;
    facts.bytes = counts.bytes;
    if (counts.instructions != 0) facts.memory = part_of(counts.accesses);
    if (settings_.count) facts.half_speed = part_of(run.shape->persistent_tuner.half_speed());
  }
  run.kernel->name.copy(facts.kernel, sizeof facts.kernel - 1);
  return facts;
}

// Before each ask for a time slice for it.
void Slicer::offer(Run& run) {
  if (!gate_.is_planned(kCompute)) return;
  if (run.call == 0) run.call = ++calls_;
  gate_.offer(kCompute, facts_of(run));
}

// Of persistent blocks that others are planned beside: so that it is known how fast they are there.
void Slicer::report(const Run& run, uint64_t claimed) {
  if (run.resident == 0) return;
  OfferFacts facts = facts_of(run);
  facts.left = run.total - claimed;
  facts.resident = run.resident;
  facts.seen_ns = run.flight->seen_ns;
  gate_.report(kCompute, facts);
}

// Nothing more will be asked for it: who plans need not wait for that.
void Slicer::withdraw(const Run& run) {
  if (run.call != 0) gate_.offer(kCompute, {});
}

// Of the next grid slice, after the gate has let it in.
uint64_t Slicer::granted_blocks(Run& run) const {
  const GateAnswer answer = gate_.answer(kCompute);
  run.paired |= answer.resident != 0;
  if (answer.blocks == 0) return run.step;
  run.held_up = true;  // its time says nothing of grid slices of its own size
  return std::min(answer.blocks, kMostGridSlice);
}

// Persistent blocks of the next launch of them.
void Slicer::take_persistent(Run& run) {
  const GateAnswer answer = gate_.answer(kCompute);
  run.granted = answer.planned;
  run.resident = answer.resident;
  if (!answer.planned || (answer.resident == 0 && settings_.force_blocks != 0)) return;
  const uint64_t wanted = answer.resident == 0 ? best_persistent(run) : uint64_t{answer.resident} * sms_;
  run.paired |= answer.resident != 0;
  run.step = std::clamp<uint64_t>(std::min(wanted, run.most_resident * sms_), 1, run.total);
}

// Other residency is planned for it than it has, or it was launched before there was a plan.
bool Slicer::is_replanned(const Run& run) const {
  if (!gate_.is_planned(kCompute)) return false;
  return !run.granted || gate_.planned_resident(kCompute) != run.resident;
}

// Where grid slices are planned, the first one of a kernel that is known to run so is planned too: the launch itself
// has passed the gate as short work.
bool Slicer::waits_for_plan(const Run& run) {
  if (!run.kernel->cut || !gate_.is_planned(kCompute)) return false;
  gate_.cancel_grant(kCompute);
  return true;
}

}  // namespace bandsaw::runner
