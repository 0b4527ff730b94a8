// .param space: the arguments and results of a function, and the buffers in which a caller passes them.
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

template <class F>
void for_places(const Arg& arg, F&& f) {
  if (arg.var && arg.var->space == ptx::Space::kParam) f(arg.var);
  for (const Arg& element : arg.elements) for_places(element, f);
}

}  // namespace

// A caller's buffers are written and read within one block as a rule.
void Emitter::find_block_params() {
  constexpr int kSeveral = -1;
  std::map<const Place*, int> block_of;
  for (const Place* place : f_.parameters) block_of[place] = kSeveral;
  for (const Place* place : f_.returns) block_of[place] = kSeveral;
  for (int b : a_.order) {
    for (const Op& op : f_.blocks[b].ops) {
      for (const Arg& arg : op.args)
        for_places(arg, [&](const Place* place) {
          if (const auto [found, first] = block_of.try_emplace(place, b); found->second != b) found->second = kSeveral;
        });
    }
  }
  block_params_.resize(f_.blocks.size());
  for (const Place* place : f_.places) {
    const auto found = block_of.find(place);
    if (found == block_of.end()) continue;
    if (found->second != kSeveral) {
      block_params_[found->second].push_back(place);
    } else if (pieces_) {
      param_slots_[place] = frame_place(param_type(place), place->name);
    }
  }
}

// Where only some lanes may run, a write keeps what the others have, and so reads what was there. Nobody has anything
// in a buffer of this block alone, which LLVM cannot know: it would carry each buffer of each call through all blocks.
void Emitter::clear_block_params(int block) {
  if (!a_.partial(block)) return;
  llvm::Constant* const zero = llvm::Constant::getNullValue(int_type(32, true));
  for (const Place* place : block_params_[block]) {
    V slot = param_slot(place);
    if (!place->declaration->is_array()) {
      const unsigned bits = ptx::bits_of(place->declaration->type);
      b_.CreateAlignedStore(llvm::Constant::getNullValue(int_type(bits, true)), slot, llvm::Align(32));
      continue;
    }
    for (unsigned word = 0; word < std::max(1u, param_words(place)); ++word)
      b_.CreateAlignedStore(zero, b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, uint64_t{word} * 128), llvm::Align(32));
  }
}

unsigned Emitter::param_words(const Place* place) const { return static_cast<unsigned>((place->bytes + 3) / 4); }

llvm::Type* Emitter::param_type(const Place* place) const {
  if (!place->declaration->is_array()) return int_type(ptx::bits_of(place->declaration->type), true);
  return llvm::ArrayType::get(int_type(32, true), std::max(1u, param_words(place)));
}

// The buffer of a .param variable: one vector for a scalar, words for an array.
V Emitter::param_slot(const Place* place) {
  V& slot = param_slots_[place];
  if (!slot) {
    llvm::IRBuilder<> entry(&fn_->getEntryBlock(), fn_->getEntryBlock().begin());
    auto* a = entry.CreateAlloca(param_type(place), nullptr, place->name);
    a->setAlignment(llvm::Align(64));
    slot = a;
  }
  return slot;
}

