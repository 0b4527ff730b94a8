#include "vgpu-sched/ptx/access.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/flow.h"
#include "vgpu-sched/ptx/values.h"

namespace bandsaw::ptx {
namespace {

// Where an address comes from: no pointer, one of the kinds below with a number, or nobody knows.
using Origin = uint32_t;
constexpr Origin kNoPointer = 0, kUnknown = UINT32_MAX, kPrivate = UINT32_MAX - 1;
// A 64-bit parameter may be a number or a pointer; what was converted to a global address (kSure) is one.
constexpr Origin kSure = 1u << 30, kOfVariable = 1u << 29, kIndex = kOfVariable - 1;

bool merge(Origin& into, Origin from) {
  const Origin before = into;
  if (from == kNoPointer || into == from) return false;
  const bool single = into < kPrivate && from < kPrivate;
  if (into == kNoPointer)
    into = from;
  else if (single && (into & kSure) != (from & kSure))
    into = into & kSure ? into : from;  // a number added to a pointer
  else
    into = kUnknown;
  return into != before;
}

// Of a step's uses, those through which a pointer goes on.
bool carries_pointer(const Flow& flow, const Step& step, size_t use) {
  const std::string& o = step.instruction->opcode;
  if (step.kind == Kind::kStore || step.kind == Kind::kUnknown) return true;
  const Type type = step.instruction->type();
  if (type != Type::kNone && bits_of(type) < 64 && o != "mad" && o != "cvta") return false;
  if (o == "mad") return use + 1 == flow.uses(step).size();
  for (std::string_view name : {"mov", "add", "sub", "cvta", "cvt", "selp", "slct", "min", "max", "and", "or", "xor",
                                "shfl", "lop3", "prmt", "addc", "subc"})
    if (o == name) return true;
  return false;
}

class AccessFinder {
 public:
  AccessFinder(const ProgramFacts& facts, uint32_t function, std::vector<GlobalAccess>* found)
      : facts_(facts),
        number_(function),
        function_(*facts.functions[function].function),
        found_(*found),
        flow_(function_),
        values_(flow_, false, [this](const Step& step, size_t use) { return carries_pointer(flow_, step, use); }),
        origins_(values_.size()) {
    uint64_t at = 0;
    for (const Variable& parameter : function_.parameters) {
      const uint64_t alignment = std::min<uint64_t>(parameter.alignment(), kIndex);
      at = (at + alignment - 1) / alignment * alignment;
      offsets_.push_back(at);
      at = std::min<uint64_t>(at + std::min<uint64_t>(parameter.bytes(), kIndex), kIndex);
    }
  }

  void run() {
    for (size_t s = 0; s < flow_.steps().size(); ++s) source(s);
    values_.spread(&origins_, true, merge);
    for (size_t s = 0; s < flow_.steps().size(); ++s) {
      const Instruction& i = *flow_.steps()[s].instruction;
      Origin& mine = origins_[values_.step_node(s)];
      if (i.opcode == "cvta" && i.has("to") && mine != kNoPointer && mine < kPrivate) mine |= kSure;
    }
    values_.spread(&origins_, true, merge);
    for (const Step& step : flow_.steps()) access(step);
  }

 private:
  void source(size_t s) {
    const Step& step = flow_.steps()[s];
    const Instruction& i = *step.instruction;
    Origin& mine = origins_[values_.step_node(s)];
    const int64_t variable = variable_named(flow_, step);
    const int parameter = variable < 0 ? -1 : flow_.parameter_of(static_cast<uint32_t>(variable));
    if (step.kind == Kind::kLoad && parameter >= 0) {
      if (bits_of(i.type()) < 64 && i.vector() == 1) return;
      mine = function_.entry && i.vector() == 1 ? parameter_at(parameter, i) : kUnknown;
    } else if (step.kind == Kind::kLoad && variable < 0) {
      if (uint64_t{bits_of(i.type())} >= 64) mine = kUnknown;
    } else if (step.kind == Kind::kValue || step.kind == Kind::kStore) {
      for (const Use& use : flow_.uses(step)) {
        if (use.role != Role::kRead) continue;
        if (use.named == Named::kGlobal) merge(mine, variable_origin(flow_.names()[use.index]));
        if (use.named == Named::kNode && step.kind == Kind::kValue && flow_.is_variable(use.index))
          merge(mine, kPrivate);
      }
    } else {
      mine = kUnknown;
    }
  }

