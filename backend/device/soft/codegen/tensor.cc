// cp.async.bulk.tensor and tensormap (PTX ISA 9.7.9.27, 9.7.9.28).
#include "backend/device/soft/codegen/tensor.h"

#include <bit>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kWordsBytes = uint64_t{8} * kLanes * static_cast<uint32_t>(TensorWord::kCount);

const std::pair<const char*, TensorField> kFields[] = {{"global_address", TensorField::kAddress},
                                                       {"rank", TensorField::kRank},
                                                       {"box_dim", TensorField::kBox},
                                                       {"global_dim", TensorField::kDimension},
                                                       {"global_stride", TensorField::kStride},
                                                       {"element_stride", TensorField::kElementStride},
                                                       {"elemtype", TensorField::kType},
                                                       {"interleave_layout", TensorField::kInterleave},
                                                       {"swizzle_mode", TensorField::kSwizzle},
                                                       {"fill_mode", TensorField::kFill}};

uint8_t tensor_rank(const ptx::Instruction& in) {
  for (uint8_t rank = 1; rank <= 5; ++rank)
    if (in.has(std::string(1, static_cast<char>('0' + rank)) + "d")) return rank;
  return 0;
}

}  // namespace

// A copy by a tensor map. Its completion needs no waiting for: it is done when it is issued.
void Emitter::op_tensor_copy(const Op& op) {
  const auto& in = *op.in;
  TensorForm form;
  form.rank = tensor_rank(in);
  if (!form.rank) unsupported(op, "rank");
  for (auto m : {"tile::gather4", "tile::scatter4", "im2col::w", "im2col::w::128", "cta_group::1", "cta_group::2"})
    if (in.has(m)) unsupported(op, m);
  form.im2col = in.has("im2col") || in.has("im2col_no_offs");
  const bool loads = in.has("mbarrier::complete_tx::bytes");
  const bool multicast = in.has("multicast::cluster");
  if (!loads) {
    if (!in.has("bulk_group")) unsupported(op);
    form.move = TensorMove::kStore;
  }
  if (in.has("reduce")) {
    const AtomicOp* reduction = atomic_op(in);
    if (loads || !reduction) unsupported(op);
    form.move = TensorMove::kReduce;
    form.reduction = static_cast<uint8_t>(*reduction);
  }
  const Arg& map = op.args.at(loads ? 1 : 0);
  if (map.elements.size() != 1) unsupported(op, "coordinates");
  vec_ = true;
  V words = frame_scratch("tensor", kWordsBytes);
  const auto put = [&](TensorWord which, uint32_t i, V value) {
    const uint64_t at = uint64_t{8} * kLanes * (static_cast<uint32_t>(which) + i);
    b_.CreateStore(splat(value), b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), words, at));
  };
  const auto numbers = [&](const Arg& arg, TensorWord which, size_t count, unsigned bits) {
    const bool vector = arg.kind == ArgKind::kVector;
    if ((vector ? arg.elements.size() : 1) != count) unsupported(op, "coordinates");
    for (size_t i = 0; i < count; ++i)
      put(which, static_cast<uint32_t>(i), b_.CreateZExt(read(vector ? arg.elements[i] : arg, bits), ity(64)));
  };
  numbers(map.elements[0], TensorWord::kCoordinate, form.rank, 32);
  Arg plain = map;
  plain.elements.clear();
  V where = address_of(locate(op, plain, ptx::Space::kNone));
  if (plain.var && plain.var->space == ptx::Space::kParam) where = b_.CreateAdd(where, i64(kParameterWindow));
  put(TensorWord::kMap, 0, where);
  put(TensorWord::kShared, 0, address_of(locate(op, op.args.at(loads ? 0 : 1), ptx::Space::kShared)));
  put(TensorWord::kBlocks, 0, i64(0));
  put(TensorWord::kBarrier, 0, i64(0));
  for (uint32_t i = 0; i < 3; ++i) put(TensorWord::kOffset, i, i64(0));
  if (loads) {
    put(TensorWord::kBarrier, 0, address_of(locate(op, op.args.at(2), ptx::Space::kShared)));
    size_t next = 3;
    if (in.has("im2col")) numbers(op.args.at(next++), TensorWord::kOffset, form.rank - 2u, 16);
    if (multicast) put(TensorWord::kBlocks, 0, b_.CreateZExt(read(op.args.at(next++), 16), ity(64)));
  }
  call_helper("bsw_tensor", b_.getVoidTy(), {warp_, op_mask(op), words, i32(std::bit_cast<uint32_t>(form))});
}

void Emitter::op_tensormap(const Op& op) {
  const auto& in = *op.in;
  if (in.has("cp_fenceproxy")) return tensormap_copy(op);
  if (!in.has("replace") || !in.has("tile")) unsupported(op);
  const TensorField* field = nullptr;
  for (const auto& [name, number] : kFields)
    if (in.has(name)) field = &number;
  if (!field) unsupported(op);
  const bool indexed = *field == TensorField::kBox || *field == TensorField::kDimension ||
                       *field == TensorField::kStride || *field == TensorField::kElementStride;
  if (op.args.size() != (indexed ? 3 : 2)) unsupported(op, "operands");
  if (indexed && op.args[1].kind != ArgKind::kInt) unsupported(op, "ordinal");
  vec_ = true;
  const Location l = locate(op, op.args[0], in.space());
  V addresses = frame_scratch("addresses", 8 * kLanes), values = frame_scratch("in0", 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  const unsigned bits = ptx::bits_of(in.type());
  b_.CreateStore(splat(b_.CreateZExt(read(op.args.back(), bits), ity(64))), values);
  const uint32_t space = l.space == ptx::Space::kShared ? 2 : l.space == ptx::Space::kNone ? 0 : 1;
  call_helper("bsw_tensor_replace", b_.getVoidTy(),
              {warp_, op_mask(op), addresses, values, i32(static_cast<uint32_t>(*field)),
               i32(indexed ? static_cast<uint32_t>(op.args[1].bits) : 0), i32(space)});
}

// tensormap.cp_fenceproxy: the warp together copies a map from shared to global memory.
void Emitter::tensormap_copy(const Op& op) {
  constexpr uint32_t kMapBytes = 128;
  if (op.args.size() != 3 || op.args[2].kind != ArgKind::kInt || op.args[2].bits != kMapBytes) unsupported(op);
  vec_ = true;
  const Location to = locate(op, op.args[0], ptx::Space::kGlobal), from = locate(op, op.args[1], ptx::Space::kShared);
  V mask = op_mask(op);
  V first = b_.CreateAnd(mask, b_.CreateNeg(mask));
  bulk_copy(op, to, from, splat(i32(kMapBytes)), first);
}

}  // namespace bandsaw::soft
