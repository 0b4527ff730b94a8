// mbarrier objects, and the bulk copies that tell them of their end (PTX ISA 9.7.13.15, 9.7.9.25).
#include "backend/device/soft/codegen/mbarrier.h"

#include <bit>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/bulk.h"
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

namespace {

MbarrierOp kind_of(const ptx::Instruction& in) {
  static const std::pair<const char*, MbarrierOp> kinds[] = {
      {"init", MbarrierOp::kInit},
      {"inval", MbarrierOp::kInval},
      {"arrive", MbarrierOp::kArrive},
      {"arrive_drop", MbarrierOp::kArriveDrop},
      {"expect_tx", MbarrierOp::kExpectTx},
      {"complete_tx", MbarrierOp::kCompleteTx},
      {"pending_count", MbarrierOp::kPendingCount},
  };
  for (const auto& [name, kind] : kinds)
    if (in.has(name)) return kind;
  return in.has("parity") ? MbarrierOp::kWaitParity : MbarrierOp::kWaitState;
}

}  // namespace

V Emitter::call_mbarrier(const Op& op, MbarrierOp kind, const Location* l, V a, V b) {
  V addresses = frame_scratch("addresses", 8 * kLanes), first = frame_scratch("in0", 8 * kLanes),
    second = frame_scratch("in1", 8 * kLanes), out = frame_scratch("out", 8 * kLanes);
  if (l) b_.CreateStore(splat(address_of(*l)), addresses);
  b_.CreateStore(splat(a), first);
  b_.CreateStore(splat(b), second);
  const bool shared = l && l->space == ptx::Space::kShared;
  call_helper("bsw_mbarrier", b_.getVoidTy(),
              {warp_, op_mask(op), addresses, first, second, out, i32(uint32_t(kind)), i32(shared ? 2 : 0)});
  return b_.CreateLoad(int_type(64, true), out);
}

void Emitter::op_mbarrier(const Op& op) {
  const auto& in = *op.in;
  const MbarrierOp kind = kind_of(in);
  vec_ = true;
  V zero = konst(0, 64);
  if (kind == MbarrierOp::kPendingCount)
    return write(op, op.args.at(0), call_mbarrier(op, kind, nullptr, read(op.args.at(1), 64), zero));
  if (in.has("test_wait") || in.has("try_wait")) {
    const Location l = locate(op, op.args.at(1), in.space());
    V phase =
        kind == MbarrierOp::kWaitParity ? b_.CreateZExt(read(op.args.at(2), 32), ity(64)) : read(op.args.at(2), 64);
    V ended = call_mbarrier(op, kind, &l, phase, zero);
    return write(op, op.args.at(0), b_.CreateICmpNE(ended, zero));
  }
  const bool result = op.args.at(0).kind != ArgKind::kAddress;
  const size_t at = result ? 1 : 0;
  const Location l = locate(op, op.args.at(at), in.space());
  const bool arrives = kind == MbarrierOp::kArrive || kind == MbarrierOp::kArriveDrop;
  V count = op.args.size() > at + 1 ? read(op.args[at + 1], 32) : konst(arrives ? 1 : 0, 32);
  const bool expects = arrives && in.has("expect_tx");
  V a = b_.CreateZExt(expects ? konst(1, 32) : count, ity(64)), b = expects ? b_.CreateZExt(count, ity(64)) : zero;
  V state = call_mbarrier(op, kind, &l, a, b);
  if (result) write(op, op.args[0], state);
}

// cp.async.mbarrier.arrive: copies are done when they are issued, so it arrives at once. Without .noinc the arrival was
// not counted before.
void Emitter::op_cp_async_arrive(const Op& op) {
  vec_ = true;
  const Location l = locate(op, op.args.at(0), op.in->space());
  if (!op.in->has("noinc")) return;  // one more expected, one more arrived
  call_mbarrier(op, MbarrierOp::kArrive, &l, konst(1, 64), konst(0, 64));
}

V Emitter::addresses_of(const Location& l, const char* name) {
  V slot = frame_scratch(name, 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), slot);
  return slot;
}

// The barrier hears of as many bytes from each lane.
void Emitter::complete_barrier(const Op& op, const Arg& barrier, uint32_t bytes) {
  V at = addresses_of(locate(op, barrier, ptx::Space::kShared), "barriers");
  call_helper("bsw_complete", b_.getVoidTy(), {warp_, op_mask(op), at, i32(bytes)});
}

