// Control flow. Blocks outside of regions run with all active lanes and branch plainly. Inside a region lanes are
// scheduled in groups: `pending[i]` holds the lanes that wait to run block i of the region, `bits` which entries are
// not empty, and the lowest runs first, so that groups meet again where the program's paths meet.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/gathering.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kGroupTurn = 64;     // picks until another group of a rotating region gets its turn
constexpr uint32_t kSpinsToYield = 32;  // iterations of a loop that may wait for others

}  // namespace

void Emitter::create_blocks() {
  finish_ = llvm::BasicBlock::Create(c_, "finish", fn_);
  for (size_t i = 0; i < f_.blocks.size(); ++i)
    blocks_.push_back(a_.position[i] < 0 ? nullptr : llvm::BasicBlock::Create(c_, "b" + std::to_string(i), fn_));
}

void Emitter::create_regions() {
  for (size_t i = 0; i < a_.regions.size(); ++i) {
    RegionState r;
    unsigned n = a_.regions[i].blocks.size();
    r.bits_type = b_.getIntNTy((n + 63) / 64 * 64);
    llvm::Type* const masks = llvm::ArrayType::get(b_.getInt32Ty(), n);
    if (pieces_) {
      r.pending = frame_place(masks, "pending");
    } else {
      r.pending = b_.CreateAlloca(masks, nullptr, "pending");
      b_.CreateMemSet(r.pending, b_.getInt8(0), n * 4ull, llvm::MaybeAlign(4), true);
    }
    r.bits = variable(r.bits_type, "bits");
    r.parked = variable(r.bits_type, "parked");
    r.force = variable(b_.getInt1Ty(), "force");
    r.boost = variable(b_.getInt32Ty(), "boost");
    r.from = variable(is_wide(r) ? b_.getInt32Ty() : r.bits_type, "from");
    r.picks = variable(b_.getInt32Ty(), "picks");
    regions_.push_back(r);
  }
}

void Emitter::create_dispatchers() {
  for (RegionState& region : regions_) region.dispatch = llvm::BasicBlock::Create(c_, "dispatch", fn_);
}

void Emitter::emit_block(int block) {
  block_ = block;
  b_.SetInsertPoint(blocks_[block]);
  mask_ = b_.CreateLoad(b_.getInt32Ty(), a_.partial(block) ? mask_slot_ : active_slot_, "lanes");
  ended_ = false;
  clear_block_params(block);
  const auto& ops = f_.blocks[block].ops;
  if (f_.blocks[block].sync_head && a_.partial(block)) emit_sync_head(block);
  size_t n = ops.size();
  const Op* last = n && is_terminator(*ops.back().in) ? &ops.back() : nullptr;
  for (size_t i = 0; i < n - (last ? 1 : 0) && !ended_; ++i) {
    record_stretch(block, i);
    emit_op(ops[i]);
  }
  if (last && !ended_) record_stretch(block, n - 1);
  if (!ended_) emit_terminator(block, last);
}

void Emitter::emit_return() {
  if (entry_) {
    call_helper("bandsaw_exit", b_.getVoidTy(), {warp_});
  } else {
    give_stack_back();
    uint64_t offset = 0;
    for (const Place* p : f_.returns) {
      V slot = param_slots_[p];
      llvm::Type* t = llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType();
      uint64_t size = m_->module->getDataLayout().getTypeAllocSize(t);
      b_.CreateMemCpy(b_.CreateConstGEP1_64(b_.getInt8Ty(), results_, offset), llvm::MaybeAlign(64), slot,
                      llvm::MaybeAlign(64), size);
      offset += (size + 63) / 64 * 64;
    }
  }
  b_.CreateRetVoid();
}

