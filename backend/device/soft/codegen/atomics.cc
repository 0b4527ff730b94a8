// atom and red (PTX ISA 9.7.13.5, 9.7.13.6): one helper does the lanes in order.
#include "backend/device/soft/codegen/atomics.h"

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

const std::pair<const char*, AtomicOp> kOps[] = {
    {"add", AtomicOp::kAdd},   {"inc", AtomicOp::kInc}, {"dec", AtomicOp::kDec}, {"min", AtomicOp::kMin},
    {"max", AtomicOp::kMax},   {"and", AtomicOp::kAnd}, {"or", AtomicOp::kOr},   {"xor", AtomicOp::kXor},
    {"exch", AtomicOp::kExch}, {"cas", AtomicOp::kCas}};

const std::map<ptx::Type, AtomicType> kTypes = {
    {ptx::Type::kB16, AtomicType::kU16},     {ptx::Type::kU16, AtomicType::kU16},
    {ptx::Type::kB32, AtomicType::kU32},     {ptx::Type::kU32, AtomicType::kU32},
    {ptx::Type::kS32, AtomicType::kS32},     {ptx::Type::kB64, AtomicType::kU64},
    {ptx::Type::kU64, AtomicType::kU64},     {ptx::Type::kS64, AtomicType::kS64},
    {ptx::Type::kF32, AtomicType::kF32},     {ptx::Type::kF64, AtomicType::kF64},
    {ptx::Type::kF16, AtomicType::kF16},     {ptx::Type::kBf16, AtomicType::kBf16},
    {ptx::Type::kF16x2, AtomicType::kF16x2}, {ptx::Type::kBf16x2, AtomicType::kBf16x2}};

}  // namespace

const AtomicOp* atomic_op(const ptx::Instruction& in) {
  const AtomicOp* kind = nullptr;
  for (auto& [name, number] : kOps)
    if (in.has(name)) kind = &number;
  return kind;
}

const AtomicType* atomic_type(ptx::Type type) {
  const auto found = kTypes.find(type);
  return found == kTypes.end() ? nullptr : &found->second;
}

// Whether anything reads what the operand defines.
bool Emitter::is_read(const Arg& to) const {
  return to.kind == ArgKind::kReg ? a_.read[to.reg] : to.kind != ArgKind::kSink;
}

