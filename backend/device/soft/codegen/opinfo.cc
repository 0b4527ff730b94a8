#include "backend/device/soft/codegen/opinfo.h"

#include <set>

namespace bandsaw::soft {

bool uniform_special(const std::string& name) {
  return name != "%tid" && name != "%laneid" && !name.starts_with("%lanemask");
}

OpInfo op_info(const Op& op, bool entry) {
  const auto& in = *op.in;
  const std::string& code = in.opcode;
  static const std::set<std::string, std::less<>> none = {
      "st",      "red",         "bra",           "brx",      "ret",        "exit",           "trap",
      "brkpt",   "call",        "membar",        "fence",    "prefetch",   "prefetchu",      "nanosleep",
      "pmevent", "discard",     "applypriority", "stmatrix", "setmaxnreg", "griddepcontrol", "cp",
      "wgmma",   "stackrestore"};
  if (none.contains(code)) return {Result::kNone, 0};
  if (code == "bar" || code == "barrier") {
    if (in.has("red")) return {Result::kWarp, 1};
    return {Result::kNone, 0};
  }
  int definitions = op.pair ? 2 : 1;
  if (code == "ld" || code == "ldu") {
    auto space = in.space();
    if (space == ptx::Space::kLocal || space == ptx::Space::kNone) return {Result::kVarying, 1};
    return {Result::kLoad, 1};
  }
  if (code == "vote" || code == "redux") return {Result::kWarp, 1};
  if (code == "activemask") return {Result::kWarp, 1};
  if (code == "atom" || code == "shfl" || code == "match" || code == "elect" || code == "mma" || code == "wmma" ||
      code == "ldmatrix" || code == "movmatrix" || code == "alloca")
    return {Result::kVarying, definitions};
  if (code == "mov" && op.args.size() > 1 && op.args[1].kind == ArgKind::kSreg) {
    const std::string& name = op.args[1].name;
    if (!uniform_special(name)) return {Result::kVarying, definitions};
    if (name.starts_with("%clock") || name.starts_with("%globaltimer")) return {Result::kWarp, definitions};
  }
  // Instructions on the carry flag keep it per lane.
  if (in.has("cc") || code == "addc" || code == "subc" || code == "madc") return {Result::kVarying, definitions};
  return {Result::kPure, definitions};
}

bool may_spin(const Op& op) {
  const auto& in = *op.in;
  if (in.opcode == "atom" || in.opcode == "nanosleep" || in.opcode == "call") return true;
  if (in.opcode == "ld") {
    for (auto m : {"volatile", "relaxed", "acquire", "mmio", "cv", "cg"})
      if (in.has(m)) return true;
  }
  return false;
}

}  // namespace bandsaw::soft