  Origin parameter_at(int parameter, const Instruction& load) const {
    uint64_t at = offsets_[static_cast<size_t>(parameter)];
    for (const Operand& operand : load.operands)
      if (const auto* address = operand.as<Address>()) at += static_cast<uint64_t>(address->offset);
    return at >= kIndex ? kUnknown : static_cast<Origin>(at + 1);
  }

  Origin variable_origin(std::string_view name) const {
    const auto found = facts_.variable_index.find(name);
    if (found == facts_.variable_index.end()) return kNoPointer;
    const Space space = facts_.variables[found->second].variable->space;
    if (space == Space::kShared || space == Space::kLocal || space == Space::kConst) return kPrivate;
    return kSure | kOfVariable | static_cast<Origin>(std::min<uint32_t>(found->second, kIndex));
  }

  void access(const Step& step) {
    const Instruction& i = *step.instruction;
    const Space space = i.space();
    const bool global = space == Space::kGlobal || space == Space::kNone;
    switch (step.kind) {
      case Kind::kLoad:
        if (global && variable_named(flow_, step) < 0) touch(step, address_of(step), Is::kRead);
        break;
      case Kind::kStore:
        if (global && variable_named(flow_, step) < 0) touch(step, address_of(step), Is::kWrite);
        break;
      case Kind::kAtomic:
        if (global && address_of(step) != kPrivate) once(step, "has atomic operations on global memory");
        break;
      case Kind::kCopy:
        copy(step);
        break;
      case Kind::kTexture:
        if (i.opcode == "sust" || i.opcode == "sured") touch(step, kUnknown, Is::kWrite);
        if (i.opcode == "suld") touch(step, kUnknown, Is::kRead);
        break;
      case Kind::kCall:
        called(step);
        break;
      case Kind::kUnknown:
        if (i.opcode != "mbarrier" && i.opcode != "wgmma")
          once(step, "has an instruction of unknown effect (" + i.opcode + ")");
        break;
      default:
        break;
    }
  }

  // cp.async.ca.shared.global and its like read; what goes the other way writes who knows where.
  void copy(const Step& step) {
    const Instruction& i = *step.instruction;
    if (i.operands.empty()) return;
    if (i.space() != Space::kShared || i.has("reduce")) {
      if (i.space() == Space::kGlobal || i.has("reduce")) touch(step, kUnknown, Is::kWrite);
      return;
    }
    if (i.has("bulk")) return touch(step, kUnknown, Is::kRead);
    Origin last = kUnknown;
    for (const Use& use : flow_.uses(step))
      if (use.role == Role::kAddress) last = origin_of(use);
    touch(step, last, Is::kRead);
  }

  void called(const Step& step) {
    for (const Use& use : flow_.uses(step)) {
      if (use.role != Role::kTarget) continue;
      if (use.named != Named::kGlobal) continue;  // its targets are looked at by themselves
      const std::string_view name = flow_.names()[use.index];
      if (name == "vprintf") once(step, "prints");
      if (name == "malloc" || name == "free") once(step, "allocates memory");
      if (!is_driver_function(name) && !facts_.function(name))
        once(step, "calls '" + std::string(name) + "', which is elsewhere");
    }
  }

  Origin origin_of(const Use& use) const {
    if (use.named == Named::kNode) return flow_.is_variable(use.index) ? kPrivate : origins_[use.index];
    if (use.named == Named::kGlobal) return variable_origin(flow_.names()[use.index]);
    return kUnknown;
  }

  Origin address_of(const Step& step) const {
    for (const Use& use : flow_.uses(step))
      if (use.role == Role::kAddress) return origin_of(use);
    return kUnknown;
  }

  using Is = GlobalAccess::Kind;

