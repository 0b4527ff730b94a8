// cvt in all its forms (PTX ISA 9.7.9.21, 9.7.9.22).
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

using T = ptx::Type;

bool is_fp8_pair(T t) { return t == T::kE4m3x2 || t == T::kE5m2x2; }
bool plain_float(T t) { return t == T::kF16 || t == T::kBf16 || t == T::kF32 || t == T::kF64; }

std::string rounding(const Op& op) {
  for (auto m : {"rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp", "rna"})
    if (op.in->has(m)) return m;
  return "";
}

}  // namespace

V Emitter::round_to_integral(const Op& op, V f, const std::string& mode) {
  auto id = mode == "rni"   ? llvm::Intrinsic::roundeven
            : mode == "rmi" ? llvm::Intrinsic::floor
            : mode == "rpi" ? llvm::Intrinsic::ceil
                            : llvm::Intrinsic::trunc;
  return intrinsic(id, {f});
}

// Saturating. A NaN becomes 0, or the top bit where a double is the source or 64 bits are the target (PTX ISA, cvt).
V Emitter::float_to_int(const Op& op, V f, ptx::Type to, unsigned from_bits) {
  std::string mode = rounding(op);
  if (!mode.empty() && mode != "rzi") f = round_to_integral(op, f, mode);
  auto id = ptx::is_signed(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
  const unsigned to_bits = ptx::bits_of(to);
  if (vec_ && short_code_ && (to_bits == 64 || (from_bits == 64 && to_bits == 32))) {
    const std::string name = std::string("bsw_f2i_f64_") + (ptx::is_signed(to) ? "s" : "u") + std::to_string(to_bits);
    return lane_helper(name, {b_.CreateFPExt(f, fty(64))}, b_.getIntNTy(to_bits));
  }
  if (vec_ && m_->avx2 && f->getType()->getScalarSizeInBits() == 32 && to_bits <= 32)
    return saturated_word(f, ptx::is_signed(to), to_bits);
  V value = b_.CreateIntrinsic(id, {ity(to_bits), f->getType()}, {f});
  if (from_bits != 64 && to_bits != 64) return value;
  return b_.CreateSelect(b_.CreateFCmpUNO(f, f), konst(1ull << (to_bits - 1), to_bits), value);
}

// Of floats of all lanes, by the processor's own conversion, which gives 2^31 for what has no signed word. NaN is 0.
V Emitter::saturated_word(V f, bool is_signed, unsigned bits) {
  const auto at_least = [&](double bound) { return b_.CreateFCmpOGE(f, fkonst(bound, 32)); };
  const auto ones_if = [&](V condition) { return b_.CreateSExt(condition, ity(32)); };
  if (!is_signed && bits == 32) {
    f = b_.CreateSelect(b_.CreateFCmpOGT(f, fkonst(0, 32)), f, fkonst(0, 32));
    V upper = at_least(0x1p31), beyond = at_least(0x1p32);
    V less = b_.CreateFSub(f, b_.CreateSelect(upper, fkonst(0x1p31, 32), fkonst(0, 32)));
    V top = b_.CreateSelect(upper, konst(0x80000000, 32), konst(0, 32));
    return b_.CreateOr(b_.CreateXor(truncated_words(less), top), ones_if(beyond));
  }
  V r = b_.CreateXor(truncated_words(f), ones_if(at_least(0x1p31)));
  r = b_.CreateAnd(r, ones_if(b_.CreateFCmpORD(f, f)));
  if (bits == 32) return r;
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  r = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, r, konst(static_cast<uint32_t>(low), 32));
  return b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, r, konst(static_cast<uint32_t>(high), 32)),
                        ity(bits));
}

V Emitter::truncated_words(V f) {
  const unsigned part = m_->avx512 ? 16 : 8;
  std::vector<V> parts;
  for (unsigned at = 0; at < kLanes; at += part) {
    V here = b_.CreateShuffleVector(f, llvm::createSequentialMask(at, part, 0));
    if (m_->avx512) {
      V zero = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt32Ty(), part));
      constexpr int kCurrentRounding = 4;
      parts.push_back(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512, {},
                                         {here, zero, b_.getInt16(0xffff), b_.getInt32(kCurrentRounding)}));
    } else {
      parts.push_back(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvtt_ps2dq_256, {}, {here}));
    }
  }
  return llvm::concatenateVectors(b_, parts);
}

V Emitter::int_to_float(const Op& op, V i, ptx::Type from, unsigned to_bits) {
  std::string mode = rounding(op);
  if (mode == "rz" || mode == "rm" || mode == "rp") {
    std::string name = "bsw_i2f_" + mode + (ptx::is_signed(from) ? "_s64_f" : "_u64_f") + std::to_string(to_bits);
    V wide = ptx::is_signed(from) ? b_.CreateSExt(i, ity(64)) : b_.CreateZExt(i, ity(64));
    return b_.CreateBitCast(lane_helper(name, {wide}, b_.getIntNTy(to_bits)), fty(to_bits));
  }
  return ptx::is_signed(from) ? b_.CreateSIToFP(i, fty(to_bits)) : b_.CreateUIToFP(i, fty(to_bits));
}

