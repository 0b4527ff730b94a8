#include "vgpu-sched/ptx/coalescing.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace bandsaw::ptx {
namespace {

constexpr int kMostRounds = 64;     // of all steps, until what is left counts as anything
constexpr int64_t kTogether = 8;    // lanes that have a value in common: what is left between them fills a sector
constexpr int64_t kNeighbour = 16;  // bytes from lane to lane that one access's sectors still hold, as of 16-byte loads

// How a value differs between the lanes of a warp.
struct Lanes {
  enum class Kind : uint8_t { kNothing, kStride, kAnything };  // not seen yet; so much from lane to lane
  Kind kind = Kind::kNothing;
  int64_t stride = 0;  // 0: the same in all
  bool operator==(const Lanes&) const = default;
};

constexpr Lanes kSame{Lanes::Kind::kStride, 0}, kAnything{Lanes::Kind::kAnything, 0};

constexpr Lanes by(int64_t stride) { return {Lanes::Kind::kStride, stride}; }

Lanes join(const Lanes& a, const Lanes& b) {
  if (a.kind == Lanes::Kind::kNothing) return b;
  if (b.kind == Lanes::Kind::kNothing || a == b) return a;
  return kAnything;
}

Lanes sum(const Lanes& a, const Lanes& b, int64_t sign = 1) {
  if (a.kind == Lanes::Kind::kNothing || b.kind == Lanes::Kind::kNothing) return {};
  int64_t stride = 0;
  if (a.kind != Lanes::Kind::kStride || b.kind != Lanes::Kind::kStride ||
      __builtin_mul_overflow(sign, b.stride, &stride) || __builtin_add_overflow(a.stride, stride, &stride)) {
    return kAnything;
  }
  return by(stride);
}

Lanes times(const Lanes& a, int64_t factor) {
  int64_t stride = 0;
  if (a.kind != Lanes::Kind::kStride || __builtin_mul_overflow(a.stride, factor, &stride)) return a;
  return by(stride);
}

// What an operand is: how it differs, and its value where that is a constant.
struct Value {
  Lanes lanes;
  std::optional<int64_t> constant;
};

bool is_same(const Lanes& lanes) { return lanes == kSame; }

Lanes product(const Value& a, const Value& b) {
  if (b.constant) return times(a.lanes, *b.constant);
  if (a.constant) return times(b.lanes, *a.constant);
  if (a.lanes.kind == Lanes::Kind::kNothing || b.lanes.kind == Lanes::Kind::kNothing) return {};
  return is_same(a.lanes) && is_same(b.lanes) ? kSame : kAnything;
}

// Low bits are cleared: lanes next to each other have the same, as in a row of a tile.
bool is_rounded(const Value& value, const Value& mask) {
  if (!mask.constant || *mask.constant == 0 || value.lanes.kind != Lanes::Kind::kStride) return false;
  const int64_t step = *mask.constant & -*mask.constant;
  return step > 0 && std::llabs(value.lanes.stride) <= step / kTogether;
}

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class LaneFinder {
 public:
  explicit LaneFinder(const Flow& flow) : flow_(flow), nodes_(flow.nodes()) {
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      if (flow.parameter_of(node) >= 0) nodes_[node] = kSame;
    }
  }

  std::vector<bool> run() {
    bool changed = true;
    for (int round = 0; changed && round < kMostRounds; ++round) {
      changed = false;
      for (const Step& step : flow_.steps()) changed |= define(step);
    }
    std::vector<bool> found;
    for (const Step& step : flow_.steps()) found.push_back(changed || is_scattered(step));
    return found;
  }

 private:
  Value value_of(const Use& use, const Operand* operand) const {
    if (use.named == Named::kNode) return {nodes_[use.index], {}};
    if (use.named == Named::kSpecial) return {special(use, operand), {}};
    const auto* integer = operand ? operand->as<Integer>() : nullptr;
    return {kSame, integer ? std::optional(integer->value()) : std::nullopt};
  }

  static Lanes special(const Use& use, const Operand* operand) {
    if (static_cast<Special>(use.index) != Special::kThread) return kSame;
    const auto* name = operand ? operand->as<Register>() : nullptr;
    if (!name) return kAnything;
    if (name->name == "%laneid" || (name->name == "%tid" && name->component == "x")) return by(1);
    return name->name == "%tid" || name->name == "%warpid" ? kSame : kAnything;
  }

