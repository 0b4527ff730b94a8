// Barriers and what lanes of a warp tell each other (PTX ISA 9.7.9.6, 9.7.13).
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
V Emitter::uniform_operand(const Arg& a, unsigned bits) {
  bool before = vec_;
  vec_ = false;
  V v;
  if (a.kind == ArgKind::kReg) {
    v = read_reg(a.reg);
    if (v->getType()->isVectorTy()) v = scalar_of(v);
    v = b_.CreateZExtOrTrunc(v, b_.getIntNTy(bits));
  } else {
    v = read(a, bits);
  }
  vec_ = before;
  return v;
}

// Lanes of one warp may wait at the same barrier in different places of the program. The group that runs arrives for
// all of them; they find their arrival noted when their turn comes. Returns the lanes that still have to arrive.
V Emitter::join_barriers(const Op& op, V mask) {
  if (!a_.partial(block_)) return mask;
  int region = a_.region_of[block_];
  auto same = [&](const Op& other) {
    if (other.in->opcode != op.in->opcode || other.in->modifiers != op.in->modifiers ||
        other.args.size() != op.args.size())
      return false;
    for (size_t i = 0; i < op.args.size(); ++i)
      if (op.args[i].kind != ArgKind::kInt || other.args[i].kind != ArgKind::kInt ||
          op.args[i].bits != other.args[i].bits)
        return false;
    return true;
  };
  std::vector<unsigned> places;
  for (int b : a_.regions[region].blocks)
    if (b != block_ && f_.blocks[b].sync_head && same(f_.blocks[b].ops.front()))
      places.push_back(a_.index_in_region[b]);
  if (places.empty()) return mask;
  V arrived = b_.CreateLoad(b_.getInt32Ty(), arrived_slot_);
  V here = b_.CreateAnd(mask, b_.CreateNot(arrived));
  V others = i32(0);
  for (unsigned index : places) {
    V slot = b_.CreateConstGEP2_64(llvm::ArrayType::get(b_.getInt32Ty(), 1), regions_[region].pending, 0, index);
    others = b_.CreateOr(others, b_.CreateAlignedLoad(b_.getInt32Ty(), slot, llvm::Align(4), true));
  }
  // Whoever was already counted does not bring others along: those wait for the next round.
  others = b_.CreateSelect(b_.CreateICmpNE(here, i32(0)), b_.CreateAnd(others, b_.CreateNot(arrived)), i32(0));
  b_.CreateStore(b_.CreateOr(b_.CreateAnd(arrived, b_.CreateNot(mask)), others), arrived_slot_);
  return b_.CreateOr(here, others);
}

void Emitter::op_bar(const Op& op) {
  const auto& in = *op.in;
  V mask = op_mask(op);
  if (in.has("warp")) return;  // lanes have gathered; memory of a warp is in order
  if (in.has("cluster")) {
    if (in.has("arrive"))
      call_helper("bandsaw_cluster_arrive", b_.getVoidTy(), {warp_, mask});
    else
      call_helper("bandsaw_cluster_wait", b_.getVoidTy(), {warp_});
    return;
  }
  size_t at = 0;
  V predicate = i32(0);
  BarrierOp kind = BarrierOp::kSync;
  std::vector<const Arg*> args;
  for (auto& a : op.args) args.push_back(&a);
  if (in.has("red")) {
    kind = in.has("popc") ? BarrierOp::kPopc : in.has("and") ? BarrierOp::kAnd : BarrierOp::kOr;
    at = 1;
    vec_ = true;
    predicate = b_.CreateAnd(bits_of_vector(splat(read_pred(*args.back()))), mask);
    vec_ = false;
    args.pop_back();
  } else if (in.has("arrive")) {
    kind = BarrierOp::kArrive;
  }
  V id = uniform_operand(*args.at(at), 32);
  V threads = args.size() > at + 1 ? uniform_operand(*args[at + 1], 32) : i32(0);
  if (kind == BarrierOp::kSync) mask = join_barriers(op, mask);
  auto* run = llvm::BasicBlock::Create(c_, "bar", fn_);
  auto* on = llvm::BasicBlock::Create(c_, "on", fn_);
  auto* before = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpNE(mask, i32(0)), run, on);
  b_.SetInsertPoint(run);
  V result =
      call_helper("bandsaw_barrier", b_.getInt32Ty(), {warp_, id, threads, mask, i32(uint32_t(kind)), predicate});
  b_.CreateBr(on);
  b_.SetInsertPoint(on);
  if (!in.has("red")) return;
  auto* phi = b_.CreatePHI(b_.getInt32Ty(), 2);
  phi->addIncoming(result, run);
  phi->addIncoming(i32(0), before);
  if (kind == BarrierOp::kPopc)
    write(op, op.args[0], phi);
  else
    write(op, op.args[0], b_.CreateICmpNE(phi, i32(0)));
}

