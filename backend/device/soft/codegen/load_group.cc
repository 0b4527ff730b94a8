// Loads that follow one another from one register, as of a row or a column of a tile, or of the weights of a filter:
// one check for all of them. What an unrolled loop loads would otherwise be so many branches that LLVM takes minutes.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <set>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kMostTogether = 8;  // of more, the registers of the processor would not hold what they give
constexpr size_t kMostScalars = 16;
constexpr uint64_t kFarthest = 1u << 20;  // bytes from the register's address

// Between two loads of a group: nothing that writes memory, waits, or ends lanes.
bool may_lie_between(const Op& op) {
  static const std::set<std::string> kPlain = {"add", "sub", "mul", "mad", "fma", "shl",
                                               "shr", "and", "or",  "xor", "mov"};
  return op.guard < 0 && kPlain.contains(op.in->opcode);
}

// One element of every width, from a register and an offset.
bool is_plain_element(const Op& op) {
  const ptx::Instruction& in = *op.in;
  if (in.opcode != "ld" || op.guard >= 0 || in.vector() != 1 || in.has("shared::cluster")) return false;
  if (in.space() != ptx::Space::kGlobal && in.space() != ptx::Space::kShared) return false;
  for (const auto* strong : {"volatile", "relaxed", "acquire", "mmio"})
    if (in.has(strong)) return false;
  const unsigned bits = ptx::bits_of(in.type());
  return bits >= 8 && bits <= 64 && op.args.size() > 1 && op.args[0].kind == ArgKind::kReg &&
         op.args[1].kind == ArgKind::kAddress && op.args[1].elements.empty() && op.args[1].reg >= 0 &&
         op.args[1].bits % (bits / 8) == 0 && op.args[1].bits < kFarthest;
}

}  // namespace

// This load and those after it that read elements of the same width from the same address but for the offset.
Emitter::LoadGroup Emitter::alike_together(const Op& op, size_t most) const {
  LoadGroup found;
  const auto& ops = f_.blocks[static_cast<size_t>(block_)].ops;
  if (!is_plain_element(op) || &op < ops.data() || &op >= ops.data() + ops.size()) return found;
  const int base = op.args[1].reg;
  found.first = found.last = op.args[1].bits;
  const auto alike = [&](const Op& other) {
    return other.args[1].reg == base && other.in->space() == op.in->space() &&
           ptx::bits_of(other.in->type()) == ptx::bits_of(op.in->type()) && !loaded_.contains(&other);
  };
  for (const Op* next = &op; next < ops.data() + ops.size() && found.ops.size() < most; ++next) {
    const bool load = is_plain_element(*next);
    if (!load && !may_lie_between(*next)) break;
    if (load && alike(*next)) {
      found.ops.push_back(next);
      found.first = std::min(found.first, next->args[1].bits);
      found.last = std::max(found.last, next->args[1].bits);
    }
    bool redefined = false;
    for_definitions(*next, op_info(*next, entry_).definitions, [&](int reg) { redefined |= reg == base; });
    if (redefined) break;
  }
  return found;
}

// The way that is taken where `ok`: `load` gets the offset of each. The caller goes on where it is not.
Emitter::LoadWay Emitter::way_if(V ok, const LoadGroup& group, llvm::BasicBlock* done,
                                 const std::function<V(uint64_t offset)>& load) {
  LoadWay way{{}, llvm::BasicBlock::Create(c_, "fast", fn_)};
  auto* other = llvm::BasicBlock::Create(c_, "slow", fn_);
  likely(ok, way.end, other);
  b_.SetInsertPoint(way.end);
  for (const Op* one : group.ops) way.values.push_back(load(one->args[1].bits));
  b_.CreateBr(done);
  b_.SetInsertPoint(other);
  return way;
}

// `ways`: the last one ends here.
void Emitter::merge_group(const LoadGroup& group, const std::vector<LoadWay>& ways, llvm::BasicBlock* done) {
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  for (size_t i = 0; i < group.ops.size(); ++i) {
    auto* phi = b_.CreatePHI(ways[0].values[i]->getType(), static_cast<unsigned>(ways.size()));
    for (const LoadWay& way : ways) phi->addIncoming(way.values[i], way.end);
    loaded_[group.ops[i]] = phi;
  }
}

Emitter::LoadWay Emitter::load_group_slow(const LoadGroup& group, const Location& l, unsigned bytes, V mask) {
  LoadWay way;
  for (const Op* one : group.ops) {
    Location place = l;
    place.offset = one->args[1].bits;
    way.values.push_back(load_slow(*one, place, bytes, 1, mask)[0]);
    if (!l.address->getType()->isVectorTy()) way.values.back() = scalar_of(way.values.back());
  }
  way.end = b_.GetInsertBlock();
  return way;
}

