// What the analysis must know of an instruction: which operands it defines, and how uniform its result can be.
#pragma once

#include "backend/device/soft/codegen/flat.h"

namespace bandsaw::soft {

enum class Result : uint8_t {
  kNone,     // defines no register
  kPure,     // a function of its operands
  kLoad,     // of memory: the same for all lanes when the address is, if all lanes load together
  kWarp,     // the same for all lanes that execute it together (vote, activemask, clock)
  kVarying,  // differs from lane to lane
};

struct OpInfo {
  Result result;
  int definitions;  // how many leading args are defined (a vector counts as one)
};

OpInfo op_info(const Op& op, bool entry);
bool uniform_special(const std::string& name);  // %ctaid but not %tid
// An instruction that another lane's or warp's progress may be waited for with.
bool may_spin(const Op& op);
bool may_spin(const ptx::Instruction& in);  // no call

// Calls f(reg) for every register among the operands that the op reads.
template <class F>
void for_operands(const Op& op, int definitions, F&& f) {
  auto visit = [&](auto&& self, const Arg& a) -> void {
    if (a.reg >= 0) f(a.reg);
    for (auto& e : a.elements) self(self, e);
  };
  const bool adds = op.in->opcode == "wgmma";  // to its result
  for (size_t i = adds ? 0 : definitions; i < op.args.size(); ++i) visit(visit, op.args[i]);
}
// The guard too.
template <class F>
void for_uses(const Op& op, int definitions, F&& f) {
  if (op.guard >= 0) f(op.guard);
  for_operands(op, definitions, f);
}
template <class F>
void for_definitions(const Op& op, int definitions, F&& f) {
  for (int i = 0; i < definitions && i < static_cast<int>(op.args.size()); ++i) {
    const Arg& a = op.args[i];
    if (a.kind == ArgKind::kReg) f(a.reg);
    for (auto& e : a.elements)
      if (e.kind == ArgKind::kReg) f(e.reg);
  }
}

}  // namespace bandsaw::soft
