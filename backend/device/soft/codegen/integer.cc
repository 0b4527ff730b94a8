// Integer arithmetic (PTX ISA 9.7.1) and the carry flag (9.7.2).
#include <llvm/IR/Intrinsics.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {
bool packed16(ptx::Type t) { return t == ptx::Type::kU16x2 || t == ptx::Type::kS16x2; }
}  // namespace

// Runs f on the two 16-bit halves of the operands.
void Emitter::packed_integers(const Op& op, int operands, const std::function<V(std::vector<V>)>& f) {
  std::vector<V> in;
  for (int i = 1; i <= operands; ++i) in.push_back(read(op.args.at(i), 32));
  V result = nullptr;
  for (int h = 0; h < 2; ++h) {
    std::vector<V> part;
    for (V v : in) part.push_back(b_.CreateTrunc(h ? b_.CreateLShr(v, 16) : v, ity(16)));
    V r = b_.CreateZExt(f(part), ity(32));
    result = h ? b_.CreateOr(result, b_.CreateShl(r, 16)) : r;
  }
  write(op, op.args[0], result);
}

void Emitter::op_add_sub(const Op& op) {
  ptx::Type type = op.in->type();
  if (ptx::is_float(type)) return float_arith(op);
  if (op.in->has("cc")) return op_carry(op);
  bool add = op.in->opcode == "add";
  if (packed16(type))
    return packed_integers(op, 2,
                           [&](std::vector<V> v) { return add ? b_.CreateAdd(v[0], v[1]) : b_.CreateSub(v[0], v[1]); });
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  V r;
  if (op.in->has("sat"))
    r = intrinsic(add ? llvm::Intrinsic::sadd_sat : llvm::Intrinsic::ssub_sat, {a, b});
  else
    r = add ? b_.CreateAdd(a, b) : b_.CreateSub(a, b);
  write(op, op.args[0], r, ptx::is_signed(type));
}

V Emitter::multiply(const Op& op, V a, V b, ptx::Type type, unsigned* bits) {
  bool sign = ptx::is_signed(type);
  if (op.in->opcode.ends_with("24")) {
    V low_a = b_.CreateShl(a, 8), low_b = b_.CreateShl(b, 8);
    a = sign ? b_.CreateAShr(low_a, 8) : b_.CreateLShr(low_a, 8);
    b = sign ? b_.CreateAShr(low_b, 8) : b_.CreateLShr(low_b, 8);
    if (!op.in->has("hi")) return b_.CreateMul(a, b);
    V wide = b_.CreateMul(sign ? b_.CreateSExt(a, ity(64)) : b_.CreateZExt(a, ity(64)),
                          sign ? b_.CreateSExt(b, ity(64)) : b_.CreateZExt(b, ity(64)));
    return b_.CreateTrunc(b_.CreateLShr(wide, 16), ity(32));
  }
  if (op.in->has("wide") || op.in->has("hi")) {
    unsigned n = *bits;
    if (op.in->has("hi") && n == 64) return high_product64(a, b, sign);
    V x = sign ? b_.CreateSExt(a, ity(2 * n)) : b_.CreateZExt(a, ity(2 * n));
    V y = sign ? b_.CreateSExt(b, ity(2 * n)) : b_.CreateZExt(b, ity(2 * n));
    V p = b_.CreateMul(x, y);
    if (op.in->has("hi")) return b_.CreateTrunc(b_.CreateLShr(p, n), ity(n));
    *bits = 2 * n;
    return p;
  }
  return b_.CreateMul(a, b);
}

// The high half of a 64 x 64 bit product, inline from four 32 x 32 bit ones.
V Emitter::high_product64(V a, V b, bool sign) {
  if (vec_ && short_code_) return lane_helper(sign ? "bsw_mul_hi_s64" : "bsw_mul_hi_u64", {a, b}, b_.getInt64Ty());
  V mask = konst(0xffffffffu, 64);
  V al = b_.CreateAnd(a, mask), ah = b_.CreateLShr(a, 32), bl = b_.CreateAnd(b, mask), bh = b_.CreateLShr(b, 32);
  V ll = b_.CreateMul(al, bl), lh = b_.CreateMul(al, bh), hl = b_.CreateMul(ah, bl), hh = b_.CreateMul(ah, bh);
  V middle = b_.CreateAdd(b_.CreateAdd(b_.CreateLShr(ll, 32), b_.CreateAnd(lh, mask)), b_.CreateAnd(hl, mask));
  V high = b_.CreateAdd(b_.CreateAdd(hh, b_.CreateLShr(lh, 32)),
                        b_.CreateAdd(b_.CreateLShr(hl, 32), b_.CreateLShr(middle, 32)));
  if (!sign) return high;
  high = b_.CreateSub(high, b_.CreateAnd(b_.CreateAShr(a, 63), b));
  return b_.CreateSub(high, b_.CreateAnd(b_.CreateAShr(b, 63), a));
}

void Emitter::op_mul(const Op& op) {
  ptx::Type type = op.in->type();
  if (ptx::is_float(type)) return float_arith(op);
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  write(op, op.args[0], multiply(op, a, b, type, &bits), ptx::is_signed(type));
}

void Emitter::op_mad(const Op& op) {
  ptx::Type type = op.in->type();
  if (ptx::is_float(type)) return op_fma(op);
  if (op.in->has("cc")) return op_carry(op);
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  V p = multiply(op, a, b, type, &bits);
  V c = read(op.args.at(3), bits);
  V r = op.in->has("sat") ? intrinsic(llvm::Intrinsic::sadd_sat, {p, c}) : b_.CreateAdd(p, c);
  write(op, op.args[0], r, ptx::is_signed(type));
}