void Emitter::emit_terminator(int block, const Op* op) {
  const auto& next = f_.blocks[block].successors;
  if (!op) {
    if (!next.empty()) return go(block, next.back(), mask_);
    kill_lanes(mask_, false);
    return finish_if_empty();
  }
  op_ = op;
  vec_ = op_is_vector(*op);
  const std::string& code = op->in->opcode;
  if (code == "ret" || code == "exit") return branch_exit(*op, block, code == "exit" || entry_);
  if (code == "trap") {
    fault_if(op_mask(*op), Fault::kTrap);
    if (!next.empty()) return go(block, next.back(), mask_);
    b_.CreateUnreachable();
    return;
  }
  if (code == "brx") {
    V index = read(op->args[0], 32);
    size_t n = next.size() - (op->guard >= 0 ? 1 : 0);
    if (n == 0) unsupported(*op, "no targets");
    if (op->guard >= 0) unsupported(*op, "guarded brx");
    if (!index->getType()->isVectorTy()) {
      auto* last = llvm::BasicBlock::Create(c_, "case", fn_);
      auto* sw = b_.CreateSwitch(index, last, n);
      for (size_t i = 0; i < n; ++i) {
        auto* bb = i + 1 == n ? last : llvm::BasicBlock::Create(c_, "case", fn_);
        if (i + 1 < n) sw->addCase(i32(i), bb);
        b_.SetInsertPoint(bb);
        go(block, next[i], mask_);
      }
      return;
    }
    std::vector<std::pair<int, V>> targets;
    V rest = mask_;
    for (size_t i = 0; i < n; ++i) {
      V here = rest;
      if (i + 1 < n) here = b_.CreateAnd(rest, bits_of_vector(b_.CreateICmpEQ(index, konst(i, 32))));
      rest = b_.CreateAnd(rest, b_.CreateNot(here));
      bool merged = false;
      for (auto& t : targets)
        if (t.first == next[i]) {
          t.second = b_.CreateOr(t.second, here);
          merged = true;
        }
      if (!merged) targets.push_back({next[i], here});
    }
    return diverge(block, targets);
  }
  // bra
  if (op->guard < 0) return go(block, next[0], mask_);
  if (next.size() < 2) unsupported(*op, "falls off the end");
  V p = read_reg(op->guard);
  if (op->guard_negated) p = b_.CreateNot(p);
  if (next[0] == next[1]) return go(block, next[0], mask_);
  if (!p->getType()->isVectorTy()) {
    auto* taken = llvm::BasicBlock::Create(c_, "taken", fn_);
    auto* not_taken = llvm::BasicBlock::Create(c_, "fall", fn_);
    b_.CreateCondBr(p, taken, not_taken);
    b_.SetInsertPoint(taken);
    go(block, next[0], mask_);
    b_.SetInsertPoint(not_taken);
    return go(block, next[1], mask_);
  }
  V bits = bits_of_vector(p);
  diverge(block, {{next[0], b_.CreateAnd(mask_, bits)}, {next[1], b_.CreateAnd(mask_, b_.CreateNot(bits))}});
}

void Emitter::branch_exit(const Op& op, int block, bool exit) {
  const auto& next = f_.blocks[block].successors;
  V mask = op_mask(op);
  kill_lanes(mask, exit);
  if (op.guard < 0 || next.empty()) return finish_if_empty();
  V rest = b_.CreateAnd(mask_, b_.CreateNot(mask));
  auto* some = llvm::BasicBlock::Create(c_, "some", fn_);
  auto* none = llvm::BasicBlock::Create(c_, "none", fn_);
  b_.CreateCondBr(b_.CreateICmpNE(rest, i32(0)), some, none);
  b_.SetInsertPoint(none);
  finish_if_empty();
  b_.SetInsertPoint(some);
  go(block, next.back(), rest);
}

void Emitter::kill_lanes(V mask, bool exit) {
  V active = b_.CreateAnd(b_.CreateLoad(b_.getInt32Ty(), active_slot_), b_.CreateNot(mask));
  b_.CreateStore(active, active_slot_);
  if (!exit) return;
  V live = state_ptr(offsetof(WarpState, live));
  b_.CreateStore(b_.CreateAnd(b_.CreateLoad(b_.getInt32Ty(), live), b_.CreateNot(mask)), live);
}

// The current group is gone: another group of the region runs, or the function is done.
void Emitter::finish_if_empty() { b_.CreateBr(a_.partial(block_) ? regions_[a_.region_of[block_]].dispatch : finish_); }

