// Logic, shifts and bit fields (PTX ISA 9.7.1.14 - 9.7.1.23, 9.7.8).
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>
#include <vector>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

void Emitter::op_logic(const Op& op) {
  const std::string& code = op.in->opcode;
  ptx::Type type = op.in->type();
  if (type == ptx::Type::kPred) {
    V a = read_pred(op.args.at(1));
    if (code == "not") return write(op, op.args[0], b_.CreateNot(a));
    V b = read_pred(op.args.at(2));
    return write(op, op.args[0],
                 code == "and"  ? b_.CreateAnd(a, b)
                 : code == "or" ? b_.CreateOr(a, b)
                                : b_.CreateXor(a, b));
  }
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits);
  if (code == "not") return write(op, op.args[0], b_.CreateNot(a));
  if (code == "cnot") return write(op, op.args[0], b_.CreateZExt(b_.CreateICmpEQ(a, konst(0, bits)), ity(bits)));
  V b = read(op.args.at(2), bits);
  write(op, op.args[0], code == "and" ? b_.CreateAnd(a, b) : code == "or" ? b_.CreateOr(a, b) : b_.CreateXor(a, b));
}

// Shift amounts are 32 bits and clamp.
void Emitter::op_shift(const Op& op) {
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits), n = read(op.args.at(2), 32);
  bool left = op.in->opcode == "shl", sign = ptx::is_signed(type);
  V in_range = b_.CreateICmpULT(n, konst(bits, 32));
  if (!left && sign) n = b_.CreateSelect(in_range, n, konst(bits - 1, 32));
  V by = b_.CreateZExtOrTrunc(n, ity(bits));
  if (!left && sign) return write(op, op.args[0], b_.CreateAShr(a, by), true);
  // The out-of-range shift is poison in LLVM, so shift by zero there and select.
  by = b_.CreateSelect(in_range, by, konst(0, bits));
  V r = left ? b_.CreateShl(a, by) : b_.CreateLShr(a, by);
  write(op, op.args[0], b_.CreateSelect(in_range, r, konst(0, bits)));
}

void Emitter::op_shf(const Op& op) {
  V a = read(op.args.at(1), 32), b = read(op.args.at(2), 32), n = read(op.args.at(3), 32);
  bool left = op.in->has("l");
  if (op.in->has("clamp"))
    n = intrinsic(llvm::Intrinsic::umin, {n, konst(32, 32)});
  else
    n = b_.CreateAnd(n, konst(31, 32));
  V wide = b_.CreateOr(b_.CreateShl(b_.CreateZExt(b, ity(64)), 32), b_.CreateZExt(a, ity(64)));
  V by = b_.CreateZExt(n, ity(64));
  V r = left ? b_.CreateTrunc(b_.CreateLShr(b_.CreateShl(wide, by), 32), ity(32))
             : b_.CreateTrunc(b_.CreateLShr(wide, by), ity(32));
  write(op, op.args[0], r);
}

void Emitter::op_lop3(const Op& op) {
  if (op.in->type_count() == 0 || op.in->has("or") || op.in->has("and")) {
    // lop3.BoolOp.b32 d|p, a, b, c, immLut, q
  }
  int first = op.pair ? 2 : 1;
  V a = read(op.args.at(first), 32), b = read(op.args.at(first + 1), 32), c = read(op.args.at(first + 2), 32);
  const Arg& table = op.args.at(first + 3);
  if (table.kind != ArgKind::kInt) unsupported(op, "table must be a constant");
  uint32_t lut = table.bits & 0xff;
  V r = konst(0, 32);
  V na = b_.CreateNot(a), nb = b_.CreateNot(b), nc = b_.CreateNot(c);
  for (int i = 0; i < 8; ++i)
    if (lut >> i & 1) r = b_.CreateOr(r, b_.CreateAnd(b_.CreateAnd(i & 4 ? a : na, i & 2 ? b : nb), i & 1 ? c : nc));
  write(op, op.args[0], r);
  if (op.pair) {
    V nonzero = b_.CreateICmpNE(r, konst(0, 32));
    V q = read_pred(op.args.at(first + 4));
    write(op, op.args[1], op.in->has("or") ? b_.CreateOr(nonzero, q) : b_.CreateAnd(nonzero, q));
  }
}