// f64 or f32 to a narrower format, bits as integer.
V Emitter::float_narrow(const Op& op, V f, ptx::Type to) {
  std::string mode = rounding(op);
  bool directed = mode == "rz" || mode == "rm" || mode == "rp";
  unsigned have = f->getType()->getScalarSizeInBits();
  if (to == T::kF32) {
    if (have == 32) return int_of(f);
    if (directed) return lane_helper("bsw_cvt_f32_f64_" + mode, {f}, b_.getInt32Ty());
    return int_of(b_.CreateFPTrunc(f, fty(32)));
  }
  if (!directed) return half_of_f32(f, to);
  if (have == 32) f = b_.CreateFPExt(f, fty(64));
  return lane_helper(std::string("bsw_cvt_") + (to == T::kF16 ? "f16" : "bf16") + "_f64_" + mode, {f}, b_.getInt16Ty());
}

void Emitter::op_cvt(const Op& op) {
  if (op.in->has("pack")) return op_cvt_pack(op);
  T to = op.in->type(0), from = op.in->type(1);
  const Arg& d = op.args.at(0);
  const Arg& a = op.args.at(1);
  if (op.in->has("rs") || op.in->has("scaled")) unsupported(op);
  if (to == T::kF16x2 || to == T::kBf16x2 || is_fp8_pair(to)) {
    if (is_fp8_pair(from)) return cvt_from_fp8(op);
    return cvt_to_packed(op);
  }
  if (to == T::kTf32) {
    if (from != T::kF32) unsupported(op);
    uint32_t mode = op.in->has("rz") ? 1 : op.in->has("rn") ? 2 : 0;
    V v = lane_helper("bsw_cvt_tf32", {read(a, 32)}, b_.getInt32Ty(),
                      {i32(mode | (op.in->has("relu") ? 4 : 0) | (op.in->has("satfinite") ? 8 : 0))});
    return write(op, d, v);
  }
  bool to_float = plain_float(to), from_float = plain_float(from);
  if ((ptx::is_float(to) && !to_float) || (ptx::is_float(from) && !from_float)) unsupported(op);
  unsigned to_bits = ptx::bits_of(to), from_bits = ptx::bits_of(from);
  bool sat = op.in->has("sat");
  if (!to_float && !from_float) {
    V v = read(a, from_bits, ptx::is_signed(from));
    if (sat)
      v = saturate_int(v, from, to);
    else if (to_bits > from_bits)
      v = ptx::is_signed(from) ? b_.CreateSExt(v, ity(to_bits)) : b_.CreateZExt(v, ity(to_bits));
    else
      v = b_.CreateTrunc(v, ity(to_bits));
    return write(op, d, v, ptx::is_signed(to));
  }
  if (!to_float) {
    V f = read_float(op, a, from);
    if (op.in->has("ftz") && from == T::kF32) f = flush(f);
    return write(op, d, float_to_int(op, f, to, from_bits), ptx::is_signed(to));
  }
  if (!from_float) {
    V i = read(a, from_bits, ptx::is_signed(from));
    if (to == T::kF16 || to == T::kBf16) {
      V f = from_bits == 64 ? int_to_odd_f64(i, from)
                            : (ptx::is_signed(from) ? b_.CreateSIToFP(i, fty(64)) : b_.CreateUIToFP(i, fty(64)));
      if (sat) f = finish_float(op, f);
      return write(op, d, float_narrow(op, f, to));
    }
    V f = int_to_float(op, i, from, to_bits);
    return write(op, d, int_of(finish_float(op, f)));
  }
  V f = read_float(op, a, from);
  if (op.in->has("ftz") && from == T::kF32) f = flush(f);
  std::string mode = rounding(op);
  if (mode.size() == 3 && mode != "rna") f = round_to_integral(op, f, mode);
  if (sat || op.in->has("relu")) f = finish_float(op, f);
  if (to == T::kF64) {
    if (from != T::kF64) f = b_.CreateFPExt(f, fty(64));
    return write(op, d, int_of(f));
  }
  V r = float_narrow(op, f, to);
  if (op.in->has("ftz") && to == T::kF32) r = int_of(flush(b_.CreateBitCast(r, fty(32))));
  write(op, d, r);
}

// 64-bit integer to f64 rounded to odd, so that a second rounding to a narrow format is right.
V Emitter::int_to_odd_f64(V i, ptx::Type from) {
  const char* name = ptx::is_signed(from) ? "bsw_i2f_rz_s64_f64" : "bsw_i2f_rz_u64_f64";
  V toward_zero = lane_helper(name, {i}, b_.getInt64Ty());
  V f = b_.CreateBitCast(toward_zero, fty(64));
  V back = ptx::is_signed(from) ? b_.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {ity(64), f->getType()}, {f})
                                : b_.CreateIntrinsic(llvm::Intrinsic::fptoui_sat, {ity(64), f->getType()}, {f});
  V odd = b_.CreateOr(toward_zero, konst(1, 64));
  return b_.CreateBitCast(b_.CreateSelect(b_.CreateICmpEQ(back, i), toward_zero, odd), fty(64));
}