void Emitter::back_edge(int from) {
  auto* bad = llvm::BasicBlock::Create(c_, "cancel", fn_);
  auto* on = llvm::BasicBlock::Create(c_, "on", fn_);
  V flag = b_.CreateAlignedLoad(b_.getInt32Ty(), cancelled_, llvm::Align(4), true);
  auto* weights = llvm::MDBuilder(c_).createBranchWeights(1, 100000);
  b_.CreateCondBr(b_.CreateICmpNE(flag, i32(0)), bad, on, weights);
  b_.SetInsertPoint(bad);
  call_helper("bandsaw_cancelled", b_.getVoidTy(), {warp_});
  b_.CreateUnreachable();
  b_.SetInsertPoint(on);
  if (!a_.spins[from]) return;
  V count = b_.CreateAdd(b_.CreateLoad(b_.getInt32Ty(), spin_counter_), i32(1));
  b_.CreateStore(count, spin_counter_);
  auto* yield = llvm::BasicBlock::Create(c_, "yield", fn_);
  auto* after = llvm::BasicBlock::Create(c_, "on", fn_);
  b_.CreateCondBr(b_.CreateICmpEQ(b_.CreateAnd(count, i32(kSpinsToYield - 1)), i32(0)), yield, after);
  b_.SetInsertPoint(yield);
  call_helper("bandsaw_yield", b_.getVoidTy(), {warp_});
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void Emitter::go(int from, int to, V mask) {
  bool back = a_.position[to] <= a_.position[from];
  if (back) back_edge(from);
  if (!a_.partial(to)) {
    if (a_.partial(from)) return leave(from, mask);
    b_.CreateBr(blocks_[to]);
    return;
  }
  if (!a_.partial(from)) {  // all lanes enter the region together
    b_.CreateStore(mask, mask_slot_);
    b_.CreateBr(blocks_[to]);
    return;
  }
  int region = a_.region_of[to];
  const bool gathering = a_.regions[region].gathering, rotating = a_.regions[region].rotating;
  RegionState& r = regions_[region];
  unsigned index = a_.index_in_region[to];
  V slot = b_.CreateConstGEP2_64(llvm::ArrayType::get(b_.getInt32Ty(), 1), r.pending, 0, index);
  V direct = none_until(r, index);
  auto* jump = llvm::BasicBlock::Create(c_, "jump", fn_);
  auto* wait = llvm::BasicBlock::Create(c_, "wait", fn_);
  if (rotating) {
    V boost = b_.CreateLoad(b_.getInt32Ty(), r.boost);
    V boosted = b_.CreateICmpNE(boost, i32(0));
    b_.CreateStore(b_.CreateSelect(boosted, b_.CreateSub(boost, i32(1)), i32(0)), r.boost);
    direct = b_.CreateOr(direct, boosted);
    if (back) {
      V picks = b_.CreateAdd(b_.CreateLoad(b_.getInt32Ty(), r.picks), i32(1));
      b_.CreateStore(picks, r.picks);
      V turn = b_.CreateAnd(b_.CreateICmpEQ(b_.CreateAnd(picks, i32(kGroupTurn - 1)), i32(0)), any_pending(r));
      direct = b_.CreateAnd(direct, b_.CreateNot(turn));
      b_.CreateStore(b_.CreateSelect(turn, i32(kGroupTurn), b_.CreateLoad(b_.getInt32Ty(), r.boost)), r.boost);
      start_behind(r, index, turn);
    }
  }
  b_.CreateCondBr(direct, jump, wait);
  b_.SetInsertPoint(wait);
  V old = b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true);
  b_.CreateAlignedStore(b_.CreateOr(old, mask), slot, llvm::Align(4), true);
  change_bit(r, r.bits, index, true);
  if (gathering) change_bit(r, r.parked, index, false);
  b_.CreateBr(r.dispatch);
  b_.SetInsertPoint(jump);
  if (rotating) {  // a group out of turn takes along whoever waits there
    V waiting = b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true);
    b_.CreateAlignedStore(i32(0), slot, llvm::Align(4), true);
    mask = b_.CreateOr(mask, waiting);
    change_bit(r, r.bits, index, false);
    if (gathering) change_bit(r, r.parked, index, false);
  }
  b_.CreateStore(mask, mask_slot_);
  b_.CreateBr(blocks_[to]);
}