void Emitter::op_count(const Op& op) {
  const std::string& code = op.in->opcode;
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  V a = read(op.args.at(1), bits);
  if (code == "brev") return write(op, op.args[0], intrinsic(llvm::Intrinsic::bitreverse, {a}));
  if (code == "popc")
    return write(op, op.args[0], b_.CreateZExtOrTrunc(intrinsic(llvm::Intrinsic::ctpop, {a}), ity(32)));
  auto leading = [&](V v) {
    if (vec_ && short_code_ && bits == 64) return lane_helper("bsw_clz_b64", {v}, b_.getInt32Ty());
    V z = b_.CreateIntrinsic(llvm::Intrinsic::ctlz, {v->getType()}, {v, b_.getFalse()});
    return b_.CreateZExtOrTrunc(z, ity(32));
  };
  if (code == "clz") return write(op, op.args[0], leading(a));
  // bfind: position of the highest bit that differs from the sign; all ones if none
  if (ptx::is_signed(type)) a = b_.CreateXor(a, b_.CreateAShr(a, bits - 1));
  V shift = leading(a);
  V position = b_.CreateSub(konst(bits - 1, 32), shift);
  V r = op.in->has("shiftamt") ? shift : position;
  write(op, op.args[0], b_.CreateSelect(b_.CreateICmpEQ(a, konst(0, bits)), konst(0xffffffffu, 32), r));
}

void Emitter::op_bitfield(const Op& op) {
  const std::string& code = op.in->opcode;
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  auto low_bits = [&](V n) {  // n ones, n in 0..bits
    V full = b_.CreateICmpUGE(n, konst(bits, 32));
    V safe = b_.CreateSelect(full, konst(0, 32), n);
    V ones = b_.CreateSub(b_.CreateShl(konst(1, bits), b_.CreateZExtOrTrunc(safe, ity(bits))), konst(1, bits));
    return b_.CreateSelect(full, konst(~0ull, bits), ones);
  };
  auto shifted = [&](V v, V n, bool left) {
    V ok = b_.CreateICmpULT(n, konst(bits, 32));
    V by = b_.CreateZExtOrTrunc(b_.CreateSelect(ok, n, konst(0, 32)), ity(bits));
    return b_.CreateSelect(ok, left ? b_.CreateShl(v, by) : b_.CreateLShr(v, by), konst(0, bits));
  };
  if (code == "bmsk") {
    V a = read(op.args.at(1), 32), n = read(op.args.at(2), 32);
    if (op.in->has("wrap")) {
      a = b_.CreateAnd(a, konst(31, 32));
      n = b_.CreateAnd(n, konst(31, 32));
    }
    return write(op, op.args[0], shifted(low_bits(n), a, true));
  }
  if (code == "szext") {
    V a = read(op.args.at(1), 32), n = read(op.args.at(2), 32);
    if (op.in->has("wrap")) n = b_.CreateAnd(n, konst(31, 32));
    V mask = low_bits(n);
    V low = b_.CreateAnd(a, mask);
    if (!ptx::is_signed(type)) return write(op, op.args[0], low);
    V sign_at = b_.CreateSub(n, konst(1, 32));
    V sign = b_.CreateAnd(shifted(a, sign_at, false), konst(1, 32));
    V in_range = b_.CreateAnd(b_.CreateICmpNE(n, konst(0, 32)), b_.CreateICmpULE(n, konst(32, 32)));
    V negative = b_.CreateAnd(b_.CreateICmpNE(sign, konst(0, 32)), in_range);
    V top = b_.CreateICmpUGT(n, konst(32, 32));
    V r = b_.CreateSelect(negative, b_.CreateOr(low, b_.CreateNot(mask)), low);
    return write(op, op.args[0], b_.CreateSelect(top, a, r));
  }
  if (code == "bfe") {
    V a = read(op.args.at(1), bits), position = b_.CreateAnd(read(op.args.at(2), 32), konst(255, 32)),
      length = b_.CreateAnd(read(op.args.at(3), 32), konst(255, 32));
    if (!ptx::is_signed(type))
      return write(op, op.args[0], b_.CreateAnd(shifted(a, position, false), low_bits(length)));
    // The sign bit is at min(position + length - 1, msb); zero-length fields are 0.
    const auto least = [&](V x, unsigned bound) { return intrinsic(llvm::Intrinsic::umin, {x, konst(bound, 32)}); };
    V left = b_.CreateSub(konst(bits, 32), least(b_.CreateAdd(position, length), bits));
    left = b_.CreateAnd(left, konst(bits - 1, 32));
    V right = b_.CreateAnd(b_.CreateAdd(left, least(position, bits - 1)), konst(bits - 1, 32));
    const auto by = [&](V n) { return b_.CreateZExtOrTrunc(n, ity(bits)); };
    V extended = b_.CreateAShr(b_.CreateShl(a, by(left)), by(right));
    V r = b_.CreateSelect(b_.CreateICmpEQ(length, konst(0, 32)), konst(0, bits), extended);
    return write(op, op.args[0], r, true);
  }
  // bfi d, a, b, position, length
  V a = read(op.args.at(1), bits), b = read(op.args.at(2), bits);
  V position = b_.CreateAnd(read(op.args.at(3), 32), konst(255, 32)),
    length = b_.CreateAnd(read(op.args.at(4), 32), konst(255, 32));
  V mask = shifted(low_bits(length), position, true);
  V in = shifted(a, position, true);
  write(op, op.args[0], b_.CreateOr(b_.CreateAnd(in, mask), b_.CreateAnd(b, b_.CreateNot(mask))));
}

