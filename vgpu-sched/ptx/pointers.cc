#include "vgpu-sched/ptx/pointers.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "vgpu-sched/ptx/flow.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {
namespace {

constexpr size_t kPointersMost = 64;  // of 64 bits that are loaded; further ones are from nobody knows where
constexpr int kPassesMost = 100;      // each of them adds something

// What a value may be. Nothing of it: a number, which points nowhere by itself.
struct PointerOrigin {
  uint64_t declared = 0, plain = 0;  // bits: parameters that are pointers; that may be pointers or numbers
  bool own = false;                  // points into the kernel's own memory
  bool unknown = false;              // may be any pointer

  bool is_number() const { return declared == 0 && plain == 0 && !own && !unknown; }
  // Whether that added something.
  bool join(const PointerOrigin& other) {
    const PointerOrigin before = *this;
    declared |= other.declared, plain |= other.plain;
    own |= other.own, unknown |= other.unknown;
    return *this != before;
  }
  bool operator==(const PointerOrigin&) const = default;
};

constexpr PointerOrigin kAnyPointer{.unknown = true}, kOwnMemory{.own = true}, kJustNumber{};

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of 64 bits, made of numbers: no pointer can be put together of halves by it.
bool keeps_numbers(const Instruction& i) {
  if (i.opcode == "shl") {
    const Integer* by = i.operands.size() == 3 ? i.operands[2].as<Integer>() : nullptr;
    return by && by->bits < 32;
  }
  return is_any_of(i.opcode, {"mul", "shr", "div", "rem", "not", "neg", "abs", "bfe", "popc", "clz", "bfind", "set",
                              "setp", "fma", "sqrt", "rcp", "rsqrt", "sad", "cnot"});
}

// Its result is, or is near to, one of what it reads.
bool passes_pointers(const Instruction& i) {
  return is_any_of(i.opcode,
                   {"mov", "add", "sub", "cvta", "cvt", "selp", "slct", "min", "max", "and", "or", "xor", "shfl"});
}

class PointerFinder {
 public:
  // `offsets`: of the kernel's parameters that were loaded, shared by all of its functions.
  PointerFinder(const ProgramFacts& facts, const Function& function, std::vector<size_t>* offsets)
      : facts_(facts), function_(function), offsets_(*offsets), flow_(function), nodes_(flow_.nodes()) {
    uint64_t at = 0;
    for (const Variable& parameter : function_.parameters) {
      const uint64_t alignment = std::max<uint64_t>(parameter.alignment(), 1);
      at = (at + alignment - 1) / alignment * alignment;
      begins_.push_back(at);
      at += std::min<uint64_t>(parameter.bytes(), UINT32_MAX);
    }
  }

  // What its accesses go through; the first one of unknown effect in words.
  PointerOrigin run(std::string* why_not) {
    spread();
    for (const Step& step : flow_.steps()) {
      if (why_not->empty()) *why_not = look_at(step);
    }
    return reached_;
  }

 private:
  void spread() {
    bool changed = true;
    for (int pass = 0; changed; ++pass) {
      changed = false;
      for (const Step& step : flow_.steps()) {
        const PointerOrigin made = pass < kPassesMost ? result_of(step) : kAnyPointer;
        if (made.is_number()) continue;
        for (const Use& use : flow_.uses(step)) {
          if (use.role == Role::kResult && use.named == Named::kNode) changed |= nodes_[use.index].join(made);
        }
      }
    }
  }

  PointerOrigin result_of(const Step& step) {
    const Instruction& i = *step.instruction;
    if (step.kind == Kind::kLoad) return loaded(step);
    if (i.opcode == "mad") return addend(step);
    const bool small = i.type() != Type::kNone && bits_of(i.type()) < 64;
    if (small && (step.kind == Kind::kValue || step.kind == Kind::kAtomic || step.kind == Kind::kBarrier))
      return kJustNumber;
    if (step.kind != Kind::kValue) return kAnyPointer;
    if (i.opcode == "mov" && i.operands.size() > 1 && i.operands[1].as<Vector>()) return kAnyPointer;
    if (keeps_numbers(i)) return kJustNumber;
    return passes_pointers(i) ? passed(step) : kAnyPointer;
  }

  PointerOrigin passed(const Step& step) {
    const Instruction& i = *step.instruction;
    std::vector<PointerOrigin> read;
    for (const Use& use : flow_.uses(step)) {
      if (use.role == Role::kRead) read.push_back(of(use));
    }
    PointerOrigin all;
    // What is added to a pointer is a number, even if it could be one by where it comes from.
    const bool sum = is_any_of(i.opcode, {"add", "sub"}) && read.size() == 2;
    if (sum && read[0].declared != 0 && is_plain_number(read[1])) return read[0];
    if (sum && read[1].declared != 0 && is_plain_number(read[0]) && i.opcode == "add") return read[1];
    for (const PointerOrigin& one : read) all.join(one);
    if (i.opcode == "cvta" && (i.space() == Space::kGlobal)) {
      all.declared |= all.plain;
      all.plain = 0;
    }
    return all;
  }

  static bool is_plain_number(const PointerOrigin& one) { return one.declared == 0 && !one.own && !one.unknown; }

  // Of a * b + c.
  PointerOrigin addend(const Step& step) {
    PointerOrigin last;
    for (const Use& use : flow_.uses(step)) {
      if (use.role == Role::kRead) last = of(use);
    }
    return last;
  }