V Emitter::carry_read() { return b_.CreateLoad(int_type(1, true), carry_slot_); }

void Emitter::carry_write(const Op& op, V carry) {
  carry = b_.CreateSelect(lanes_of(op_mask(op)), splat(carry), carry_read());
  b_.CreateStore(carry, carry_slot_);
}

// add.cc, addc, sub.cc, subc, mad.cc, madc. A subtraction adds the complement and one, and the flag is the carry of
// that, 1 where nothing is borrowed: nvcc's division of 128 bits adds it up (PTX calls it the borrow; ptxas makes
// this).
void Emitter::op_carry(const Op& op) {
  vec_ = true;
  const std::string& code = op.in->opcode;
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  bool subtract = code.starts_with("sub");
  if (code.starts_with("mad")) {
    a = multiply(op, a, b, type, &bits);
    b = read(op.args.at(3), bits);
  }
  if (subtract) b = b_.CreateNot(b);
  const bool chained = code == "addc" || code == "subc" || code == "madc";
  V in = chained ? b_.CreateZExt(carry_read(), ity(bits)) : konst(subtract ? 1 : 0, bits);
  V sum = b_.CreateAdd(a, b), r = b_.CreateAdd(sum, in);
  V out = b_.CreateOr(b_.CreateICmpULT(sum, a), b_.CreateICmpULT(r, sum));
  if (op.in->has("cc")) carry_write(op, out);
  write(op, op.args[0], r);
}

// Division by zero is unspecified in PTX; here as the hardware answers it: all ones, also for the remainder.
void Emitter::op_div_rem(const Op& op) {
  ptx::Type type = op.in->type();
  bool div = op.in->opcode == "div";
  if (ptx::is_float(type)) return op_float_div(op);
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  if (vec_) {
    std::string name =
        std::string("bsw_") + (div ? "div_" : "rem_") + (ptx::is_signed(type) ? "s" : "u") + std::to_string(bits);
    return write(op, op.args[0], lane_helper(name, {a, b}, b_.getIntNTy(bits)), ptx::is_signed(type));
  }
  V zero = b_.CreateICmpEQ(b, konst(0, bits));
  V r;
  if (ptx::is_signed(type)) {
    V minus = b_.CreateICmpEQ(b, llvm::ConstantInt::getSigned(ity(bits), -1));
    V safe = b_.CreateSelect(b_.CreateOr(zero, minus), konst(1, bits), b);
    r = div ? b_.CreateSelect(minus, b_.CreateNeg(a), b_.CreateSDiv(a, safe))
            : b_.CreateSelect(minus, konst(0, bits), b_.CreateSRem(a, safe));
  } else {
    V safe = b_.CreateSelect(zero, konst(1, bits), b);
    r = div ? b_.CreateUDiv(a, safe) : b_.CreateURem(a, safe);
  }
  r = b_.CreateSelect(zero, konst(~0ull, bits), r);
  write(op, op.args[0], r, ptx::is_signed(type));
}

void Emitter::op_abs_neg(const Op& op) {
  ptx::Type type = op.in->type();
  bool negate = op.in->opcode == "neg";
  if (ptx::is_float(type)) {  // works on the sign bit; NaN payloads stay
    unsigned bits = ptx::bits_of(type);
    uint64_t sign = 1ull << (bits - 1);
    if (type == ptx::Type::kF16x2 || type == ptx::Type::kBf16x2) sign = 0x80008000u;
    V v = read(op.args.at(1), bits);
    if (op.in->has("ftz") && bits == 32 && type == ptx::Type::kF32) v = int_of(flush(b_.CreateBitCast(v, fty(32))));
    if (bits == 16) v = flush_half(op, v, type);
    if (sign == 0x80008000u) {
      V low = b_.CreateZExt(flush_half(op, b_.CreateTrunc(v, ity(16)), type), ity(32));
      V high = b_.CreateZExt(flush_half(op, b_.CreateTrunc(b_.CreateLShr(v, 16), ity(16)), type), ity(32));
      v = b_.CreateOr(low, b_.CreateShl(high, 16));
    }
    return write(op, op.args[0], negate ? b_.CreateXor(v, konst(sign, bits)) : b_.CreateAnd(v, konst(~sign, bits)));
  }
  unsigned bits = ptx::bits_of(type);
  V v = read(op.args.at(1), bits);
  V minus = b_.CreateNeg(v);
  write(op, op.args[0], negate ? minus : b_.CreateSelect(b_.CreateICmpSLT(v, konst(0, bits)), minus, v), true);
}

void Emitter::op_min_max(const Op& op) {
  ptx::Type type = op.in->type();
  if (ptx::is_float(type)) return float_min_max(op);
  bool min = op.in->opcode == "min", sign = ptx::is_signed(type);
  auto id = sign ? (min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax)
                 : (min ? llvm::Intrinsic::umin : llvm::Intrinsic::umax);
  auto one = [&](V a, V b) {
    V r = intrinsic(id, {a, b});
    if (op.in->has("relu")) r = intrinsic(llvm::Intrinsic::smax, {r, llvm::Constant::getNullValue(r->getType())});
    return r;
  };
  if (packed16(type)) return packed_integers(op, 2, [&](std::vector<V> v) { return one(v[0], v[1]); });
  unsigned bits = ptx::bits_of(type);
  write(op, op.args[0], one(read(op.args.at(1), bits), read(op.args.at(2), bits)), sign);
}

void Emitter::op_sad(const Op& op) {
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits), c = read(op.args.at(3), bits);
  V less = ptx::is_signed(type) ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
  V d = b_.CreateSelect(less, b_.CreateSub(b, a), b_.CreateSub(a, b));
  write(op, op.args[0], b_.CreateAdd(c, d));
}

}  // namespace bandsaw::soft
