// set, setp, selp, slct (PTX ISA 9.7.6, 9.7.7).
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

const std::map<std::string, llvm::CmpInst::Predicate> kFloatPredicates = {
    {"eq", llvm::CmpInst::FCMP_OEQ},  {"ne", llvm::CmpInst::FCMP_ONE},  {"lt", llvm::CmpInst::FCMP_OLT},
    {"le", llvm::CmpInst::FCMP_OLE},  {"gt", llvm::CmpInst::FCMP_OGT},  {"ge", llvm::CmpInst::FCMP_OGE},
    {"equ", llvm::CmpInst::FCMP_UEQ}, {"neu", llvm::CmpInst::FCMP_UNE}, {"ltu", llvm::CmpInst::FCMP_ULT},
    {"leu", llvm::CmpInst::FCMP_ULE}, {"gtu", llvm::CmpInst::FCMP_UGT}, {"geu", llvm::CmpInst::FCMP_UGE},
    {"num", llvm::CmpInst::FCMP_ORD}, {"nan", llvm::CmpInst::FCMP_UNO}};

const std::map<std::string, std::pair<llvm::CmpInst::Predicate, llvm::CmpInst::Predicate>> kIntPredicates = {
    {"eq", {llvm::CmpInst::ICMP_EQ, llvm::CmpInst::ICMP_EQ}},
    {"ne", {llvm::CmpInst::ICMP_NE, llvm::CmpInst::ICMP_NE}},
    {"lt", {llvm::CmpInst::ICMP_ULT, llvm::CmpInst::ICMP_SLT}},
    {"le", {llvm::CmpInst::ICMP_ULE, llvm::CmpInst::ICMP_SLE}},
    {"gt", {llvm::CmpInst::ICMP_UGT, llvm::CmpInst::ICMP_SGT}},
    {"ge", {llvm::CmpInst::ICMP_UGE, llvm::CmpInst::ICMP_SGE}},
    {"lo", {llvm::CmpInst::ICMP_ULT, llvm::CmpInst::ICMP_ULT}},
    {"ls", {llvm::CmpInst::ICMP_ULE, llvm::CmpInst::ICMP_ULE}},
    {"hi", {llvm::CmpInst::ICMP_UGT, llvm::CmpInst::ICMP_UGT}},
    {"hs", {llvm::CmpInst::ICMP_UGE, llvm::CmpInst::ICMP_UGE}}};

// The comparison is the first modifier that is one; the boolean operation comes after it.
std::string comparison(const Op& op) {
  for (auto& m : op.in->modifiers)
    if (kFloatPredicates.contains(m) || kIntPredicates.contains(m)) return m;
  return "";
}

}  // namespace

V Emitter::compare_values(const Op& op, const std::string& cmp, V a, V b, ptx::Type type) {
  if (ptx::is_float(type)) {
    auto it = kFloatPredicates.find(cmp);
    if (it == kFloatPredicates.end()) unsupported(op);
    if (op.in->has("ftz") && type == ptx::Type::kF32) {
      a = flush(a);
      b = flush(b);
    }
    return b_.CreateFCmp(it->second, a, b);
  }
  auto it = kIntPredicates.find(cmp);
  if (it == kIntPredicates.end()) unsupported(op);
  return b_.CreateICmp(ptx::is_signed(type) ? it->second.second : it->second.first, a, b);
}

V Emitter::compare(const Op& op, const std::string& cmp, const Arg& a, const Arg& b, ptx::Type type) {
  if (ptx::is_float(type)) return compare_values(op, cmp, read_float(op, a, type), read_float(op, b, type), type);
  if (type == ptx::Type::kPred) unsupported(op);
  unsigned bits = ptx::bits_of(type);
  return compare_values(op, cmp, read(a, bits), read(b, bits), type);
}

V Emitter::combine(const Op& op, V value, size_t third) {
  if (op.args.size() <= third) return value;
  V c = read_pred(op.args[third]);
  if (op.in->has("and")) return b_.CreateAnd(value, c);
  if (op.in->has("or")) return b_.CreateOr(value, c);
  if (op.in->has("xor")) return b_.CreateXor(value, c);
  unsupported(op);
}