// Counting in shared memory is what atomics do most. Checked as by all_direct(), in words: half as many vectors.
void Emitter::shared_add(const Op& op, const Location& l, V value) {
  V addresses = frame_scratch("in1", 8 * kLanes), a = frame_scratch("in0", 8 * kLanes), mask = op_mask(op);
  V address = b_.CreateTrunc(splat(address_of(l)), int_type(32, true));
  b_.CreateStore(address, addresses);
  b_.CreateStore(splat(value), a);
  V room = intrinsic(llvm::Intrinsic::usub_sat, {shared_bytes_, i32(3)});
  V aligned = b_.CreateICmpEQ(b_.CreateAnd(address, konst(3, 32)), konst(0, 32));
  V inside = b_.CreateAnd(aligned, b_.CreateICmpULT(address, b_.CreateVectorSplat(kLanes, room)));
  V all = b_.CreateICmpEQ(b_.CreateAnd(bits_of_vector(inside), mask), i32(~0u));
  auto* plain = llvm::BasicBlock::Create(c_, "plain", fn_);
  auto* careful = llvm::BasicBlock::Create(c_, "careful", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  likely(all, plain, careful);
  b_.SetInsertPoint(plain);
  call_helper("bsw_shared_add_all", b_.getVoidTy(), {shared_ptr_, addresses, a});
  b_.CreateBr(done);
  b_.SetInsertPoint(careful);
  call_helper("bsw_shared_add", b_.getVoidTy(), {warp_, mask, addresses, a});
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

// atom.exch and atom.cas of 128 bits.
void Emitter::wide_atom(const Op& op) {
  const auto& in = *op.in;
  const bool swaps = in.has("cas");
  if (in.opcode != "atom" || swaps == in.has("exch") || in.vector() != 1) unsupported(op);
  vec_ = true;
  const Location l = locate(op, op.args.at(1), in.space());
  const uint32_t space = l.space == ptx::Space::kShared ? 2 : l.space == ptx::Space::kNone ? 0 : 1;
  V addresses = frame_scratch("addresses", 8 * kLanes), a = frame_scratch("wide_a", 16 * kLanes),
    c = frame_scratch("wide_c", 16 * kLanes), out = frame_scratch("wide_out", 16 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  b_.CreateStore(read(op.args.at(2), 128), a);
  if (swaps) b_.CreateStore(read(op.args.at(3), 128), c);
  call_helper("bsw_wide_atomic", b_.getVoidTy(), {warp_, op_mask(op), addresses, a, c, out, i32(space), i32(swaps)});
  write(op, op.args[0], b_.CreateLoad(int_type(128, true), out));
}

void Emitter::op_atom(const Op& op) {
  const auto& in = *op.in;
  if (in.type() == ptx::Type::kB128) return wide_atom(op);
  bool red = in.opcode == "red";
  size_t at = red ? 0 : 1;
  auto type = kTypes.find(in.type());
  if (type == kTypes.end()) unsupported(op);
  const AtomicOp* kind = atomic_op(in);
  if (!kind) unsupported(op);
  bool floating = ptx::is_float(in.type());
  if (floating && *kind != AtomicOp::kAdd && *kind != AtomicOp::kMin && *kind != AtomicOp::kMax &&
      *kind != AtomicOp::kExch)
    unsupported(op);
  unsigned bits = ptx::bits_of(in.type());
  ptx::Space space = in.space();
  vec_ = true;
  Location l = locate(op, op.args.at(at), space);
  uint32_t space_number = l.space == ptx::Space::kShared ? 2 : l.space == ptx::Space::kNone ? 0 : 1;
  const Arg& operand = op.args.at(at + 1);
  unsigned count = in.vector();
  const bool alone = (red || !is_read(op.args[0])) && count == 1 && !in.has("async");
  if (alone && bits == 32 && *kind == AtomicOp::kAdd && !floating && l.space == ptx::Space::kShared && l.narrow)
    return shared_add(op, l, read(operand, 32));
  const bool tells = in.has("async");
  if (tells && (!red || !in.has("mbarrier::complete_tx::bytes") || l.space != ptx::Space::kShared)) unsupported(op);
  if ((operand.kind == ArgKind::kVector && count > 1 ? operand.elements.size() : 1) != count) unsupported(op);
  for (unsigned i = 0; i < count; ++i) {
    V addresses = frame_scratch("addresses", 8 * kLanes);
    V a = frame_scratch("in0", 8 * kLanes), c = frame_scratch("in1", 8 * kLanes),
      out = frame_scratch("out", 8 * kLanes);
    Location here = l;
    here.offset += uint64_t{i} * bits / 8;
    b_.CreateStore(splat(address_of(here)), addresses);
    b_.CreateStore(read(count > 1 ? operand.elements[i] : operand, bits), a);
    if (*kind == AtomicOp::kCas) b_.CreateStore(read(op.args.at(at + 2), bits), c);
    call_helper("bsw_atomic", b_.getVoidTy(),
                {warp_, op_mask(op), addresses, a, c, out, i32(space_number), i32(uint32_t(*kind)),
                 i32(uint32_t(type->second))});
    if (red) continue;
    const Arg& to = op.args[0];
    if (to.kind == ArgKind::kSink) continue;
    V result = b_.CreateLoad(int_type(bits, true), out);
    write(op, count > 1 ? to.elements.at(i) : to, result, ptx::is_signed(in.type()));
  }
  if (tells) complete_barrier(op, op.args.at(at + 2), count * bits / 8);
}

}  // namespace bandsaw::soft