// st.async: a store into shared memory of the cluster, whose barrier hears of it.
void Emitter::op_st_async(const Op& op) {
  const auto& in = *op.in;
  if (!in.has("mbarrier::complete_tx::bytes") || in.space() != ptx::Space::kShared || op.args.size() != 3)
    unsupported(op);
  const unsigned bits = ptx::bits_of(in.type()), count = in.vector();
  if (bits != 32 && bits != 64) unsupported(op);
  const Arg& from = op.args[1];
  if ((from.kind == ArgKind::kVector ? from.elements.size() : 1) != count) unsupported(op, "vector size");
  vec_ = true;
  const Location l = locate(op, op.args[0], ptx::Space::kShared);
  std::vector<V> values;
  for (unsigned i = 0; i < count; ++i)
    values.push_back(read(from.kind == ArgKind::kVector ? from.elements[i] : from, bits));
  store_slow(op, l, bits / 8, values, op_mask(op));
  complete_barrier(op, op.args[2], count * bits / 8);
}

// cp.async.bulk: each lane copies for itself, and the barrier hears of the bytes.
void Emitter::op_cp_async_bulk(const Op& op) {
  const auto& in = *op.in;
  if (in.has("commit_group") || in.has("wait_group")) return;
  if (in.has("prefetch")) return;
  if (in.has("tensor")) return op_tensor_copy(op);
  std::vector<ptx::Space> spaces;
  for (auto& m : in.modifiers)
    if (auto space = ptx::space_of(m)) spaces.push_back(*space);
  if (spaces.size() != 2) unsupported(op);
  vec_ = true;
  const Location to = locate(op, op.args.at(0), spaces[0]), from = locate(op, op.args.at(1), spaces[1]);
  bulk_copy(op, to, from, splat(read(op.args.at(2), 32)), op_mask(op));
}

void Emitter::bulk_copy(const Op& op, const Location& to, const Location& from, V size, V mask) {
  const auto& in = *op.in;
  const auto number = [](ptx::Space space) { return space == ptx::Space::kShared ? 2u : 1u; };
  BulkForm form;
  form.from_space = number(from.space) & 3;
  form.to_space = number(to.space) & 3;
  form.tells = in.has("mbarrier::complete_tx::bytes");
  if (in.has("reduce")) {
    const AtomicOp* reduction = atomic_op(in);
    const AtomicType* type = atomic_type(in.type());
    if (!reduction || !type) unsupported(op);
    form.reduces = 1;
    form.reduction = static_cast<uint32_t>(*reduction) & 31;
    form.type = static_cast<uint32_t>(*type) & 31;
    form.element_bytes = ptx::bits_of(in.type()) / 8 & 31;
  }
  V d = addresses_of(to, "bulk_to"), s = addresses_of(from, "bulk_from"), n = frame_scratch("in0", 8 * kLanes);
  b_.CreateStore(size, n);
  V none = llvm::ConstantPointerNull::get(b_.getPtrTy());
  form.masked = in.has("cp_mask");
  form.trimmed = in.has("ignore_oob");
  V parts = none;
  if (form.masked || form.trimmed) {
    parts = frame_scratch("in2", 8 * kLanes);
    b_.CreateStore(splat(form.masked ? b_.CreateZExt(read(op.args.back(), 16), ity(32)) : trimmed_ends(op)), parts);
  }
  const size_t barrier_at = form.trimmed ? 5 : 3;
  V barriers = form.tells ? addresses_of(locate(op, op.args.at(barrier_at), ptx::Space::kShared), "barriers") : none;
  V blocks = none;
  if (in.has("multicast::cluster")) {
    blocks = frame_scratch("in1", 8 * kLanes);
    b_.CreateStore(splat(b_.CreateZExt(read(op.args.at(4), 16), ity(32))), blocks);
  }
  call_helper("bsw_copy_bulk", b_.getVoidTy(),
              {warp_, mask, d, s, n, blocks, parts, barriers, i32(std::bit_cast<uint32_t>(form))});
}

// Bytes that .ignore_oob leaves out at the beginning, and at the end in the upper half.
V Emitter::trimmed_ends(const Op& op) {
  V first = read(op.args.at(3), 32), last = read(op.args.at(4), 32);
  return b_.CreateOr(first, b_.CreateShl(last, konst(16, 32)));
}

// try_cancel asks for a block that has not begun yet: none is given, as PTX allows, and each block runs as it
// would have.
void Emitter::op_cluster_launch_control(const Op& op) {
  const auto& in = *op.in;
  vec_ = true;
  if (in.has("query_cancel")) {
    const bool asks = in.has("is_canceled");
    const auto none = [&](const Arg& to) { write(op, to, konst(0, asks ? 1 : 32)); };
    if (op.args.at(0).kind != ArgKind::kVector) return none(op.args[0]);
    for (const Arg& to : op.args[0].elements) none(to);
    return;
  }
  if (in.has("multicast::cluster::all") || !in.has("mbarrier::complete_tx::bytes")) unsupported(op);
  store_slow(op, locate(op, op.args.at(0), ptx::Space::kShared), 8, {konst(0, 64), konst(0, 64)}, op_mask(op));
  complete_barrier(op, op.args.at(1), 16);
}

}  // namespace bandsaw::soft