void Emitter::op_setp(const Op& op) {
  std::string cmp = comparison(op);
  ptx::Type type = op.in->type();
  size_t first = op.pair ? 2 : 1;
  if (type == ptx::Type::kF16x2 || type == ptx::Type::kBf16x2) {  // p: low halves, q: high halves
    ptx::Type half = type == ptx::Type::kF16x2 ? ptx::Type::kF16 : ptx::Type::kBf16;
    V a = read(op.args.at(first), 32), b = read(op.args.at(first + 1), 32);
    for (int h = 0; h < (op.pair ? 2 : 1); ++h) {
      auto part = [&](V v) {
        V bits = b_.CreateTrunc(h ? b_.CreateLShr(v, 16) : v, ity(16));
        return f32_of_half(flush_half(op, bits, half), half);
      };
      V r = compare_values(op, cmp, part(a), part(b), half);
      write(op, op.args[h], combine(op, r, first + 2));
    }
    return;
  }
  V r = compare(op, cmp, op.args.at(first), op.args.at(first + 1), type);
  V p = combine(op, r, first + 2);
  V q = op.pair ? combine(op, b_.CreateNot(r), first + 2) : nullptr;
  write(op, op.args[0], p);
  if (q) write(op, op.args[1], q);
}

void Emitter::op_set(const Op& op) {
  std::string cmp = comparison(op);
  ptx::Type to = op.in->type(0), type = op.in->type(1);
  auto value = [&](V r, ptx::Type t) -> V {
    unsigned bits = ptx::bits_of(t);
    if (!ptx::is_float(t)) return b_.CreateSExt(r, ity(bits));
    uint64_t one = t == ptx::Type::kF32 ? 0x3f800000u : t == ptx::Type::kF16 ? 0x3c00u : 0x3f80u;
    return b_.CreateSelect(r, konst(one, bits), konst(0, bits));
  };
  if (type == ptx::Type::kF16x2 || type == ptx::Type::kBf16x2) {
    ptx::Type half = type == ptx::Type::kF16x2 ? ptx::Type::kF16 : ptx::Type::kBf16;
    V a = read(op.args.at(1), 32), b = read(op.args.at(2), 32), all = nullptr;
    for (int h = 0; h < 2; ++h) {
      auto part = [&](V v) {
        V bits = b_.CreateTrunc(h ? b_.CreateLShr(v, 16) : v, ity(16));
        return f32_of_half(flush_half(op, bits, half), half);
      };
      V r = combine(op, compare_values(op, cmp, part(a), part(b), half), 3);
      V bits = ptx::is_float(to) ? value(r, half) : b_.CreateSExt(r, ity(16));
      V wide = b_.CreateZExt(bits, ity(32));
      all = h ? b_.CreateOr(all, b_.CreateShl(wide, 16)) : wide;
    }
    return write(op, op.args.at(0), all);
  }
  V r = combine(op, compare(op, cmp, op.args.at(1), op.args.at(2), type), 3);
  write(op, op.args.at(0), value(r, to));
}

void Emitter::op_selp(const Op& op) {
  unsigned bits = ptx::bits_of(op.in->type());
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  write(op, op.args.at(0), b_.CreateSelect(read_pred(op.args.at(3)), a, b));
}

void Emitter::op_slct(const Op& op) {
  unsigned bits = ptx::bits_of(op.in->type(0));
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits), c;
  if (op.in->type(1) == ptx::Type::kF32) {
    V f = read_float(op, op.args.at(3), ptx::Type::kF32);
    if (op.in->has("ftz")) f = flush(f);
    c = b_.CreateFCmpOGE(f, fkonst(0, 32));
  } else {
    c = b_.CreateICmpSGE(read(op.args.at(3), 32), konst(0, 32));
  }
  write(op, op.args.at(0), b_.CreateSelect(c, a, b));
}

}  // namespace bandsaw::soft
