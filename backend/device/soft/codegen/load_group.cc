// Loads of shared memory that follow one another from one register, as of a row or a column of a tile: one check for
// all of them, where each half of the warp reads within 64 bytes.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <set>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kMostTogether = 8;       // of more, the registers of the processor would not hold what they give
constexpr uint64_t kFarthest = 1u << 20;  // bytes from the register's address

// Between two loads of a group: nothing that writes memory, waits, or ends lanes.
bool may_lie_between(const Op& op) {
  static const std::set<std::string> kPlain = {"add", "sub", "mul", "mad", "fma", "shl",
                                               "shr", "and", "or",  "xor", "mov"};
  return op.guard < 0 && kPlain.contains(op.in->opcode);
}

bool is_plain_word(const Op& op) {
  const ptx::Instruction& in = *op.in;
  if (in.opcode != "ld" || op.guard >= 0 || in.space() != ptx::Space::kShared || in.vector() != 1) return false;
  for (const auto* strong : {"volatile", "relaxed", "acquire", "mmio", "shared::cluster"})
    if (in.has(strong)) return false;
  return ptx::bits_of(in.type()) == 32 && op.args.size() > 1 && op.args[1].kind == ArgKind::kAddress &&
         op.args[1].elements.empty() && op.args[1].reg >= 0 && op.args[1].bits % 4 == 0 && op.args[1].bits < kFarthest;
}

}  // namespace

// This load and those after it that read from the same address but for the offset.
std::vector<const Op*> Emitter::loads_together(const Op& op) const {
  std::vector<const Op*> found;
  const auto& ops = f_.blocks[static_cast<size_t>(block_)].ops;
  if (!is_plain_word(op) || &op < ops.data() || &op >= ops.data() + ops.size()) return found;
  const int base = op.args[1].reg;
  for (const Op* next = &op; next < ops.data() + ops.size() && found.size() < kMostTogether; ++next) {
    const bool load = is_plain_word(*next);
    if (!load && !may_lie_between(*next)) break;
    if (load && next->args[1].reg == base) found.push_back(next);
    bool redefined = false;
    for_definitions(*next, op_info(*next, entry_).definitions, [&](int reg) { redefined |= reg == base; });
    if (redefined) break;
  }
  return found;
}

// The values wait in loaded_ for their instructions.
bool Emitter::load_together(const Op& op, const Location& l) {
  if (!m_->avx512 || l.space != ptx::Space::kShared || !l.address->getType()->isVectorTy()) return false;
  const std::vector<const Op*> group = loads_together(op);
  if (group.size() < 2) return false;
  uint64_t farthest = 0;
  for (const Op* one : group) farthest = std::max(farthest, one->args[1].bits);
  V mask = op_mask(op), address = b_.CreateTrunc(l.address, int_type(32, true)), heads[2];
  V index = nullptr, ok = half_windows(address, mask, heads, &index);
  for (V head : heads) {
    ok = b_.CreateAnd(ok, b_.CreateICmpULT(head, shared_bytes_));
    ok = b_.CreateAnd(ok, b_.CreateICmpULT(b_.CreateAdd(head, i32(static_cast<uint32_t>(farthest))), shared_bytes_));
    ok = b_.CreateAnd(ok, b_.CreateICmpEQ(b_.CreateAnd(head, i32(3)), i32(0)));
  }
  auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
  auto* slow = llvm::BasicBlock::Create(c_, "slow", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  likely(ok, fast, slow);
  b_.SetInsertPoint(fast);
  std::vector<V> quick, careful;
  for (const Op* one : group) quick.push_back(permuted_halves(heads, one->args[1].bits, index));
  b_.CreateBr(done);
  b_.SetInsertPoint(slow);
  for (const Op* one : group) {
    Location place = l;
    place.offset = one->args[1].bits;
    careful.push_back(can_scatter(4, 1) ? load_lanes(*one, place, 4, 1)[0] : load_slow(*one, place, 4, 1, mask)[0]);
  }
  auto* slow_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  for (size_t i = 0; i < group.size(); ++i) {
    auto* phi = b_.CreatePHI(quick[i]->getType(), 2);
    phi->addIncoming(quick[i], fast);
    phi->addIncoming(careful[i], slow_end);
    loaded_[group[i]] = phi;
  }
  return true;
}

}  // namespace bandsaw::soft