  // What the step reads, in the order of its operands, where each operand is one value.
  std::vector<Value> read(const Step& step) const {
    const auto& operands = step.instruction->operands;
    size_t count = 0;
    for (const Use& use : flow_.uses(step)) count += use.role != Role::kGuard;
    const bool plain = count == operands.size();
    std::vector<Value> values;
    size_t at = 0;
    for (const Use& use : flow_.uses(step)) {
      if (use.role == Role::kGuard) continue;
      const Operand* const operand = plain ? &operands[at] : nullptr;
      ++at;
      if (use.role == Role::kRead) values.push_back(value_of(use, operand));
    }
    return values;
  }

  static Lanes computed(const Instruction& instruction, const std::vector<Value>& values) {
    const std::string_view name = instruction.opcode;
    const auto all = [&](auto predicate) { return std::all_of(values.begin(), values.end(), predicate); };
    if (!all([](const Value& value) { return value.lanes.kind != Lanes::Kind::kNothing; })) return {};
    if (one_of(name, {"shfl", "activemask", "vote", "match"})) return kAnything;
    if (all([](const Value& value) { return is_same(value.lanes); })) return kSame;
    if (values.size() == 1 && one_of(name, {"mov", "cvt", "cvta"})) return values[0].lanes;
    if (values.size() == 1 && name == "neg") return times(values[0].lanes, -1);
    if (values.size() == 2) {
      const Value &a = values[0], &b = values[1];
      if (one_of(name, {"add", "sub"})) return sum(a.lanes, b.lanes, name == "sub" ? -1 : 1);
      if (name == "mul") return product(a, b);
      if (name == "shl" && b.constant && *b.constant >= 0 && *b.constant < 62) {
        return times(a.lanes, int64_t{1} << *b.constant);
      }
      // A row that lanes next to each other share, as in a tile.
      const bool right = name == "shr" && (!b.constant || *b.constant >= 3);
      const bool divided = name == "div" && (!b.constant || std::llabs(*b.constant) >= kTogether);
      if ((right || divided) && is_same(b.lanes) && std::llabs(a.lanes.stride) <= 1) {
        return a.lanes.kind == Lanes::Kind::kStride ? kSame : kAnything;
      }
      if (name == "and" && (is_rounded(a, b) || is_rounded(b, a))) return kSame;
      // Neighbours stay neighbours but where it wraps.
      if (one_of(name, {"and", "rem", "min", "max", "or", "xor"}) && is_same(b.lanes)) return a.lanes;
      if (one_of(name, {"and", "min", "max", "or", "xor"}) && is_same(a.lanes)) return b.lanes;
    }
    if (values.size() == 3) {
      if (one_of(name, {"mad", "fma"})) return sum(product(values[0], values[1]), values[2].lanes);
      if (name == "selp") return join(values[0].lanes, values[1].lanes);
    }
    if (values.size() == 4 && name == "bfi" && values[2].constant && *values[2].constant >= 0 &&
        *values[2].constant < 62) {
      return sum(times(values[0].lanes, int64_t{1} << *values[2].constant), values[1].lanes);
    }
    return kAnything;
  }

  Lanes result_of(const Step& step) const {
    if (step.kind == Kind::kValue) return computed(*step.instruction, read(step));
    if (step.kind != Kind::kLoad) return kAnything;
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kAddress || use.named != Named::kNode) continue;
      if (flow_.parameter_of(use.index) >= 0) return kSame;
      const Lanes& address = nodes_[use.index];
      return address.kind == Lanes::Kind::kNothing ? Lanes{} : is_same(address) ? kSame : kAnything;
    }
    return kSame;  // from a variable's own address
  }

  bool define(const Step& step) {
    std::optional<Lanes> result;
    bool changed = false;
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kResult || use.named != Named::kNode) continue;
      if (!result) result = result_of(step);
      const Lanes joined = join(nodes_[use.index], *result);
      changed |= joined != nodes_[use.index];
      nodes_[use.index] = joined;
    }
    return changed;
  }

  bool is_scattered(const Step& step) const {
    if (step.kind != Kind::kLoad && step.kind != Kind::kStore && step.kind != Kind::kAtomic) return false;
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kAddress || use.named != Named::kNode || flow_.parameter_of(use.index) >= 0) continue;
      const Lanes& address = nodes_[use.index];
      return address.kind != Lanes::Kind::kStride || std::llabs(address.stride) > kNeighbour;
    }
    return false;
  }

  const Flow& flow_;
  std::vector<Lanes> nodes_;
};

}  // namespace

std::vector<bool> scattered(const Flow& flow) { return LaneFinder(flow).run(); }

}  // namespace bandsaw::ptx
