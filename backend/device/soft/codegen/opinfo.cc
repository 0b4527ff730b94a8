#include "backend/device/soft/codegen/opinfo.h"

#include <algorithm>
#include <set>

namespace bandsaw::soft {

bool uniform_special(const std::string& name) {
  return name != "%tid" && name != "%laneid" && !name.starts_with("%lanemask");
}

// What the special registers among the sources make of a result: mov and cvt take them, also inside a vector.
static Result special_result(const Op& op, size_t definitions) {
  Result result = Result::kPure;
  const auto visit = [&](auto&& self, const Arg& a) -> void {
    for (const Arg& e : a.elements) self(self, e);
    if (a.kind != ArgKind::kSreg || result == Result::kVarying) return;
    if (!uniform_special(a.name))
      result = Result::kVarying;
    else if (a.name.starts_with("%clock") || a.name.starts_with("%globaltimer"))
      result = Result::kWarp;
  };
  for (size_t i = definitions; i < op.args.size(); ++i) visit(visit, op.args[i]);
  return result;
}

OpInfo op_info(const Op& op, bool entry) {
  const auto& in = *op.in;
  const std::string& code = in.opcode;
  static const std::set<std::string, std::less<>> none = {
      "st",        "red",          "bra",           "brx",      "ret",        "exit",           "trap",
      "brkpt",     "call",         "membar",        "fence",    "prefetch",   "prefetchu",      "nanosleep",
      "pmevent",   "discard",      "applypriority", "stmatrix", "setmaxnreg", "griddepcontrol", "cp",
      "tensormap", "stackrestore", "sust",          "sured"};
  if (none.contains(code)) return {Result::kNone, 0};
  if (code == "clusterlaunchcontrol" && in.has("try_cancel")) return {Result::kNone, 0};
  if (code == "bar" || code == "barrier") {
    if (in.has("red")) return {Result::kWarp, 1};
    return {Result::kNone, 0};
  }
  const int definitions = op.pair ? 2 : 1;
  if (code == "ld" || code == "ldu") {
    auto space = in.space();
    if (space == ptx::Space::kLocal || space == ptx::Space::kNone) return {Result::kVarying, 1};
    return {Result::kLoad, 1};
  }
  if (code == "tex" || code == "tld4" || code == "suld") return {Result::kLoad, definitions};
  if (code == "wmma" && in.has("store")) return {Result::kNone, 0};
  if (code == "wgmma") return in.has("mma_async") ? OpInfo{Result::kVarying, 1} : OpInfo{Result::kNone, 0};
  if (code == "mbarrier") {
    if (in.has("pending_count")) return {Result::kPure, 1};
    const bool result = !op.args.empty() && op.args[0].kind != ArgKind::kAddress;
    return result ? OpInfo{Result::kVarying, 1} : OpInfo{Result::kNone, 0};
  }
  if (code == "multimem") return in.has("ld_reduce") ? OpInfo{Result::kPure, 1} : OpInfo{Result::kNone, 0};
  if (code == "vote" || code == "redux") return {Result::kWarp, 1};
  if (code == "activemask") return {Result::kWarp, 1};
  if (code == "atom" || code == "shfl" || code == "match" || code == "elect" || code == "mma" || code == "wmma" ||
      code == "ldmatrix" || code == "movmatrix" || code == "alloca" || code == "stacksave")
    return {Result::kVarying, definitions};
  if (const Result read = special_result(op, static_cast<size_t>(definitions)); read != Result::kPure)
    return {read, definitions};
  // Instructions on the carry flag keep it per lane.
  if (in.has("cc") || code == "addc" || code == "subc" || code == "madc") return {Result::kVarying, definitions};
  return {Result::kPure, definitions};
}

bool may_spin(const ptx::Instruction& in) {
  if (in.opcode == "atom" || in.opcode == "nanosleep") return true;
  if (in.opcode == "mbarrier" && (in.has("test_wait") || in.has("try_wait"))) return true;
  if (in.opcode == "ld") {
    for (auto m : {"volatile", "relaxed", "acquire", "mmio", "cv", "cg"})
      if (in.has(m)) return true;
  }
  return false;
}

bool may_spin(const Op& op) {
  if (op.in->opcode != "call") return may_spin(*op.in);
  // A failed assertion ends the kernel: the way on past it has waited for nothing.
  return std::none_of(op.args.begin(), op.args.end(),
                      [](const Arg& arg) { return arg.kind == ArgKind::kFunction && arg.name == "__assertfail"; });
}

}  // namespace bandsaw::soft
