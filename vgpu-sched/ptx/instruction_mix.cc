#include "vgpu-sched/ptx/instruction_mix.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/coalescing.h"
#include "vgpu-sched/ptx/flow.h"

namespace bandsaw::ptx {
namespace {

constexpr int kMaxDepth = 6;
constexpr double kRounds = 10;  // of a loop
constexpr double kMost = 1e15;  // calls within calls grow fast

constexpr double InstructionMix::* kCounts[] = {
    &InstructionMix::float32,     &InstructionMix::float64,       &InstructionMix::half,
    &InstructionMix::matrix,      &InstructionMix::integer,       &InstructionMix::special,
    &InstructionMix::move,        &InstructionMix::load_global,   &InstructionMix::store_global,
    &InstructionMix::load_shared, &InstructionMix::store_shared,  &InstructionMix::load_local,
    &InstructionMix::store_local, &InstructionMix::load_constant, &InstructionMix::texture,
    &InstructionMix::atomic,      &InstructionMix::branch,        &InstructionMix::barrier,
    &InstructionMix::other};

double InstructionMix::* memory_of(const Instruction& i, bool store) {
  switch (i.space()) {
    case Space::kShared:
      return store ? &InstructionMix::store_shared : &InstructionMix::load_shared;
    case Space::kLocal:
      return store ? &InstructionMix::store_local : &InstructionMix::load_local;
    case Space::kConst:
      return &InstructionMix::load_constant;
    case Space::kParam:
      return store ? &InstructionMix::move : &InstructionMix::load_constant;
    default:
      return store ? &InstructionMix::store_global : &InstructionMix::load_global;
  }
}

double InstructionMix::* value_of(const Instruction& i) {
  const std::string& o = i.opcode;
  if (o == "mma" || o == "wmma" || o == "movmatrix") return &InstructionMix::matrix;
  for (std::string_view name : {"sin", "cos", "lg2", "ex2", "tanh", "rsqrt", "rcp", "sqrt"})
    if (o == name) return &InstructionMix::special;
  for (std::string_view name : {"mov", "cvta", "selp", "slct", "cvt", "prmt", "shfl", "vote", "match", "activemask"})
    if (o == name) return &InstructionMix::move;
  const Type type = i.type();
  if (!is_float(type)) return &InstructionMix::integer;
  if (o == "div") return &InstructionMix::special;
  return bits_of(type) == 64 && type == Type::kF64    ? &InstructionMix::float64
         : type == Type::kF32 || type == Type::kF32x2 ? &InstructionMix::float32
                                                      : &InstructionMix::half;
}

double InstructionMix::* count_of(const Instruction& i, Kind kind) {
  switch (kind) {
    case Kind::kValue:
      return value_of(i);
    case Kind::kLoad:
      return memory_of(i, false);
    case Kind::kStore:
      return memory_of(i, true);
    case Kind::kAtomic:
      return &InstructionMix::atomic;
    case Kind::kCopy:
      return i.space() == Space::kGlobal ? &InstructionMix::store_global : &InstructionMix::load_global;
    case Kind::kBarrier:
      return &InstructionMix::barrier;
    case Kind::kBranch:
    case Kind::kEnd:
    case Kind::kCall:
      return &InstructionMix::branch;
    case Kind::kTexture:
      return &InstructionMix::texture;
    default:
      return i.opcode == "wgmma" || i.opcode == "tcgen05" ? &InstructionMix::matrix : &InstructionMix::other;
  }
}

uint64_t bytes_of(const Instruction& i, Kind kind) {
  if (kind == Kind::kCopy) {
    const auto* size = i.operands.size() > 2 ? i.operands[2].as<Integer>() : nullptr;
    return size ? std::min<uint64_t>(size->bits, 16) : 0;
  }
  return i.vector() * bits_of(i.type()) / 8;
}

class Mixer {
 public:
  explicit Mixer(const ProgramFacts& facts) : facts_(facts) {}

