// Loads and stores of local memory, and what functions take of it as they run.
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

// Local memory: words of the 32 lanes lie side by side, so one offset for all lanes is one vector access.
std::vector<V> Emitter::load_local(const Op& op, const Location& l, unsigned bytes, unsigned count) {
  if (l.address->getType()->isVectorTy()) return load_slow(op, l, bytes, count, op_mask(op));
  V checked = nullptr;
  V pointer = local_pointer(op, l, uint64_t{bytes} * count, &checked);
  std::vector<V> values;
  auto word = [&](unsigned i) {
    return b_.CreateAlignedLoad(int_type(32, true), b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, i * 128ull),
                                llvm::Align(64));
  };
  for (unsigned i = 0; i < count; ++i) {
    if (bytes == 4) {
      values.push_back(word(i));
    } else if (bytes == 8) {
      V low = b_.CreateZExt(word(2 * i), int_type(64, true)), high = b_.CreateZExt(word(2 * i + 1), int_type(64, true));
      values.push_back(b_.CreateOr(low, b_.CreateShl(high, 32)));
    } else {
      V offset = b_.CreateAdd(checked, i64(i * bytes));
      V base = b_.CreateGEP(b_.getInt8Ty(), local_base_, b_.CreateShl(b_.CreateLShr(offset, 2), 7));
      V w = b_.CreateAlignedLoad(int_type(32, true), base, llvm::Align(64));
      V shift = b_.CreateTrunc(b_.CreateShl(b_.CreateAnd(offset, i64(3)), 3), b_.getInt32Ty());
      values.push_back(b_.CreateTrunc(b_.CreateLShr(w, splat(shift)), int_type(bytes * 8, true)));
    }
  }
  return values;
}

// Checks [offset, +bytes) of an aligned uniform local access and returns the pointer to its first word. *checked: the
// offset, which is 0 where it was wrong and no lane is active.
V Emitter::local_pointer(const Op& op, const Location& l, uint64_t bytes, V* checked) {
  V offset = address_of(l);
  V limit =
      b_.CreateZExt(state_field(offsetof(WarpState, local_bytes), b_.getInt32Ty(), "local_bytes"), b_.getInt64Ty());
  V ok = b_.CreateAnd(b_.CreateICmpULE(b_.CreateAdd(offset, i64(bytes)), limit), b_.CreateICmpULE(offset, limit));
  ok = b_.CreateAnd(ok, b_.CreateICmpEQ(b_.CreateAnd(offset, i64(bytes - 1)), i64(0)));
  auto* bad = llvm::BasicBlock::Create(c_, "bad", fn_);
  auto* good = llvm::BasicBlock::Create(c_, "good", fn_);
  likely(ok, good, bad);
  b_.SetInsertPoint(bad);
  call_helper("bsw_bad_local", b_.getVoidTy(), {warp_, op_mask(op), offset, i32(bytes)});
  b_.CreateBr(good);
  b_.SetInsertPoint(good);
  offset = b_.CreateSelect(ok, offset, i64(0));
  if (checked) *checked = offset;
  return b_.CreateGEP(b_.getInt8Ty(), local_base_, b_.CreateShl(b_.CreateLShr(offset, 2), 7));
}

void Emitter::store_local(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values) {
  V mask = op_mask(op);
  if (l.address->getType()->isVectorTy() || bytes < 4) return store_slow(op, l, bytes, values, mask);
  V pointer = local_pointer(op, l, bytes * values.size());
  V lanes = lanes_of(mask);
  auto word = [&](V v, unsigned i) {
    b_.CreateMaskedStore(v, b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, i * 128ull), llvm::Align(64), lanes);
  };
  for (unsigned i = 0; i < values.size(); ++i) {
    V v = splat(values[i]);
    if (bytes == 4) {
      word(v, i);
    } else {
      word(b_.CreateTrunc(v, int_type(32, true)), 2 * i);
      word(b_.CreateTrunc(b_.CreateLShr(v, 32), int_type(32, true)), 2 * i + 1);
    }
  }
}

// A function gives back what it has taken when it returns.
void Emitter::keep_stack() {
  if (entry_ || !f_.uses_alloca) return;
  kept_stack_ = variable(int_type(32, true), "stack");
  b_.CreateStore(stack_tops(), kept_stack_);
}

void Emitter::give_stack_back() {
  if (!kept_stack_) return;
  b_.CreateAlignedStore(b_.CreateLoad(int_type(32, true), kept_stack_), state_ptr(offsetof(WarpState, stack_top)),
                        llvm::Align(4));
}

V Emitter::stack_tops() {
  return b_.CreateAlignedLoad(int_type(32, true), state_ptr(offsetof(WarpState, stack_top)), llvm::Align(4));
}

void Emitter::op_alloca(const Op& op) {
  constexpr uint64_t kLeast = 16, kMost = 1 << 16;
  vec_ = true;
  const unsigned bits = ptx::bits_of(op.in->type());
  uint64_t align = kLeast;
  if (op.args.size() > 2) {
    if (op.args[2].kind != ArgKind::kInt || !llvm::isPowerOf2_64(op.args[2].bits) || op.args[2].bits > kMost)
      unsupported(op, "alignment");
    align = std::max(align, op.args[2].bits);
  }
  V bytes = b_.CreateZExt(read(op.args.at(1), bits), int_type(64, true));
  V at = lane_helper("bsw_alloca", {bytes}, b_.getInt64Ty(), {warp_, op_mask(op), i64(align)});
  write(op, op.args.at(0), b_.CreateTrunc(at, int_type(bits, true)));
}

// stacksave and stackrestore: how much is taken.
void Emitter::op_stack(const Op& op) {
  vec_ = true;
  const unsigned bits = ptx::bits_of(op.in->type());
  if (op.in->opcode == "stacksave") return write(op, op.args.at(0), b_.CreateZExt(stack_tops(), int_type(bits, true)));
  V tops = b_.CreateTrunc(read(op.args.at(0), bits), int_type(32, true));
  b_.CreateAlignedStore(b_.CreateSelect(lanes_of(op_mask(op)), tops, stack_tops()),
                        state_ptr(offsetof(WarpState, stack_top)), llvm::Align(4));
}

}  // namespace bandsaw::soft