void Emitter::load_param(const Op& op) {
  const Arg& to = op.args.at(0);
  const Arg& from = op.args.at(1);
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type), bytes = bits / 8, count = op.in->vector();
  if (bits < 8 || bits > 64) unsupported(op);
  auto target = [&](unsigned i) -> const Arg& { return to.kind == ArgKind::kVector ? to.elements.at(i) : to; };
  bool sign = ptx::is_signed(type);
  bool own = from.var && std::find(f_.parameters.begin(), f_.parameters.end(), from.var) != f_.parameters.end();
  if (entry_ && (own || from.reg >= 0)) {
    if (from.reg >= 0) {
      Location l;
      V v = read_reg(from.reg);
      l.address = b_.CreateAdd(b_.CreateZExt(v, int_type(64, v->getType()->isVectorTy())),
                               llvm::ConstantInt::get(int_type(64, v->getType()->isVectorTy()), kParameterWindow));
      l.offset = from.bits;
      l.space = ptx::Space::kNone;
      auto values = load_slow(op, l, bytes, count, op_mask(op));
      for (unsigned i = 0; i < count; ++i) write(op, target(i), values[i], sign);
      return;
    }
    if (from.bits > from.var->bytes || from.var->bytes - from.bits < uint64_t{bytes} * count)
      unsupported(op, "outside of the parameter");
    for (unsigned i = 0; i < count; ++i) {
      V p = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), parameters_, from.var->offset + from.bits + i * bytes);
      auto* load = b_.CreateAlignedLoad(b_.getIntNTy(bits), p, llvm::Align(1));
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(c_, {}));
      write(op, target(i), load, sign);
    }
    return;
  }
  if (!from.var) unsupported(op, "address");
  V slot;
  const Place* p = from.var;
  if (own) {  // a function's argument, in the caller's buffer
    uint64_t offset = 0;
    for (const Place* q : f_.parameters) {
      if (q == p) break;
      offset += q->declaration->is_array() ? 128ull * std::max(1u, param_words(q))
                                           : std::max<uint64_t>(64, q->bytes * kLanes);
    }
    slot = b_.CreateConstGEP1_64(b_.getInt8Ty(), arguments_, offset);
  } else {
    slot = param_slot(p);
  }
  if (!p->declaration->is_array()) {
    if (from.bits != 0 || count != 1) unsupported(op, "part of a parameter");
    unsigned have = ptx::bits_of(p->declaration->type);
    V v = b_.CreateAlignedLoad(int_type(have, true), slot, llvm::Align(32));
    if (have > bits) v = b_.CreateTrunc(v, int_type(bits, true));
    return write(op, target(0), v, sign);
  }
  if (from.bits > p->bytes || p->bytes - from.bits < uint64_t{bytes} * count)
    unsupported(op, "outside of the parameter");
  auto word = [&](uint64_t i) {
    return b_.CreateAlignedLoad(int_type(32, true), b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, i * 128),
                                llvm::Align(64));
  };
  for (unsigned i = 0; i < count; ++i) {
    uint64_t offset = from.bits + i * bytes;
    V v;
    if (bytes == 8) {
      V high = b_.CreateShl(b_.CreateZExt(word(offset / 4 + 1), int_type(64, true)), 32);
      v = b_.CreateOr(b_.CreateZExt(word(offset / 4), int_type(64, true)), high);
    } else {
      v = word(offset / 4);
      if (offset % 4) v = b_.CreateLShr(v, offset % 4 * 8);
      if (bytes < 4) v = b_.CreateTrunc(v, int_type(bits, true));
    }
    write(op, target(i), v, sign);
  }
}

void Emitter::store_param(const Op& op) {
  const Arg& to = op.args.at(0);
  const Arg& from = op.args.at(1);
  if (!to.var || to.var->space != ptx::Space::kParam) unsupported(op, "address");
  const Place* p = to.var;
  unsigned bits = ptx::bits_of(op.in->type()), bytes = bits / 8, count = op.in->vector();
  if (bits < 8 || bits > 64) unsupported(op);
  V slot = param_slot(p);
  vec_ = true;
  // Values for returns may come from several paths, and from lanes that have returned; keep what other lanes stored.
  const bool result = std::find(f_.returns.begin(), f_.returns.end(), p) != f_.returns.end();
  const bool blend = result || a_.partial(block_) || op.guard >= 0;
  auto put = [&](V v, V where, llvm::Type* t) {
    if (blend) v = b_.CreateSelect(lanes_of(op_mask(op)), v, b_.CreateAlignedLoad(t, where, llvm::Align(32)));
    b_.CreateAlignedStore(v, where, llvm::Align(32));
  };
  auto value = [&](unsigned i) -> V {
    const Arg& a = from.kind == ArgKind::kVector ? from.elements.at(i) : from;
    return a.kind == ArgKind::kSink ? konst(0, bits) : read(a, bits);
  };
  if (!p->declaration->is_array()) {
    unsigned have = ptx::bits_of(p->declaration->type);
    if (to.bits != 0 || count != 1) unsupported(op, "part of a parameter");
    return put(b_.CreateZExtOrTrunc(value(0), int_type(have, true)), slot, int_type(have, true));
  }
  if (to.bits > p->bytes || p->bytes - to.bits < uint64_t{bytes} * count) unsupported(op, "outside of the parameter");
  for (unsigned i = 0; i < count; ++i) {
    uint64_t offset = to.bits + i * bytes;
    V v = value(i);
    auto where = [&](uint64_t word) { return b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, word * 128); };
    if (bytes == 8) {
      put(b_.CreateTrunc(v, int_type(32, true)), where(offset / 4), int_type(32, true));
      put(b_.CreateTrunc(b_.CreateLShr(v, 32), int_type(32, true)), where(offset / 4 + 1), int_type(32, true));
    } else if (bytes == 4) {
      put(v, where(offset / 4), int_type(32, true));
    } else {
      unsigned shift = offset % 4 * 8;
      V old = b_.CreateAlignedLoad(int_type(32, true), where(offset / 4), llvm::Align(64));
      uint32_t field = ((bits == 8 ? 0xffu : 0xffffu) << shift);
      V fresh = b_.CreateShl(b_.CreateZExt(v, int_type(32, true)), shift);
      put(b_.CreateOr(b_.CreateAnd(old, llvm::ConstantInt::get(old->getType(), ~field)), fresh), where(offset / 4),
          int_type(32, true));
    }
  }
}

}  // namespace bandsaw::soft