  // Functions come after their callers there, mostly: what stands last is added first.
  void add_called(const Closure& closure) {
    for (size_t f = closure.functions.size(); f-- > 1;) add(closure.functions[f]);
  }
  std::map<uint32_t, InstructionMix> take() { return std::move(mixes_); }

  // After the functions that it calls, but for circles.
  const InstructionMix& add(uint32_t f) {
    const auto known = mixes_.find(f);
    if (known != mixes_.end()) return known->second;
    const Flow flow(*facts_.functions[f].function);
    const std::vector<int> depth = depths(flow);
    const std::vector<bool> apart = scattered(flow);
    InstructionMix mix;
    for (size_t s = 0; s < flow.steps().size(); ++s) {
      const Step& step = flow.steps()[s];
      double weight = 1;
      for (int d = 0; d < depth[s]; ++d) weight *= kRounds;
      double InstructionMix::* count = count_of(*step.instruction, step.kind);
      mix.*count += weight;
      const Access access = access_of(*step.instruction, step.kind);
      if (access.global && apart[s]) mix.scattered += weight;
      if (count == &InstructionMix::load_global) mix.load_global_bytes += weight * static_cast<double>(access.bytes);
      if (count == &InstructionMix::store_global) mix.store_global_bytes += weight * static_cast<double>(access.bytes);
      for (const Use& use : flow.uses(step))
        if (step.kind == Kind::kCall && use.role == Role::kTarget && use.named == Named::kGlobal)
          if (const auto callee = facts_.function(flow.names()[use.index])) called(*callee, weight, &mix);
    }
    return mixes_.emplace(f, mix).first->second;
  }

 private:
  void called(uint32_t callee, double weight, InstructionMix* mix) const {
    const auto found = mixes_.find(callee);
    if (found == mixes_.end()) return;
    const InstructionMix& inner = found->second;
    for (double InstructionMix::* count : kCounts) mix->*count = std::min(kMost, mix->*count + weight * (inner.*count));
    mix->scattered = std::min(kMost, mix->scattered + weight * inner.scattered);
    mix->load_global_bytes = std::min(kMost, mix->load_global_bytes + weight * inner.load_global_bytes);
    mix->store_global_bytes = std::min(kMost, mix->store_global_bytes + weight * inner.store_global_bytes);
  }

  // In how many loops a step lies: from a branch's target that stands before it to the last such branch.
  static std::vector<int> depths(const Flow& flow) {
    std::map<uint32_t, uint32_t> loops;
    for (size_t s = 0; s < flow.steps().size(); ++s)
      for (const uint32_t target : flow.targets(s))
        if (target <= s) loops[target] = static_cast<uint32_t>(s);
    std::vector<int> change(flow.steps().size() + 1), depth(flow.steps().size());
    for (const auto& [first, last] : loops) ++change[first], --change[last + 1];
    int now = 0;
    for (size_t s = 0; s < depth.size(); ++s) {
      now += change[s];
      depth[s] = std::min(now, kMaxDepth);
    }
    return depth;
  }

  const ProgramFacts& facts_;
  std::map<uint32_t, InstructionMix> mixes_;
};

}  // namespace

Access access_of(const Instruction& instruction, Kind kind) {
  double InstructionMix::* const count = count_of(instruction, kind);
  if (count == &InstructionMix::atomic) return {true, 0};
  if (count != &InstructionMix::load_global && count != &InstructionMix::store_global) return {};
  return {true, bytes_of(instruction, kind)};
}

double InstructionMix::total() const {
  double sum = 0;
  for (double InstructionMix::* count : kCounts) sum += this->*count;
  return sum;
}

InstructionMix instruction_mix_of(const ProgramFacts& facts, const Closure& closure) {
  Mixer mixer(facts);
  mixer.add_called(closure);
  return mixer.add(closure.functions[0]);
}

std::map<uint32_t, InstructionMix> instruction_mixes_of_called(const ProgramFacts& facts, const Closure& closure) {
  Mixer mixer(facts);
  mixer.add_called(closure);
  return mixer.take();
}

}  // namespace bandsaw::ptx
