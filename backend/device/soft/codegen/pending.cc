// Which blocks of a region lanes wait for: a bit for each. LLVM computes with all of them at once, as one integer;
// where they are very many that takes it minutes, and helpers go through them instead.
#include <llvm/IR/Intrinsics.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

constexpr unsigned kMostBits = 512;  // that LLVM computes with

}  // namespace

bool Emitter::is_wide(const RegionState& region) { return region.bits_type->getIntegerBitWidth() > kMostBits; }

llvm::ConstantInt* Emitter::words_of(const RegionState& region) {
  return i32(region.bits_type->getIntegerBitWidth() / 64);
}

V Emitter::any_pending(const RegionState& r) {
  if (is_wide(r)) return call_helper("bsw_any_bit", b_.getInt1Ty(), {r.bits, words_of(r)});
  return b_.CreateICmpNE(b_.CreateLoad(r.bits_type, r.bits), llvm::ConstantInt::get(r.bits_type, 0));
}

// Of the blocks up to this one.
V Emitter::none_until(const RegionState& r, unsigned index) {
  if (is_wide(r)) return b_.CreateNot(call_helper("bsw_any_bit_until", b_.getInt1Ty(), {r.bits, i32(index)}));
  const unsigned width = r.bits_type->getIntegerBitWidth();
  V until = llvm::ConstantInt::get(r.bits_type, llvm::APInt::getLowBitsSet(width, index + 1));
  V low = b_.CreateAnd(b_.CreateLoad(r.bits_type, r.bits), until);
  return b_.CreateICmpEQ(low, llvm::ConstantInt::get(r.bits_type, 0));
}

void Emitter::change_bit(const RegionState& r, V slot, unsigned index, bool set, V unless) {
  llvm::IntegerType* const type = is_wide(r) ? b_.getInt64Ty() : llvm::cast<llvm::IntegerType>(r.bits_type);
  if (is_wide(r)) slot = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), slot, index / 64);
  const llvm::APInt bit = llvm::APInt::getOneBitSet(type->getBitWidth(), is_wide(r) ? index % 64 : index);
  V before = b_.CreateLoad(type, slot);
  V after = set ? b_.CreateOr(before, llvm::ConstantInt::get(type, bit))
                : b_.CreateAnd(before, llvm::ConstantInt::get(type, ~bit));
  b_.CreateStore(unless ? b_.CreateSelect(unless, before, after) : after, slot);
}

// The next pick looks behind this block first, or at all.
void Emitter::start_behind(const RegionState& r, unsigned index, V when) {
  if (is_wide(r)) {
    b_.CreateStore(b_.CreateSelect(when, i32(index + 1), i32(0)), r.from);
    return;
  }
  const unsigned width = r.bits_type->getIntegerBitWidth();
  V behind = llvm::ConstantInt::get(r.bits_type, llvm::APInt::getHighBitsSet(width, width - index - 1));
  b_.CreateStore(b_.CreateSelect(when, behind, llvm::ConstantInt::get(r.bits_type, 0)), r.from);
}

// Takes the block whose lanes run next, and gives its index in the region.
V Emitter::pick(const RegionState& r, const Region& region) {
  V zero = llvm::ConstantInt::get(r.bits_type, 0);
  V bits = b_.CreateLoad(r.bits_type, r.bits);
  V available = bits;
  if (region.gathering) {
    V parked = b_.CreateLoad(r.bits_type, r.parked);
    available = b_.CreateAnd(bits, b_.CreateNot(parked));
    V none = b_.CreateICmpEQ(available, zero);
    b_.CreateStore(none, r.force);
    b_.CreateStore(b_.CreateSelect(none, zero, parked), r.parked);
    available = b_.CreateSelect(none, bits, available);
  }
  if (region.rotating) {
    V later = b_.CreateAnd(available, b_.CreateLoad(r.bits_type, r.from));
    b_.CreateStore(zero, r.from);
    available = b_.CreateSelect(b_.CreateICmpEQ(later, zero), available, later);
  }
  V index = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {r.bits_type}, {available, b_.getTrue()});
  V bit = b_.CreateShl(llvm::ConstantInt::get(r.bits_type, 1), index);
  b_.CreateStore(b_.CreateAnd(bits, b_.CreateNot(bit)), r.bits);
  return b_.CreateTrunc(index, b_.getInt32Ty());
}

V Emitter::pick_wide(const RegionState& r, const Region& region) {
  if (region.gathering) {
    V none = call_helper("bsw_all_parked", b_.getInt1Ty(), {r.bits, r.parked, words_of(r)});
    b_.CreateStore(none, r.force);
  }
  V from = region.rotating ? b_.CreateLoad(b_.getInt32Ty(), r.from) : static_cast<V>(i32(0));
  V index = call_helper("bsw_pick_bit", b_.getInt32Ty(), {r.bits, r.parked, words_of(r), from});
  if (region.rotating) b_.CreateStore(i32(0), r.from);
  return index;
}

}  // namespace bandsaw::soft
