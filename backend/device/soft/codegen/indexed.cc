// Addresses of the form base + index * scale with 32-bit lane indices, as `a[i]` compiles to. Checking the indices is
// cheaper than checking 64-bit addresses, and several arrays indexed alike share the check.
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

// The register's only definition when its value at that definition is still its value here for the active lanes.
const Op* Emitter::definition(int reg) const {
  if (definitions_.empty()) {
    definitions_.assign(f_.registers.size(), {nullptr, -1});
    for (int b : a_.order)
      for (auto& op : f_.blocks[b].ops)
        for_definitions(op, op_info(op, entry_).definitions, [&](int r) { definitions_[r] = {&op, b}; });
  }
  if (!a_.single[reg]) return nullptr;
  auto [op, block] = definitions_[reg];
  if (!op || op->guard >= 0) return nullptr;
  // Elsewhere in a region other groups may have run the definition since.
  if (a_.varying[reg] && a_.partial(block) && block != block_) return nullptr;
  // What it reads may be another piece's own.
  if (pieces_ && block != block_) return nullptr;
  return op;
}

void Emitter::find_index(int reg, Location* l) {
  const Op* add = definition(reg);
  if (!add || add->in->opcode != "add" || ptx::bits_of(add->in->type()) != 64 || add->in->has("cc")) return;
  const Arg *base = &add->args[1], *product = &add->args[2];
  if (product->kind != ArgKind::kReg || !a_.varying[product->reg]) std::swap(base, product);
  if (product->kind != ArgKind::kReg || !a_.varying[product->reg]) return;
  bool fixed_base = base->kind == ArgKind::kVar || base->kind == ArgKind::kInt ||
                    (base->kind == ArgKind::kReg && !a_.varying[base->reg] && a_.single[base->reg]);
  if (!fixed_base) return;
  const Op* mul = definition(product->reg);
  if (!mul || mul->in->opcode != "mul" || !mul->in->has("wide") || ptx::bits_of(mul->in->type()) != 32) return;
  if (mul->args[1].kind != ArgKind::kReg || mul->args[2].kind != ArgKind::kInt) return;
  int index = mul->args[1].reg;
  if (!a_.varying[index] || !definition(index)) return;
  uint64_t scale = mul->args[2].bits;
  if (scale == 0 || scale > 16 || (scale & (scale - 1))) return;
  const Op* before = op_;
  bool shape_before = vec_;
  vec_ = false;
  l->base = read(*base, 64);
  vec_ = true;
  l->index = read_reg(index);
  vec_ = shape_before;
  op_ = before;
  l->scale = scale;
  l->index_signed = ptx::is_signed(mul->in->type());
}

// As consecutive(): `step` bytes from lane to lane, which is a multiple of the scale.
V Emitter::consecutive_index(const Location& l, V mask, uint64_t step, V starts[2]) {
  llvm::SmallVector<int> heads(16, 0);
  heads.append(16, 16);
  uint64_t stride = step / l.scale;
  V expected = b_.CreateAdd(b_.CreateShuffleVector(l.index, heads), iota(32, 2, stride));
  V equal = bits_of_vector(b_.CreateICmpEQ(l.index, expected));
  V ok = b_.CreateICmpEQ(b_.CreateOr(equal, b_.CreateNot(mask)), i32(~0u));
  uint32_t last = static_cast<uint32_t>((l.index_signed ? 0x7fffffffu : 0xffffffffu) - 15 * stride);
  for (int h = 0; h < 2; ++h) {
    V first = b_.CreateExtractElement(l.index, uint64_t(16 * h));
    // Within the half the 32-bit index must not wrap, for it is widened afterwards.
    ok = b_.CreateAnd(ok, l.index_signed ? b_.CreateICmpSLE(first, i32(last)) : b_.CreateICmpULE(first, i32(last)));
    V wide = l.index_signed ? b_.CreateSExt(first, b_.getInt64Ty()) : b_.CreateZExt(first, b_.getInt64Ty());
    starts[h] = b_.CreateAdd(b_.CreateAdd(b_.CreateMul(wide, i64(l.scale)), l.base), i64(l.offset));
    ok = b_.CreateAnd(ok, range_ok(l, starts[h], 16 * step));
  }
  V low = b_.CreateAnd(b_.CreateOr(starts[0], starts[1]), i64(step - 1));
  return b_.CreateAnd(ok, b_.CreateICmpEQ(low, i64(0)));
}

}  // namespace bandsaw::soft