void Emitter::op_prmt(const Op& op) {
  V a = read(op.args.at(1), 32), b = read(op.args.at(2), 32), c = read(op.args.at(3), 32);
  static const std::pair<const char*, int> modes[] = {{"f4e", 1}, {"b4e", 2}, {"rc8", 3},
                                                      {"ecl", 4}, {"ecr", 5}, {"rc16", 6}};
  int mode = 0;
  for (auto [name, number] : modes)
    if (op.in->has(name)) mode = number;
  if (mode != 0) return write(op, op.args[0], lane_helper("bsw_prmt", {a, b, c}, b_.getInt32Ty(), {i32(mode)}));
  if (vec_ && m_->avx2) return write(op, op.args[0], permuted_bytes(a, b, c));
  V both = b_.CreateOr(b_.CreateZExt(a, ity(64)), b_.CreateShl(b_.CreateZExt(b, ity(64)), 32));
  V r = konst(0, 32);
  for (int i = 0; i < 4; ++i) {
    V selector = b_.CreateAnd(b_.CreateLShr(c, i * 4), konst(15, 32));
    V by = b_.CreateZExt(b_.CreateShl(b_.CreateAnd(selector, konst(7, 32)), 3), ity(64));
    V byte = b_.CreateTrunc(b_.CreateLShr(both, by), ity(8));
    V sign = b_.CreateAShr(byte, 7);
    V use_sign = b_.CreateICmpNE(b_.CreateAnd(selector, konst(8, 32)), konst(0, 32));
    V v = b_.CreateZExt(b_.CreateSelect(use_sign, sign, byte), ity(32));
    r = b_.CreateOr(r, b_.CreateShl(v, i * 8));
  }
  write(op, op.args[0], r);
}