V Emitter::saturate_int(V v, ptx::Type from, ptx::Type to) {
  unsigned to_bits = ptx::bits_of(to);
  bool sign = ptx::is_signed(from);
  V wide = sign ? b_.CreateSExt(v, ity(128)) : b_.CreateZExt(v, ity(128));
  llvm::APInt low(128, 0), high(128, 0);
  if (ptx::is_signed(to)) {
    high = llvm::APInt::getSignedMaxValue(to_bits).sext(128);
    low = llvm::APInt::getSignedMinValue(to_bits).sext(128);
  } else {
    high = llvm::APInt::getMaxValue(to_bits).zext(128);
  }
  // 64 bits do when the source is at most 32 bits wide; the general case is rare.
  V lo = llvm::ConstantInt::get(wide->getType(), low), hi = llvm::ConstantInt::get(wide->getType(), high);
  V r = b_.CreateSelect(b_.CreateICmpSLT(wide, lo), lo, wide);
  r = b_.CreateSelect(b_.CreateICmpSGT(r, hi), hi, r);
  return b_.CreateTrunc(r, ity(to_bits));
}

// d = {convert(a) in the upper half, convert(b) in the lower}
void Emitter::cvt_to_packed(const Op& op) {
  T to = op.in->type(0), from = op.in->type(1);
  const Arg& d = op.args.at(0);
  if (is_fp8_pair(to)) {
    uint32_t format = (to == T::kE4m3x2 ? 0 : 1) | (op.in->has("relu") ? 2 : 0);
    V low, high;
    if (from == T::kF16x2 || from == T::kBf16x2) {
      T half = from == T::kF16x2 ? T::kF16 : T::kBf16;
      V v = read(op.args.at(1), 32);
      low = f32_of_half(b_.CreateTrunc(v, ity(16)), half);
      high = f32_of_half(b_.CreateTrunc(b_.CreateLShr(v, 16), ity(16)), half);
    } else if (from == T::kF32) {
      high = read_float(op, op.args.at(1), T::kF32);
      low = read_float(op, op.args.at(2), T::kF32);
    } else {
      unsupported(op);
    }
    return write(op, d, lane_helper("bsw_cvt_fp8x2", {high, low}, b_.getInt16Ty(), {i32(format)}));
  }
  if (from != T::kF32 || op.args.size() < 3) unsupported(op);
  T half = to == T::kF16x2 ? T::kF16 : T::kBf16;
  V parts[2];
  for (int i = 0; i < 2; ++i) {
    V f = read_float(op, op.args[2 - i], T::kF32);
    if (op.in->has("relu")) f = finish_float(op, f);
    if (op.in->has("satfinite")) {
      V limit = fkonst(half == T::kF16 ? 65504.0 : 3.3895313892515355e38, 32);
      V over = b_.CreateFCmpOGT(intrinsic(llvm::Intrinsic::fabs, {f}), limit);
      f = b_.CreateSelect(over, intrinsic(llvm::Intrinsic::copysign, {limit, f}), f);
    }
    parts[i] = b_.CreateZExt(float_narrow(op, f, half), ity(32));
  }
  write(op, d, b_.CreateOr(parts[0], b_.CreateShl(parts[1], 16)));
}

void Emitter::cvt_from_fp8(const Op& op) {
  T to = op.in->type(0), from = op.in->type(1);
  if (to != T::kF16x2) unsupported(op);
  uint32_t format = (from == T::kE4m3x2 ? 0 : 1) | (op.in->has("relu") ? 2 : 0);
  write(op, op.args.at(0),
        lane_helper("bsw_cvt_f16x2_fp8x2", {read(op.args.at(1), 16)}, b_.getInt32Ty(), {i32(format)}));
}

// cvt.pack.sat.convertType.abType{.cType} d, a, b{, c}
void Emitter::op_cvt_pack(const Op& op) {
  T to = op.in->type(0), from = op.in->type(1);
  unsigned bits = 0;
  for (auto& m : op.in->modifiers) {
    if (m == "u16" || m == "s16") {
      bits = 16;
      break;
    }
    if (m == "u8" || m == "s8") {
      bits = 8;
      break;
    }
    if (m == "u4" || m == "s4") {
      bits = 4;
      break;
    }
    if (m == "u2" || m == "s2") {
      bits = 2;
      break;
    }
  }
  if (bits < 8 || ptx::bits_of(to) != bits || ptx::bits_of(from) != 32) unsupported(op);
  auto clamp = [&](V v) {
    V t = saturate_int(v, from, to);
    return b_.CreateZExt(t, ity(32));
  };
  V a = clamp(read(op.args.at(1), 32)), b = clamp(read(op.args.at(2), 32));
  V r = b_.CreateOr(b_.CreateShl(a, bits), b);
  if (bits == 8) {
    V c = op.args.size() > 3 ? read(op.args[3], 32) : konst(0, 32);
    r = b_.CreateOr(b_.CreateShl(c, 16), r);
  }
  write(op, op.args.at(0), r);
}

}  // namespace bandsaw::soft