  PointerOrigin loaded(const Step& step) {
    const Instruction& i = *step.instruction;
    if (i.type() == Type::kNone) return kAnyPointer;
    if (bits_of(i.type()) < 64) return kJustNumber;
    if (!function_.entry || i.vector() != 1 || bits_of(i.type()) != 64 || i.space() != Space::kParam)
      return kAnyPointer;
    for (const Operand& operand : i.operands) {
      const auto* address = operand.as<Address>();
      if (!address || address->offset < 0 || !address->extra.empty()) continue;
      for (const Use& use : flow_.uses(step)) {
        const int parameter =
            use.role == Role::kAddress && use.named == Named::kNode ? flow_.parameter_of(use.index) : -1;
        if (parameter >= 0)
          return parameter_at(begins_[static_cast<size_t>(parameter)] + static_cast<uint64_t>(address->offset));
      }
    }
    return kAnyPointer;
  }

  PointerOrigin parameter_at(uint64_t at) {
    auto found = std::find(offsets_.begin(), offsets_.end(), at);
    if (found == offsets_.end()) {
      if (offsets_.size() == kPointersMost || at > UINT32_MAX) return kAnyPointer;
      found = offsets_.insert(found, at);
    }
    return {.plain = uint64_t{1} << (found - offsets_.begin())};
  }

  PointerOrigin of(const Use& use) const {
    if (use.named == Named::kNode) return flow_.is_variable(use.index) ? kOwnMemory : nodes_[use.index];
    if (use.named != Named::kGlobal) return kJustNumber;
    return facts_.variable_index.contains(flow_.names()[use.index]) ? kOwnMemory : kAnyPointer;
  }

  // Why what the step does may reach any memory; "": it does not, and what it reaches is noted.
  std::string look_at(const Step& step) {
    const Instruction& i = *step.instruction;
    switch (step.kind) {
      case Kind::kLoad:
      case Kind::kStore:
      case Kind::kAtomic:
        return i.opcode == "multimem" || i.has("async") ? by_itself(i) : accessed(step);
      case Kind::kOther:
        return is_any_of(i.opcode, {"prefetch", "prefetchu", "applypriority"}) ? accessed(step) : "";
      case Kind::kCopy:
        return copied(step);
      case Kind::kCall:
        return called(step);
      case Kind::kTexture:
        return "reads or writes through textures or surfaces";
      case Kind::kUnknown:
        return is_any_of(i.opcode, {"mbarrier", "wgmma", "setmaxnreg"}) ? "" : by_itself(i);
      default:
        return "";
    }
  }

  static std::string by_itself(const Instruction& i) {
    return "has an instruction of its own kind (" + i.full_name() + ")";
  }

  // Each address in it.
  std::string accessed(const Step& step) {
    const Space space = step.instruction->space();
    if (is_any_space(space, {Space::kShared, Space::kLocal, Space::kParam})) return "";
    bool any = false;
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kAddress) continue;
      any = true;
      if (const std::string why = reach(of(use)); !why.empty()) return why;
    }
    return any ? "" : "reaches an address that is a number";
  }

  static bool is_any_space(Space space, std::initializer_list<Space> spaces) {
    return std::find(spaces.begin(), spaces.end(), space) != spaces.end();
  }

  std::string reach(const PointerOrigin& origin) {
    if (origin.unknown) return "reaches memory through a pointer that is no parameter";
    if (origin.is_number()) return "reaches an address that is a number";
    reached_.join(origin);
    return "";
  }

  // cp.async.ca.shared.global [to], [from], and what waits for it; the others move more than one address says.
  std::string copied(const Step& step) {
    const Instruction& i = *step.instruction;
    const bool waits =
        std::none_of(i.operands.begin(), i.operands.end(), [](const Operand& o) { return o.as<Address>(); });
    if (!i.has("async") || i.has("reduce")) return by_itself(i);
    if (waits || i.has("mbarrier")) return i.has("bulk") && !waits ? by_itself(i) : "";
    if (i.has("bulk") || i.space() != Space::kShared || !i.has("global")) return by_itself(i);
    PointerOrigin from = kAnyPointer;
    for (const Use& use : flow_.uses(step)) {
      if (use.role == Role::kAddress) from = of(use);
    }
    return reach(from);
  }

  std::string called(const Step& step) {
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kTarget) continue;
      if (use.named != Named::kGlobal) return "calls through a pointer";
      const std::string_view name = flow_.names()[use.index];
      if (name == "__assertfail" || facts_.function(name)) return "";
      return "calls '" + std::string(name) + "'";
    }
    return "calls who knows what";
  }

  const ProgramFacts& facts_;
  const Function& function_;
  std::vector<size_t>& offsets_;
  const Flow flow_;
  std::vector<PointerOrigin> nodes_;
  std::vector<uint64_t> begins_;  // of parameters
  PointerOrigin reached_;
};

}  // namespace

PointerParameters pointer_parameters(const Program& program, std::string_view kernel) {
  const ProgramFacts& facts = program.facts();
  PointerParameters found;
  std::vector<size_t> offsets;
  std::map<size_t, bool> pointers;
  for (const uint32_t number : reach(facts, kernel).functions) {
    const Function& function = *facts.functions[number].function;
    const PointerOrigin reached = PointerFinder(facts, function, &offsets).run(&found.why_not);
    if (!found.why_not.empty()) {
      found.why_not = "'" + function.name + "' " + found.why_not;
      return found;
    }
    for (size_t bit = 0; bit < offsets.size(); ++bit) {
      const bool declared = reached.declared >> bit & 1, plain = reached.plain >> bit & 1;
      if (!declared && !plain) continue;
      const auto [known, added] = pointers.try_emplace(offsets[bit], !plain);
      if (!added) known->second &= !plain;
    }
  }
  for (const auto& [at, declared] : pointers) found.pointers.push_back({at, declared});
  return found;
}

}  // namespace bandsaw::ptx