void Emitter::leave(int from, V) {
  RegionState& r = regions_[a_.region_of[from]];
  int stop = a_.regions[a_.region_of[from]].stop;
  b_.CreateCondBr(any_pending(r), r.dispatch, blocks_[stop]);
}

void Emitter::diverge(int from, const std::vector<std::pair<int, V>>& targets) {
  if (targets.size() == 1) return go(from, targets[0].first, targets[0].second);
  int region = a_.region_of[from];
  for (auto& [block, mask] : targets)
    if (a_.partial(block)) region = a_.region_of[block];
  if (region < 0) return go(from, targets[0].first, mask_);  // every target is the stop
  RegionState& r = regions_[region];
  // Lanes that go to the stop wait there by not being anywhere else.
  auto add = [&](int block, V mask) {
    if (!a_.partial(block)) return;
    unsigned index = a_.index_in_region[block];
    V slot = b_.CreateConstGEP2_64(llvm::ArrayType::get(b_.getInt32Ty(), 1), r.pending, 0, index);
    V old = b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true);
    b_.CreateAlignedStore(b_.CreateOr(old, mask), slot, llvm::Align(4), true);
    V none = b_.CreateICmpEQ(mask, i32(0));
    change_bit(r, r.bits, index, true, none);
    if (a_.regions[region].gathering) change_bit(r, r.parked, index, false, none);
  };
  if (targets.size() > 2) {
    for (auto& [block, mask] : targets) add(block, mask);
    b_.CreateBr(r.dispatch);
    return;
  }
  auto [first, first_mask] = targets[0];
  auto [second, second_mask] = targets[1];
  auto* only_first = llvm::BasicBlock::Create(c_, "first", fn_);
  auto* check = llvm::BasicBlock::Create(c_, "check", fn_);
  auto* only_second = llvm::BasicBlock::Create(c_, "second", fn_);
  auto* split = llvm::BasicBlock::Create(c_, "split", fn_);
  b_.CreateCondBr(b_.CreateICmpEQ(second_mask, i32(0)), only_first, check);
  b_.SetInsertPoint(only_first);
  go(from, first, first_mask);
  b_.SetInsertPoint(check);
  b_.CreateCondBr(b_.CreateICmpEQ(first_mask, i32(0)), only_second, split);
  b_.SetInsertPoint(only_second);
  go(from, second, second_mask);
  b_.SetInsertPoint(split);
  auto later = [&](int block) { return a_.partial(block) ? a_.position[block] : 1 << 30; };
  if (later(first) > later(second)) {
    std::swap(first, second);
    std::swap(first_mask, second_mask);
  }
  add(second, second_mask);
  go(from, first, first_mask);
}

void Emitter::emit_dispatchers() {
  for (size_t i = 0; i < regions_.size(); ++i) {
    RegionState& r = regions_[i];
    const Region& region = a_.regions[i];
    if (r.dispatch->use_empty()) {  // in a piece that has nothing of it
      r.dispatch->eraseFromParent();
      continue;
    }
    b_.SetInsertPoint(r.dispatch);
    auto* empty = llvm::BasicBlock::Create(c_, "empty", fn_);
    auto* some = llvm::BasicBlock::Create(c_, "pick", fn_);
    b_.CreateCondBr(any_pending(r), some, empty);
    b_.SetInsertPoint(empty);
    if (region.stop >= 0) {
      V none = b_.CreateICmpEQ(b_.CreateLoad(b_.getInt32Ty(), active_slot_), i32(0));
      b_.CreateCondBr(none, finish_, blocks_[region.stop]);
    } else {
      b_.CreateBr(finish_);
    }
    b_.SetInsertPoint(some);
    V index32 = is_wide(r) ? pick_wide(r, region) : pick(r, region);
    V slot = b_.CreateInBoundsGEP(b_.getInt32Ty(), r.pending, b_.CreateZExt(index32, b_.getInt64Ty()));
    V mask = b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true);
    b_.CreateAlignedStore(i32(0), slot, llvm::Align(4), true);
    b_.CreateStore(mask, mask_slot_);
    auto* none = llvm::BasicBlock::Create(c_, "none", fn_);
    auto* sw = b_.CreateSwitch(index32, none, region.blocks.size());
    for (size_t k = 0; k < region.blocks.size(); ++k)
      if (!is_elsewhere(region.blocks[k])) sw->addCase(i32(k), blocks_[region.blocks[k]]);
    b_.SetInsertPoint(none);
    if (pieces_) {
      leave_piece(region, index32);
    } else {
      b_.CreateUnreachable();
    }
  }
}

