// Loads and stores of local memory.
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

}  // namespace bandsaw::soft