// From one address for all lanes.
bool Emitter::load_scalars_together(const Op& op, const Location& l) {
  if (l.narrow || l.address->getType()->isVectorTy()) return false;
  const LoadGroup group = alike_together(op, kMostScalars);
  if (group.ops.size() < 2) return false;
  const unsigned bytes = ptx::bits_of(op.in->type()) / 8;
  V mask = op_mask(op), begin = b_.CreateAdd(l.address, i64(group.first));
  V ok = b_.CreateAnd(range_ok(l, begin, group.last - group.first + bytes),
                      b_.CreateICmpEQ(b_.CreateAnd(begin, i64(bytes - 1)), i64(0)));
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  V pointer = direct_pointer(l, begin);
  const LoadWay quick = way_if(ok, group, done, [&](uint64_t offset) -> V {
    V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, offset - group.first);
    return b_.CreateAlignedLoad(b_.getIntNTy(bytes * 8), p, llvm::Align(bytes));
  });
  merge_group(group, {quick, load_group_slow(group, l, bytes, mask)}, done);
  return true;
}

// Of elements that lie side by side from lane to lane, each half of the warp from its own start; else each lane's own.
bool Emitter::load_rows_together(const Op& op, const Location& l) {
  const unsigned bytes = ptx::bits_of(op.in->type()) / 8;
  const bool wide = bytes == 8;
  if (!l.address->getType()->isVectorTy()) return false;
  if (!wide && bytes != 4) return false;
  const LoadGroup group = alike_together(op, wide ? kMostTogether / 2 : kMostTogether);
  if (group.ops.size() < 2) return false;
  const uint64_t reach = group.last - group.first;
  Location begin = l;
  begin.offset = group.first;
  V mask = op_mask(op), starts[2], ok = consecutive(begin, mask, bytes, starts);
  for (V start : starts) ok = b_.CreateAnd(ok, range_ok(l, start, 16ull * bytes + reach));
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  V places[2] = {direct_pointer(l, starts[0]), direct_pointer(l, starts[1])};
  std::vector<LoadWay> ways{way_if(ok, group, done, [&](uint64_t offset) {
    const uint64_t further = offset - group.first;
    prefetch(l, b_.CreateAdd(starts[0], i64(further)), false);
    return masked_halves(places, further, bytes, mask);
  })};
  if (m_->avx512) {
    ways.push_back(gather_group(group, begin, bytes, mask, done));
  } else if (l.space == ptx::Space::kShared) {
    ways.push_back(halves_group(group, begin, bytes, mask, done));
  }
  ways.push_back(load_group_slow(group, l, bytes, mask));
  merge_group(group, ways, done);
  return true;
}

// Each lane from its own place, where all may read directly. `begin`: of the first offset.
Emitter::LoadWay Emitter::gather_group(const LoadGroup& group, const Location& begin, unsigned bytes, V mask,
                                       llvm::BasicBlock* done) {
  auto* type = llvm::FixedVectorType::get(b_.getIntNTy(bytes * 8), kLanes);
  return way_if(all_direct(begin, mask, group.last - group.first + bytes, bytes), group, done, [&](uint64_t offset) {
    Location place = begin;
    place.offset = offset;
    return b_.CreateMaskedGather(type, lane_pointers(place), llvm::Align(bytes), lanes_of(mask),
                                 llvm::Constant::getNullValue(type));
  });
}

// Where each half of the warp reads one place.
Emitter::LoadWay Emitter::halves_group(const LoadGroup& group, const Location& begin, unsigned bytes, V mask,
                                       llvm::BasicBlock* done) {
  V starts[2], ok = half_places(begin, mask, group.last - group.first + bytes, bytes, starts);
  V places[2] = {direct_pointer(begin, starts[0]), direct_pointer(begin, starts[1])};
  return way_if(ok, group, done, [&](uint64_t offset) { return splat_halves(places, offset - group.first, bytes); });
}

// Of words of shared memory, where each half of the warp reads within 64 bytes.
bool Emitter::load_windows_together(const Op& op, const Location& l) {
  if (!m_->avx512 || l.space != ptx::Space::kShared || !l.address->getType()->isVectorTy()) return false;
  if (ptx::bits_of(op.in->type()) != 32) return false;
  const LoadGroup group = alike_together(op, kMostTogether);
  if (group.ops.size() < 2) return false;
  V mask = op_mask(op), address = b_.CreateTrunc(l.address, int_type(32, true)), heads[2];
  V index = nullptr, ok = half_windows(address, mask, heads, &index);
  for (V head : heads) {
    ok = b_.CreateAnd(ok, b_.CreateICmpULT(head, shared_bytes_));
    ok = b_.CreateAnd(ok, b_.CreateICmpULT(b_.CreateAdd(head, i32(static_cast<uint32_t>(group.last))), shared_bytes_));
    ok = b_.CreateAnd(ok, b_.CreateICmpEQ(b_.CreateAnd(head, i32(3)), i32(0)));
  }
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  const LoadWay quick = way_if(ok, group, done, [&](uint64_t offset) { return permuted_halves(heads, offset, index); });
  LoadWay careful;
  for (const Op* one : group.ops) {
    Location place = l;
    place.offset = one->args[1].bits;
    careful.values.push_back(can_scatter(4, 1) ? load_lanes(*one, place, 4, 1)[0]
                                               : load_slow(*one, place, 4, 1, mask)[0]);
  }
  careful.end = b_.GetInsertBlock();
  merge_group(group, {quick, careful}, done);
  return true;
}

// The values wait in loaded_ for their instructions.
bool Emitter::load_together(const Op& op, const Location& l) {
  return load_windows_together(op, l) || load_scalars_together(op, l) || load_rows_together(op, l);
}

}  // namespace bandsaw::soft