// All that the active lanes name.
V Emitter::named_lanes(const Arg& members) {
  vec_ = members.kind == ArgKind::kReg && a_.varying[members.reg];
  V named = read(members, 32);
  if (vec_) named = b_.CreateOrReduce(b_.CreateSelect(lanes_of(mask_), named, konst(0, 32)));
  vec_ = false;
  return named;
}

// All that they name for the function that they call.
V Emitter::lanes_called_with(const Op& call, const NamedLanes& named) {
  if (named.argument < 0) return i32(named.lanes);
  const Arg& arguments = call.args.back();
  const auto number = static_cast<size_t>(named.argument);
  if (arguments.kind != ArgKind::kVector || number >= arguments.elements.size()) unsupported(call);
  V slot = param_slot(arguments.elements[number].var);
  V lanes = b_.CreateAlignedLoad(int_type(32, true), slot, llvm::Align(32));
  V none = llvm::Constant::getNullValue(lanes->getType());
  return b_.CreateOrReduce(b_.CreateSelect(lanes_of(mask_), lanes, none));
}

// Before a *.sync instruction: lanes that it names but that are elsewhere get a chance to come.
void Emitter::emit_sync_head(int block) {
  const Op& op = f_.blocks[block].ops.front();
  op_ = &op;
  RegionState& r = regions_[a_.region_of[block]];
  V active = b_.CreateLoad(b_.getInt32Ty(), active_slot_);
  const auto& called_with = f_.blocks[block].called_with;
  V member = names_lanes(*op.in) ? named_lanes(op.args.back())
             : called_with       ? lanes_called_with(op, *called_with)
                                 : active;
  V missing = b_.CreateAnd(b_.CreateAnd(member, active), b_.CreateNot(mask_));
  V forced = b_.CreateLoad(b_.getInt1Ty(), r.force);
  V wait = b_.CreateAnd(b_.CreateICmpNE(missing, i32(0)), b_.CreateAnd(any_pending(r), b_.CreateNot(forced)));
  if (is_gathering(*op.in) && !names_lanes(*op.in)) {  // whoever has arrived there is on its way from it
    V arrived = b_.CreateLoad(b_.getInt32Ty(), arrived_slot_);
    wait = b_.CreateAnd(wait, b_.CreateICmpNE(b_.CreateAnd(mask_, b_.CreateNot(arrived)), i32(0)));
  }
  auto* park = llvm::BasicBlock::Create(c_, "park", fn_);
  auto* on = llvm::BasicBlock::Create(c_, "gathered", fn_);
  b_.CreateCondBr(wait, park, on);
  b_.SetInsertPoint(park);
  unsigned index = a_.index_in_region[block];
  V slot = b_.CreateConstGEP2_64(llvm::ArrayType::get(b_.getInt32Ty(), 1), r.pending, 0, index);
  V old = b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true);
  b_.CreateAlignedStore(b_.CreateOr(old, mask_), slot, llvm::Align(4), true);
  change_bit(r, r.bits, index, true);
  change_bit(r, r.parked, index, true);
  b_.CreateBr(r.dispatch);
  b_.SetInsertPoint(on);
  b_.CreateStore(b_.getFalse(), r.force);
}

}  // namespace bandsaw::soft
