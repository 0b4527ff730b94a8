#include "vgpu-sched/ptx/mix.h"

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

constexpr double Mix::* kCounts[] = {&Mix::float32,      &Mix::float64,       &Mix::half,         &Mix::matrix,
                                     &Mix::integer,      &Mix::special,       &Mix::move,         &Mix::load_global,
                                     &Mix::store_global, &Mix::load_shared,   &Mix::store_shared, &Mix::load_local,
                                     &Mix::store_local,  &Mix::load_constant, &Mix::texture,      &Mix::atomic,
                                     &Mix::branch,       &Mix::barrier,       &Mix::other};

double Mix::* memory_of(const Instruction& i, bool store) {
  switch (i.space()) {
    case Space::kShared:
      return store ? &Mix::store_shared : &Mix::load_shared;
    case Space::kLocal:
      return store ? &Mix::store_local : &Mix::load_local;
    case Space::kConst:
      return &Mix::load_constant;
    case Space::kParam:
      return store ? &Mix::move : &Mix::load_constant;
    default:
      return store ? &Mix::store_global : &Mix::load_global;
  }
}

double Mix::* value_of(const Instruction& i) {
  const std::string& o = i.opcode;
  if (o == "mma" || o == "wmma" || o == "movmatrix") return &Mix::matrix;
  for (std::string_view name : {"sin", "cos", "lg2", "ex2", "tanh", "rsqrt", "rcp", "sqrt"})
    if (o == name) return &Mix::special;
  for (std::string_view name : {"mov", "cvta", "selp", "slct", "cvt", "prmt", "shfl", "vote", "match", "activemask"})
    if (o == name) return &Mix::move;
  const Type type = i.type();
  if (!is_float(type)) return &Mix::integer;
  if (o == "div") return &Mix::special;
  return bits_of(type) == 64 && type == Type::kF64    ? &Mix::float64
         : type == Type::kF32 || type == Type::kF32x2 ? &Mix::float32
                                                      : &Mix::half;
}

double Mix::* count_of(const Instruction& i, Kind kind) {
  switch (kind) {
    case Kind::kValue:
      return value_of(i);
    case Kind::kLoad:
      return memory_of(i, false);
    case Kind::kStore:
      return memory_of(i, true);
    case Kind::kAtomic:
      return &Mix::atomic;
    case Kind::kCopy:
      return i.space() == Space::kGlobal ? &Mix::store_global : &Mix::load_global;
    case Kind::kBarrier:
      return &Mix::barrier;
    case Kind::kBranch:
    case Kind::kEnd:
    case Kind::kCall:
      return &Mix::branch;
    case Kind::kTexture:
      return &Mix::texture;
    default:
      return i.opcode == "wgmma" || i.opcode == "tcgen05" ? &Mix::matrix : &Mix::other;
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
  std::map<uint32_t, Mix> take() { return std::move(mixes_); }

  // After the functions that it calls, but for circles.
  const Mix& add(uint32_t f) {
    const auto known = mixes_.find(f);
    if (known != mixes_.end()) return known->second;
    const Flow flow(*facts_.functions[f].function);
    const std::vector<int> depth = depths(flow);
    const std::vector<bool> apart = scattered(flow);
    Mix mix;
    for (size_t s = 0; s < flow.steps().size(); ++s) {
      const Step& step = flow.steps()[s];
      double weight = 1;
      for (int d = 0; d < depth[s]; ++d) weight *= kRounds;
      double Mix::* count = count_of(*step.instruction, step.kind);
      mix.*count += weight;
      const Access access = access_of(*step.instruction, step.kind);
      if (access.global && apart[s]) mix.scattered += weight;
      if (count == &Mix::load_global) mix.load_global_bytes += weight * static_cast<double>(access.bytes);
      if (count == &Mix::store_global) mix.store_global_bytes += weight * static_cast<double>(access.bytes);
      for (const Use& use : flow.uses(step))
        if (step.kind == Kind::kCall && use.role == Role::kTarget && use.named == Named::kGlobal)
          if (const auto callee = facts_.function(flow.names()[use.index])) called(*callee, weight, &mix);
    }
    return mixes_.emplace(f, mix).first->second;
  }

 private:
  void called(uint32_t callee, double weight, Mix* mix) const {
    const auto found = mixes_.find(callee);
    if (found == mixes_.end()) return;
    const Mix& inner = found->second;
    for (double Mix::* count : kCounts) mix->*count = std::min(kMost, mix->*count + weight * (inner.*count));
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
  std::map<uint32_t, Mix> mixes_;
};

}  // namespace

Access access_of(const Instruction& instruction, Kind kind) {
  double Mix::* const count = count_of(instruction, kind);
  if (count == &Mix::atomic) return {true, 0};
  if (count != &Mix::load_global && count != &Mix::store_global) return {};
  return {true, bytes_of(instruction, kind)};
}

double Mix::total() const {
  double sum = 0;
  for (double Mix::* count : kCounts) sum += this->*count;
  return sum;
}

Mix mix_of(const ProgramFacts& facts, const Closure& closure) {
  Mixer mixer(facts);
  mixer.add_called(closure);
  return mixer.add(closure.functions[0]);
}

std::map<uint32_t, Mix> mixes_of_called(const ProgramFacts& facts, const Closure& closure) {
  Mixer mixer(facts);
  mixer.add_called(closure);
  return mixer.take();
}

}  // namespace bandsaw::ptx