// Of each lane, by the processor's own shuffle, which takes its bytes from 16: the two words of two lanes. Words of all
// lanes are rows of four here.
V Emitter::permuted_bytes(V a, V b, V selectors) {
  const auto row = [&](std::array<uint32_t, 4> words) {
    std::vector<llvm::Constant*> all;
    for (unsigned lane = 0; lane < kLanes; ++lane) all.push_back(b_.getInt32(words[lane % 4]));
    return llvm::ConstantVector::get(all);
  };
  const auto pairs = [&](int first) {  // of lanes `first` and the next of each row
    std::vector<int> from;
    for (int at = 0; at < static_cast<int>(kLanes); at += 4)
      for (const int lane : {at + first, at + first + 1})
        from.insert(from.end(), {lane, lane + static_cast<int>(kLanes)});
    return b_.CreateShuffleVector(a, b, from);
  };
  // A selector's four bits to a byte each.
  V s = b_.CreateAnd(selectors, konst(0xffff, 32));
  s = b_.CreateAnd(b_.CreateOr(s, b_.CreateShl(s, 8)), konst(0x00ff00ff, 32));
  s = b_.CreateAnd(b_.CreateOr(s, b_.CreateShl(s, 4)), konst(0x0f0f0f0f, 32));
  constexpr uint32_t kZero = 0x80808080, kSecond = 0x08080808;
  V index = b_.CreateOr(b_.CreateAnd(s, konst(0x07070707, 32)), row({0, kSecond, 0, kSecond}));
  V low = shuffled_bytes(pairs(0), b_.CreateOr(index, row({0, 0, kZero, kZero})));
  V high = shuffled_bytes(pairs(2), b_.CreateOr(index, row({kZero, kZero, 0, 0})));
  V bytes = b_.CreateOr(low, high);
  // A selector above 7 takes the sign of its byte.
  auto* const type = bytes->getType();
  V zero = llvm::Constant::getNullValue(type);
  V of_sign = b_.CreateICmpSLT(b_.CreateBitCast(b_.CreateShl(s, 4), type), zero);
  V signs = b_.CreateSExt(b_.CreateICmpSLT(bytes, zero), type);
  return b_.CreateBitCast(b_.CreateSelect(of_sign, signs, bytes), ity(32));
}

// In each 16 bytes: those with the indices, zero for an index above 127.
V Emitter::shuffled_bytes(V words, V indices) {
  const unsigned part = m_->avx512 ? 64 : 32, all = kLanes * 4;
  const auto shuffle = m_->avx512 ? llvm::Intrinsic::x86_avx512_pshuf_b_512 : llvm::Intrinsic::x86_avx2_pshuf_b;
  auto* const type = llvm::FixedVectorType::get(b_.getInt8Ty(), all);
  V from = b_.CreateBitCast(words, type), index = b_.CreateBitCast(indices, type);
  std::vector<V> parts;
  for (unsigned at = 0; at < all; at += part) {
    const auto here = llvm::createSequentialMask(at, part, 0);
    parts.push_back(
        b_.CreateIntrinsic(shuffle, {}, {b_.CreateShuffleVector(from, here), b_.CreateShuffleVector(index, here)}));
  }
  return llvm::concatenateVectors(b_, parts);
}

void Emitter::op_dot(const Op& op) {
  bool four = op.in->opcode == "dp4a";
  bool sa = ptx::is_signed(op.in->type(0)), sb = ptx::is_signed(op.in->type(1));
  V a = read(op.args.at(1), 32), b = read(op.args.at(2), 32), sum = read(op.args.at(3), 32);
  auto part = [&](V v, int i, int bits, bool sign) {
    const int above = 32 - (i + 1) * bits;
    V top = above ? b_.CreateShl(v, above) : v;
    return sign ? b_.CreateAShr(top, 32 - bits) : b_.CreateLShr(top, 32 - bits);
  };
  int n = four ? 4 : 2;
  for (int i = 0; i < n; ++i) {
    int bi = !four && op.in->has("hi") ? i + 2 : i;
    sum = b_.CreateAdd(sum, b_.CreateMul(part(a, i, four ? 8 : 16, sa), part(b, bi, 8, sb)));
  }
  write(op, op.args[0], sum);
}

void Emitter::op_fns(const Op& op) {
  V mask = read(op.args.at(1), 32), base = read(op.args.at(2), 32), offset = read(op.args.at(3), 32);
  write(op, op.args[0], lane_helper("bsw_fns", {mask, base, offset}, b_.getInt32Ty()));
}

}  // namespace bandsaw::soft