void Emitter::op_shfl(const Op& op) {
  vec_ = true;
  size_t first = op.pair ? 2 : 1;
  const auto& in = *op.in;
  unsigned bits = ptx::bits_of(in.type());
  if (bits != 32) unsupported(op);
  V a = read(op.args.at(first), 32), b = read(op.args.at(first + 1), 32), c = read(op.args.at(first + 2), 32);
  V lane = iota(32);
  V by = b_.CreateAnd(b, konst(31, 32)), clamp = b_.CreateAnd(c, konst(31, 32));
  V segment = b_.CreateAnd(b_.CreateLShr(c, 8), konst(31, 32));
  V low = b_.CreateAnd(lane, segment);
  V not_segment = b_.CreateNot(segment);
  V high = b_.CreateOr(low, b_.CreateAnd(clamp, not_segment));
  V from, valid;
  if (in.has("up")) {
    from = b_.CreateSub(lane, by);
    valid = b_.CreateICmpSGE(from, high);
  } else {
    if (in.has("down"))
      from = b_.CreateAdd(lane, by);
    else if (in.has("bfly"))
      from = b_.CreateXor(lane, by);
    else
      from = b_.CreateOr(low, b_.CreateAnd(by, not_segment));
    valid = b_.CreateICmpSLE(from, high);
  }
  V source = b_.CreateAnd(b_.CreateSelect(valid, from, lane), konst(31, 32));
  V result;
  if (auto* fixed = llvm::dyn_cast<llvm::Constant>(source); fixed && !llvm::isa<llvm::ConstantExpr>(fixed)) {
    llvm::SmallVector<int> order;
    bool known = true;
    for (unsigned i = 0; i < kLanes && known; ++i) {
      auto* e = llvm::dyn_cast_or_null<llvm::ConstantInt>(fixed->getAggregateElement(i));
      known = e != nullptr;
      if (known) order.push_back(static_cast<int>(e->getZExtValue()));
    }
    if (known)
      result = b_.CreateShuffleVector(a, order);
    else
      result = lane_helper("bsw_permute", {a, source}, b_.getInt32Ty());
  } else if (m_->avx512) {
    std::vector<V> halves;
    auto part = [&](V v, int h) {
      llvm::SmallVector<int> s;
      for (int i = 0; i < 16; ++i) s.push_back(16 * h + i);
      return b_.CreateShuffleVector(v, s);
    };
    for (int h = 0; h < 2; ++h)
      halves.push_back(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_d_512, {},
                                          {part(a, 0), part(source, h), part(a, 1)}));
    llvm::SmallVector<int> join;
    for (int i = 0; i < 32; ++i) join.push_back(i);
    result = b_.CreateShuffleVector(halves[0], halves[1], join);
  } else {
    result = lane_helper("bsw_permute", {a, source}, b_.getInt32Ty());
  }
  write(op, op.args[0], result);
  if (op.pair) write(op, op.args[1], valid);
}

// Lanes that run a *.sync instruction together may name different lanes, each those of its own group: `make` gets the
// active ones of a group and gives its results, of the element types `types`; the lanes of the group get these.
std::vector<V> Emitter::for_groups(const Op& op, const std::vector<llvm::Type*>& types,
                                   const std::function<std::vector<V>(V)>& make) {
  const Arg& members = op.args.back();
  V active = op_mask(op);
  if (members.kind != ArgKind::kReg || !a_.varying[members.reg])
    return make(b_.CreateAnd(active, uniform_operand(members, 32)));
  V named = b_.CreateZExtOrTrunc(read_reg(members.reg), ity(32));
  auto* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(c_, "groups", fn_);
  auto* body = llvm::BasicBlock::Create(c_, "group", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "grouped", fn_);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  auto* left = b_.CreatePHI(b_.getInt32Ty(), 2);
  left->addIncoming(active, before);
  std::vector<V> results;
  for (llvm::Type* type : types) {
    auto* all = llvm::FixedVectorType::get(type, kLanes);
    auto* phi = b_.CreatePHI(all, 2);
    phi->addIncoming(llvm::Constant::getNullValue(all), before);
    results.push_back(phi);
  }
  b_.CreateCondBr(b_.CreateICmpNE(left, i32(0)), body, done);
  b_.SetInsertPoint(body);
  V first = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {left, b_.getTrue()});
  V those = b_.CreateExtractElement(named, first);
  V group = b_.CreateAnd(left, bits_of_vector(b_.CreateICmpEQ(named, splat(those))));
  const std::vector<V> made = make(b_.CreateAnd(group, those));
  auto* end = b_.GetInsertBlock();
  for (size_t i = 0; i < types.size(); ++i) {
    V merged = b_.CreateSelect(lanes_of(group), splat(made[i]), results[i]);
    llvm::cast<llvm::PHINode>(results[i])->addIncoming(merged, end);
  }
  left->addIncoming(b_.CreateAnd(left, b_.CreateNot(group)), end);
  b_.CreateBr(head);
  b_.SetInsertPoint(done);
  return results;
}