  GlobalAccess of(const Step& step, Is kind) const {
    const Instruction& i = *step.instruction;
    GlobalAccess made;
    made.instruction = &i;
    made.function = number_;
    made.kind = kind;
    made.constant = i.has("nc");
    for (std::string_view order : {"volatile", "relaxed", "acquire", "release", "mmio"}) made.strong |= i.has(order);
    return made;
  }

  void touch(const Step& step, Origin origin, Is kind) {
    if (origin == kPrivate) return;
    GlobalAccess made = of(step, kind);
    if (origin != kUnknown && origin != kNoPointer) {
      const bool variable = origin & kOfVariable;
      made.place = variable ? GlobalAccess::Place::kVariable : GlobalAccess::Place::kParameter;
      made.at = variable ? origin & kIndex : (origin & kIndex) - 1;
    }
    found_.push_back(std::move(made));
  }

  void once(const Step& step, std::string reason) {
    found_.push_back(of(step, Is::kOnce));
    found_.back().reason = std::move(reason);
  }

  const ProgramFacts& facts_;
  const uint32_t number_;
  const Function& function_;
  std::vector<GlobalAccess>& found_;
  const Flow flow_;
  const Values values_;
  std::vector<Origin> origins_;
  std::vector<uint64_t> offsets_;  // of parameters
};

template <class T>
bool share(const std::set<T>& a, const std::set<T>& b) {
  return std::any_of(a.begin(), a.end(), [&](const T& x) { return b.contains(x); });
}

// What the program promises not to change counts as nothing.
struct Accesses {
  std::set<size_t> reads, writes;
  std::set<std::string> variable_reads, variable_writes;
  bool unknown_read = false, unknown_write = false;
  std::string never;  // why it can never be run again

  Accesses(const ProgramFacts& facts, const std::vector<GlobalAccess>& all) {
    for (const GlobalAccess& one : all) {
      const bool write = one.kind == GlobalAccess::Kind::kWrite;
      if (one.kind == GlobalAccess::Kind::kOnce) {
        if (never.empty()) never = one.reason;
      } else if (!write && one.constant) {
        continue;
      } else if (one.place == GlobalAccess::Place::kUnknown) {
        (write ? unknown_write : unknown_read) = true;
      } else if (one.place == GlobalAccess::Place::kVariable) {
        (write ? variable_writes : variable_reads).insert(facts.variables[one.at].variable->name);
      } else {
        (write ? writes : reads).insert(one.at);
      }
    }
  }
};

}  // namespace

std::vector<GlobalAccess> global_accesses(const ProgramFacts& facts, const Closure& closure) {
  std::vector<GlobalAccess> found;
  for (const uint32_t f : closure.functions) AccessFinder(facts, f, &found).run();
  return found;
}

void find_accesses(const ProgramFacts& facts, const Closure& closure, Analysis* analysis) {
  const Accesses found(facts, global_accesses(facts, closure));
  const bool reads = found.unknown_read || !found.reads.empty() || !found.variable_reads.empty();
  const bool writes = found.unknown_write || !found.writes.empty() || !found.variable_writes.empty();
  std::string& why = analysis->not_idempotent = found.never;
  if (why.empty() && reads && writes) {
    if (found.unknown_write)
      why = "writes through a pointer that comes from memory, and reads";
    else if (found.unknown_read)
      why = "reads through a pointer that comes from memory, and writes";
    else if (share(found.reads, found.writes) || share(found.variable_reads, found.variable_writes))
      why = "reads and writes through the same pointer";
  }
  analysis->idempotence = !why.empty()      ? Idempotence::kNo
                          : reads && writes ? Idempotence::kIfDisjoint
                                            : Idempotence::kYes;
  if (analysis->idempotence != Idempotence::kIfDisjoint) return;
  analysis->reads.assign(found.reads.begin(), found.reads.end());
  analysis->writes.assign(found.writes.begin(), found.writes.end());
  analysis->variable_reads.assign(found.variable_reads.begin(), found.variable_reads.end());
  analysis->variable_writes.assign(found.variable_writes.begin(), found.variable_writes.end());
}

}  // namespace bandsaw::ptx
