// Floating point arithmetic (PTX ISA 9.7.3, 9.7.4): f32 and f64 natively, f16 and bf16 through f32 or f64 with one
// correct rounding. Directed rounding modes use AVX-512's embedded rounding, or helpers that switch MXCSR.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cfloat>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/halves.h"

namespace bandsaw::soft {
namespace {

bool is_packed(ptx::Type t) { return t == ptx::Type::kF16x2 || t == ptx::Type::kBf16x2; }
ptx::Type half_of(ptx::Type t) { return t == ptx::Type::kF16x2 ? ptx::Type::kF16 : ptx::Type::kBf16; }
bool is_half(ptx::Type t) { return t == ptx::Type::kF16 || t == ptx::Type::kBf16; }

std::string rounding_mode(const Op& op) {
  for (auto m : {"rz", "rm", "rp"})
    if (op.in->has(m)) return m;
  return "rn";
}

}  // namespace

V Emitter::flush(V v) {
  bool f64 = v->getType()->getScalarSizeInBits() == 64;
  V tiny = b_.CreateFCmpOLT(intrinsic(llvm::Intrinsic::fabs, {v}),
                            llvm::ConstantFP::get(v->getType(), f64 ? DBL_MIN : FLT_MIN));
  V zero = intrinsic(llvm::Intrinsic::copysign, {llvm::ConstantFP::get(v->getType(), 0.0), v});
  return b_.CreateSelect(tiny, zero, v);
}

V Emitter::flush_half(const Op& op, V bits16, ptx::Type type) {
  if (!op.in->has("ftz") || op.in->opcode == "cvt") return bits16;  // conversions flush their f32 alone
  auto number = [&](uint64_t value) { return llvm::ConstantInt::get(bits16->getType(), value); };
  const bool f16 = type == ptx::Type::kF16 || type == ptx::Type::kF16x2;
  V normal = b_.CreateICmpNE(b_.CreateAnd(bits16, number(f16 ? 0x7c00 : 0x7f80)), number(0));
  return b_.CreateSelect(normal, bits16, b_.CreateAnd(bits16, number(0x8000)));
}

V Emitter::finish_float(const Op& op, V v) {
  llvm::Type* t = v->getType();
  if (op.in->has("ftz") && t->getScalarSizeInBits() == 32) v = flush(v);
  if (op.in->has("sat")) {
    V zero = llvm::ConstantFP::get(t, 0.0), one = llvm::ConstantFP::get(t, 1.0);
    v = b_.CreateSelect(b_.CreateFCmpOGT(v, zero), v, zero);
    v = b_.CreateSelect(b_.CreateFCmpOLT(v, one), v, one);
  }
  if (op.in->has("relu")) {  // NaN stays (canonical)
    V zero = llvm::ConstantFP::get(t, 0.0);
    v = b_.CreateSelect(b_.CreateFCmpUGT(v, zero), v, zero);
  }
  return v;
}

// One operation with a directed rounding mode on f32 or f64 operands.
V Emitter::rounded(const std::string& code, const std::string& mode, std::vector<V> args, unsigned bits) {
  if (!m_->avx512) {
    return b_.CreateBitCast(
        lane_helper("bsw_" + code + "_" + mode + "_f" + std::to_string(bits), args, b_.getIntNTy(bits)), fty(bits));
  }
  using namespace llvm;
  bool f64 = bits == 64;
  static const std::map<std::string, std::pair<Intrinsic::ID, Intrinsic::ID>> ids = {
      {"add", {Intrinsic::x86_avx512_add_ps_512, Intrinsic::x86_avx512_add_pd_512}},
      {"sub", {Intrinsic::x86_avx512_sub_ps_512, Intrinsic::x86_avx512_sub_pd_512}},
      {"mul", {Intrinsic::x86_avx512_mul_ps_512, Intrinsic::x86_avx512_mul_pd_512}},
      {"div", {Intrinsic::x86_avx512_div_ps_512, Intrinsic::x86_avx512_div_pd_512}},
      {"sqrt", {Intrinsic::x86_avx512_sqrt_ps_512, Intrinsic::x86_avx512_sqrt_pd_512}},
      {"fma", {Intrinsic::x86_avx512_vfmadd_ps_512, Intrinsic::x86_avx512_vfmadd_pd_512}}};
  auto id = f64 ? ids.at(code).second : ids.at(code).first;
  uint32_t imm = mode == "rm" ? 9 : mode == "rp" ? 10 : mode == "rz" ? 11 : 8;
  int step = f64 ? 8 : 16;
  for (auto& a : args) a = splat(a);
  V result = nullptr;
  for (int at = 0; at < 32; at += step) {
    SmallVector<int> pick;
    for (int i = 0; i < step; ++i) pick.push_back(at + i);
    std::vector<V> part;
    for (V a : args) part.push_back(b_.CreateShuffleVector(a, pick));
    part.push_back(i32(imm));
    V r = b_.CreateIntrinsic(id, {}, part);
    SmallVector<int> widen(32, -1);
    for (int i = 0; i < step; ++i) widen[i] = i;
    V wide = b_.CreateShuffleVector(r, widen);
    if (!result) {
      result = wide;
      continue;
    }
    SmallVector<int> join;
    for (int i = 0; i < 32; ++i) join.push_back(i < at ? i : i < at + step ? 32 + i - at : -1);
    result = b_.CreateShuffleVector(result, wide, join);
  }
  return vec_ ? result : b_.CreateExtractElement(result, uint64_t{0});
}

V Emitter::float_binary(const Op& op, const std::string& code, V a, V b, ptx::Type type) {
  bool f32 = type == ptx::Type::kF32;
  if (op.in->has("ftz") && f32) {
    a = flush(a);
    b = flush(b);
  }
  std::string mode = rounding_mode(op);
  V r;
  if (mode != "rn" && !is_half(type))
    r = rounded(code, mode, {a, b}, f32 ? 32 : 64);
  else if (code == "add")
    r = b_.CreateFAdd(a, b);
  else if (code == "sub")
    r = b_.CreateFSub(a, b);
  else if (code == "mul" && type == ptx::Type::kBf16)  // floats have no room for what is below bf16's least numbers
    r = b_.CreateFMul(b_.CreateFPExt(a, fty(64)), b_.CreateFPExt(b, fty(64)));
  else if (code == "mul")
    r = b_.CreateFMul(a, b);
  else
    r = b_.CreateFDiv(a, b);
  return finish_float(op, r);
}

// Of whole lanes; uniform values are computed in place.
bool Emitter::by_halves(const Op& op, HalfOp kind, int operands) {
  const ptx::Type type = op.in->type();
  const bool mixed = op.in->type_count() > 1 && op.in->type(1) != type;
  if (!vec_ || mixed || (!is_packed(type) && !is_half(type))) return false;
  uint32_t flags = static_cast<uint32_t>(kind);
  if (type == ptx::Type::kBf16 || type == ptx::Type::kBf16x2) flags |= kHalfBf16;
  const std::pair<const char*, HalfFlag> known[] = {
      {"ftz", kHalfFtz}, {"sat", kHalfSat}, {"relu", kHalfRelu}, {"NaN", kHalfNan}, {"xorsign", kHalfXorsign}};
  for (const auto& [word, flag] : known)
    if (op.in->has(word)) flags |= flag;
  const unsigned bits = ptx::bits_of(type);
  std::vector<V> in;
  for (int i = 1; i <= operands; ++i)
    in.push_back(b_.CreateZExt(read(op.args.at(static_cast<size_t>(i)), bits), ity(32)));
  const bool pairwise = kind == HalfOp::kMin || kind == HalfOp::kMax;
  const auto step = [&](V a, V b, V c) { return lane_helper("bsw_halves", {a, b, c}, b_.getInt32Ty(), {i32(flags)}); };
  V r = step(in[0], in[1], pairwise || operands < 3 ? in[1] : in[2]);
  if (pairwise && operands == 3) r = step(r, in[2], in[2]);
  write(op, op.args[0], b_.CreateTrunc(r, ity(bits)));
  return true;
}

// Applies f to each 16-bit half (as f32) of packed operands 1..n and writes the packed result.
void Emitter::packed_halves(const Op& op, int operands, const std::function<V(std::vector<V>, ptx::Type)>& f) {
  ptx::Type type = half_of(op.in->type());
  std::vector<V> in;
  for (int i = 1; i <= operands; ++i) in.push_back(read(op.args.at(i), 32));
  V result = nullptr;
  for (int h = 0; h < 2; ++h) {
    std::vector<V> part;
    for (V v : in) {
      V bits = b_.CreateTrunc(h ? b_.CreateLShr(v, 16) : v, ity(16));
      part.push_back(f32_of_half(flush_half(op, bits, type), type));
    }
    V r = b_.CreateZExt(flush_half(op, half_of_f32(f(part, type), type), type), ity(32));
    result = h ? b_.CreateOr(result, b_.CreateShl(r, 16)) : r;
  }
  write(op, op.args[0], result);
}

void Emitter::float_arith(const Op& op) {
  ptx::Type type = op.in->type();
  const std::string& code = op.in->opcode;
  const HalfOp kind = code == "add" ? HalfOp::kAdd : code == "sub" ? HalfOp::kSub : HalfOp::kMul;
  if (by_halves(op, kind, 2)) return;
  if (is_packed(type))
    return packed_halves(op, 2, [&](std::vector<V> v, ptx::Type t) { return float_binary(op, code, v[0], v[1], t); });
  if (op.in->type_count() > 1 && op.in->type(1) != op.in->type(0)) {  // add.f32.f16: mixed precision
    ptx::Type other = op.in->type(1);
    V a = read_float(op, op.args.at(1), other), b = read_float(op, op.args.at(2), type);
    return write_float(op, op.args[0], float_binary(op, code, a, b, type), type);
  }
  if (ptx::bits_of(type) > 64 || (type != ptx::Type::kF32 && type != ptx::Type::kF64 && !is_half(type)))
    unsupported(op);
  V a = read_float(op, op.args.at(1), type), b = read_float(op, op.args.at(2), type);
  write_float(op, op.args[0], float_binary(op, code, a, b, type), type);
}

// The f64 sum made odd where it is inexact: bf16's exponents reach so far apart that an addend may decide a tie.
V Emitter::odd_sum(V a, V b, V sum) {
  V back = b_.CreateFSub(sum, a);
  V error = b_.CreateFAdd(b_.CreateFSub(a, b_.CreateFSub(sum, back)), b_.CreateFSub(b, back));
  V zero = fkonst(0, 64), bits = int_of(sum);
  V even = b_.CreateICmpEQ(b_.CreateAnd(bits, konst(1, 64)), konst(0, 64));
  V inexact = b_.CreateAnd(b_.CreateFCmpONE(error, zero), even);
  V grows = b_.CreateICmpEQ(b_.CreateFCmpOGT(error, zero), b_.CreateFCmpOGT(sum, zero));
  V odd = b_.CreateSelect(grows, b_.CreateAdd(bits, konst(1, 64)), b_.CreateSub(bits, konst(1, 64)));
  return b_.CreateBitCast(b_.CreateSelect(inexact, odd, bits), fty(64));
}

V Emitter::float_fma(const Op& op, V a, V b, V c, ptx::Type type) {
  if (is_half(type)) {  // exact product in f64, and a sum whose rounding cannot change the 11-bit result
    a = b_.CreateFPExt(a, fty(64));
    b = b_.CreateFPExt(b, fty(64));
    c = b_.CreateFPExt(c, fty(64));
    V product = b_.CreateFMul(a, b), sum = b_.CreateFAdd(product, c);
    if (type == ptx::Type::kBf16) sum = odd_sum(product, c, sum);
    return finish_float(op, sum);
  }
  bool f32 = type == ptx::Type::kF32;
  if (op.in->has("ftz") && f32) {
    a = flush(a);
    b = flush(b);
    c = flush(c);
  }
  std::string mode = rounding_mode(op);
  V r = mode == "rn" ? intrinsic(llvm::Intrinsic::fma, {a, b, c}) : rounded("fma", mode, {a, b, c}, f32 ? 32 : 64);
  return finish_float(op, r);
}

void Emitter::op_fma(const Op& op) {
  ptx::Type type = op.in->type();
  if (by_halves(op, HalfOp::kFma, 3)) return;
  if (is_packed(type))
    return packed_halves(op, 3, [&](std::vector<V> v, ptx::Type t) { return float_fma(op, v[0], v[1], v[2], t); });
  if (op.in->type_count() > 1 && op.in->type(1) != type) {
    ptx::Type other = op.in->type(1);
    V a = read_float(op, op.args.at(1), other), b = read_float(op, op.args.at(2), other),
      c = read_float(op, op.args.at(3), type);
    return write_float(op, op.args[0], float_fma(op, a, b, c, type), type);
  }
  if (type != ptx::Type::kF32 && type != ptx::Type::kF64 && !is_half(type)) unsupported(op);
  V a = read_float(op, op.args.at(1), type), b = read_float(op, op.args.at(2), type),
    c = read_float(op, op.args.at(3), type);
  write_float(op, op.args[0], float_fma(op, a, b, c, type), type);
}

void Emitter::op_float_div(const Op& op) {
  ptx::Type type = op.in->type();
  if (op.in->opcode == "rem" || (type != ptx::Type::kF32 && type != ptx::Type::kF64)) unsupported(op);
  V a = read_float(op, op.args.at(1), type), b = read_float(op, op.args.at(2), type);
  const bool fast = op.in->has("approx") || op.in->has("full");
  write_float(op, op.args[0], fast ? fast_quotient(op, a, b) : float_binary(op, "div", a, b, type), type);
}

// Of floats: the first times the second one's reciprocal. That of a subnormal has no room in a float, so it is scaled.
// Beyond 2^126 it is 0, or both are scaled before if the full range is asked for.
V Emitter::fast_quotient(const Op& op, V a, V b) {
  constexpr double kScale = 1 << 24;
  const auto number = [&](double value) { return llvm::ConstantFP::get(a->getType(), value); };
  if (op.in->has("ftz")) {
    a = flush(a);
    b = flush(b);
  }
  const bool full = op.in->has("full");
  V size = intrinsic(llvm::Intrinsic::fabs, {b});
  V small = b_.CreateFCmpOLT(size, number(FLT_MIN)), large = b_.CreateFCmpOGT(size, number(0x1p126));
  V scale = b_.CreateSelect(small, number(kScale), number(1));
  if (full) scale = b_.CreateSelect(large, number(0.25), scale);
  V reciprocal = b_.CreateFDiv(number(1), b_.CreateFMul(b, scale));
  V zero = intrinsic(llvm::Intrinsic::copysign, {number(0), b});
  if (!full) reciprocal = b_.CreateSelect(large, zero, reciprocal);
  V r = full ? b_.CreateFMul(b_.CreateFMul(a, scale), reciprocal) : b_.CreateFMul(b_.CreateFMul(a, reciprocal), scale);
  V nan = b_.CreateBitCast(llvm::ConstantInt::get(int_of(r)->getType(), 0x7fffffff), r->getType());
  return finish_float(op, b_.CreateSelect(b_.CreateFCmpUNO(r, r), nan, r));
}

V Emitter::unary_value(const Op& op, V a, ptx::Type type) {
  const std::string& code = op.in->opcode;
  bool f64 = type == ptx::Type::kF64;
  if (op.in->has("ftz") && !is_half(type)) a = flush(a);
  std::string mode = rounding_mode(op);
  V one = llvm::ConstantFP::get(a->getType(), 1.0);
  V r;
  if (code == "rcp") {
    r = mode == "rn" ? b_.CreateFDiv(one, a) : rounded("div", mode, {one, a}, f64 ? 64 : 32);
  } else if (code == "sqrt") {
    r = mode == "rn" ? intrinsic(llvm::Intrinsic::sqrt, {a}) : rounded("sqrt", mode, {a}, f64 ? 64 : 32);
  } else if (code == "rsqrt") {
    r = b_.CreateFDiv(one, intrinsic(llvm::Intrinsic::sqrt, {a}));
  } else if (f64) {
    unsupported(op);
  } else {
    r = b_.CreateBitCast(lane_helper("bsw_" + code + "_f32", {a}, b_.getInt32Ty()), fty(32));
  }
  if (f64 && op.in->has("approx") &&
      op.in->has("ftz")) {  // gross approximation: the low word is zero, subnormals are flushed
    V bits = b_.CreateAnd(int_of(flush(r)), konst(0xffffffff00000000ull, 64));
    V nan = b_.CreateFCmpUNO(r, r);
    r = b_.CreateSelect(nan, r, b_.CreateBitCast(bits, fty(64)));
  }
  return finish_float(op, r);
}

void Emitter::op_float_unary(const Op& op) {
  ptx::Type type = op.in->type();
  if (is_packed(type))
    return packed_halves(op, 1, [&](std::vector<V> v, ptx::Type t) { return unary_value(op, v[0], t); });
  if (type != ptx::Type::kF32 && type != ptx::Type::kF64 && !is_half(type)) unsupported(op);
  write_float(op, op.args.at(0), unary_value(op, read_float(op, op.args.at(1), type), type), type);
}

void Emitter::op_copysign(const Op& op) {  // d = b with the sign of a
  unsigned bits = ptx::bits_of(op.in->type());
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  V sign = konst(1ull << (bits - 1), bits);
  write(op, op.args[0], b_.CreateOr(b_.CreateAnd(a, sign), b_.CreateAnd(b, b_.CreateNot(sign))));
}

void Emitter::op_testp(const Op& op) {
  ptx::Type type = op.in->type();
  V v = read_float(op, op.args.at(1), type);
  unsigned bits = ptx::bits_of(type);
  V magnitude = intrinsic(llvm::Intrinsic::fabs, {v});
  V infinity = llvm::ConstantFP::getInfinity(v->getType());
  V smallest = fkonst(bits == 64 ? DBL_MIN : FLT_MIN, bits);
  V nan = b_.CreateFCmpUNO(v, v), inf = b_.CreateFCmpOEQ(magnitude, infinity);
  V r;
  if (op.in->has("finite"))
    r = b_.CreateFCmpOLT(magnitude, infinity);
  else if (op.in->has("infinite"))
    r = inf;
  else if (op.in->has("number"))
    r = b_.CreateNot(nan);
  else if (op.in->has("notanumber"))
    r = nan;
  else if (op.in->has("normal"))  // zero counts as normal on the hardware
    r = b_.CreateAnd(b_.CreateFCmpOLT(magnitude, infinity),
                     b_.CreateOr(b_.CreateFCmpOGE(magnitude, smallest), b_.CreateFCmpOEQ(magnitude, fkonst(0, bits))));
  else if (op.in->has("subnormal"))
    r = b_.CreateAnd(b_.CreateFCmpOLT(magnitude, smallest), b_.CreateFCmpONE(magnitude, fkonst(0, bits)));
  else
    unsupported(op);
  write(op, op.args[0], r);
}

// Both zeros are ordered, a NaN operand is ignored unless .NaN, and a NaN result is canonical.
V Emitter::min_max_value(const Op& op, V a, V b, bool is_min) {
  llvm::Type* t = a->getType();
  bool vector = t->isVectorTy();
  unsigned bits = t->getScalarSizeInBits();
  V sign = nullptr;
  if (op.in->has("xorsign")) {
    V x = b_.CreateXor(int_of(a), int_of(b));
    sign = b_.CreateAnd(x, llvm::ConstantInt::get(x->getType(), 1ull << (bits - 1)));
    a = intrinsic(llvm::Intrinsic::fabs, {a});
    b = intrinsic(llvm::Intrinsic::fabs, {b});
  }
  V less = is_min ? b_.CreateFCmpOLT(a, b) : b_.CreateFCmpOGT(a, b);
  V r = b_.CreateSelect(less, a, b);
  V same = is_min ? b_.CreateOr(int_of(a), int_of(b)) : b_.CreateAnd(int_of(a), int_of(b));
  r = b_.CreateSelect(b_.CreateFCmpOEQ(a, b), b_.CreateBitCast(same, t), r);
  V nan_a = b_.CreateFCmpUNO(a, a), nan_b = b_.CreateFCmpUNO(b, b);
  r = b_.CreateSelect(nan_b, a, r);
  if (sign) r = b_.CreateBitCast(b_.CreateOr(int_of(r), sign), t);
  V canonical = b_.CreateBitCast(
      llvm::ConstantInt::get(int_type(bits, vector), bits == 64 ? 0x7fffffffffffffffull : 0x7fffffffull), t);
  V nan = op.in->has("NaN") ? b_.CreateOr(nan_a, nan_b) : b_.CreateAnd(nan_a, nan_b);
  return b_.CreateSelect(nan, canonical, r);
}

void Emitter::float_min_max(const Op& op) {
  ptx::Type type = op.in->type();
  bool is_min = op.in->opcode == "min";
  auto all = [&](std::vector<V> v) {
    if (op.in->has("ftz") && type == ptx::Type::kF32)
      for (auto& x : v) x = flush(x);
    V r = v[0];
    for (size_t i = 1; i < v.size(); ++i) r = min_max_value(op, r, v[i], is_min);
    return r;
  };
  int n = static_cast<int>(op.args.size()) - 1;
  if (by_halves(op, is_min ? HalfOp::kMin : HalfOp::kMax, n)) return;
  if (is_packed(type)) return packed_halves(op, n, [&](std::vector<V> v, ptx::Type) { return all(v); });
  if (type != ptx::Type::kF32 && type != ptx::Type::kF64 && !is_half(type)) unsupported(op);
  std::vector<V> v;
  for (int i = 1; i <= n; ++i) v.push_back(read_float(op, op.args[i], type));
  write_float(op, op.args.at(0), all(v), type);
}

}  // namespace bandsaw::soft