void Emitter::op_vote(const Op& op) {
  const auto& in = *op.in;
  vec_ = true;
  V predicate = bits_of_vector(splat(read_pred(op.args.at(1))));
  const bool ballot = in.has("ballot");
  const auto make = [&](V lanes) -> std::vector<V> {
    V bits = b_.CreateAnd(predicate, lanes);
    if (ballot) return {bits};
    V all = b_.CreateICmpEQ(bits, lanes), any = b_.CreateICmpNE(bits, i32(0));
    return {in.has("all") ? all : in.has("any") ? any : b_.CreateOr(all, b_.CreateNot(any))};
  };
  llvm::Type* type = ballot ? b_.getInt32Ty() : b_.getInt1Ty();
  write(op, op.args[0], (in.has("sync") ? for_groups(op, {type}, make) : make(op_mask(op)))[0]);
}

void Emitter::op_match(const Op& op) {
  vec_ = true;
  const size_t first = op.pair ? 2 : 1;
  const unsigned bits = ptx::bits_of(op.in->type());
  V a = b_.CreateZExt(read(op.args.at(first), bits), ity(64));
  const char* helper = op.in->has("all") ? "bsw_match_all" : "bsw_match_any";
  V r = for_groups(op, {b_.getInt32Ty()},
                   [&](V lanes) -> std::vector<V> { return {lane_helper(helper, {a}, b_.getInt32Ty(), {lanes})}; })[0];
  write(op, op.args[0], r);
  if (op.pair) write(op, op.args[1], b_.CreateICmpNE(r, konst(0, 32)));
}

void Emitter::op_redux(const Op& op) {
  vec_ = true;
  V a = splat(read(op.args.at(1), 32));
  write(op, op.args[0],
        for_groups(op, {b_.getInt32Ty()}, [&](V lanes) -> std::vector<V> { return {reduced(op, a, lanes)}; })[0]);
}

// One number of the values of these lanes.
V Emitter::reduced(const Op& op, V a, V lanes) {
  const auto& in = *op.in;
  if (in.type() == ptx::Type::kF32) {
    const uint32_t mode = (in.has("max") ? 1 : 0) | (in.has("abs") ? 2 : 0) | (in.has("NaN") ? 4 : 0);
    V r = lane_helper("bsw_redux_f32", {a}, b_.getInt32Ty(), {lanes, i32(mode)});
    return b_.CreateExtractElement(r, uint64_t{0});
  }
  const bool sign = ptx::is_signed(in.type());
  const uint64_t identity = in.has("and")   ? ~0u
                            : in.has("min") ? (sign ? 0x7fffffffu : ~0u)
                            : in.has("max") ? (sign ? 0x80000000u : 0u)
                                            : 0u;
  V v = b_.CreateSelect(lanes_of(lanes), a, konst(identity, 32));
  if (in.has("add")) return b_.CreateAddReduce(v);
  if (in.has("and")) return b_.CreateAndReduce(v);
  if (in.has("or")) return b_.CreateOrReduce(v);
  if (in.has("xor")) return b_.CreateXorReduce(v);
  if (in.has("min")) return b_.CreateIntMinReduce(v, sign);
  if (in.has("max")) return b_.CreateIntMaxReduce(v, sign);
  unsupported(op);
}

void Emitter::op_activemask(const Op& op) {
  vec_ = false;
  write(op, op.args.at(0), mask_);
}

void Emitter::op_elect(const Op& op) {
  vec_ = true;
  V leader = for_groups(op, {b_.getInt32Ty()}, [&](V lanes) -> std::vector<V> {
    return {b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {lanes, b_.getFalse()})};
  })[0];
  write(op, op.args[0], splat(leader));
  if (op.pair) write(op, op.args[1], b_.CreateICmpEQ(iota(32), splat(leader)));
}

void Emitter::op_nanosleep(const Op&) { call_helper("bandsaw_yield", b_.getVoidTy(), {warp_}); }

// Ends the launch if a lane gets there.
void Emitter::fault_if(V mask, Fault fault) {
  auto* bad = llvm::BasicBlock::Create(c_, "trap", fn_);
  auto* on = llvm::BasicBlock::Create(c_, "on", fn_);
  b_.CreateCondBr(b_.CreateICmpNE(mask, i32(0)), bad, on);
  b_.SetInsertPoint(bad);
  call_helper("bandsaw_fault", b_.getVoidTy(), {warp_, i32(uint32_t(fault)), i64(0)});
  b_.CreateUnreachable();
  b_.SetInsertPoint(on);
}

// brkpt: there is no debugger, so it ends the launch like a trap.
void Emitter::op_trap(const Op& op) { fault_if(op_mask(op), Fault::kTrap); }

// The device refuses to make multicast objects, so no address is one of theirs. Kernels that could use one elsewhere
// (NCCL's) compile.
void Emitter::op_multimem(const Op& op) { fault_if(op_mask(op), Fault::kIllegalAddress); }

}  // namespace bandsaw::soft
