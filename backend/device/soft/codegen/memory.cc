// ld, st, cvta, isspacep, fences and the instructions on addresses that need no work here.
#include <llvm/IR/Intrinsics.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

Emitter::Location Emitter::locate(const Op& op, const Arg& arg, ptx::Space space) {
  if (arg.kind != ArgKind::kAddress) unsupported(op, "address");
  if (!arg.elements.empty()) unsupported(op, "address");
  Location l;
  l.space = space;
  l.offset = arg.bits;
  if (arg.reg >= 0) {
    V v = read_reg(arg.reg);
    l.narrow = v->getType()->getScalarSizeInBits() == 32;
    l.address = b_.CreateZExt(v, int_type(64, v->getType()->isVectorTy()));
    if (v->getType()->isVectorTy()) find_index(arg.reg, &l);
  } else if (arg.var) {
    Arg base = arg;
    base.kind = ArgKind::kVar;
    base.bits = 0;
    l.address = b_.CreateZExt(read_address_constant(op, base), b_.getInt64Ty());
    // A variable named without a space in the instruction is a generic address.
    if (space == ptx::Space::kNone) {
      if (arg.var->space == ptx::Space::kShared || arg.var->space == ptx::Space::kLocal)
        l.space = arg.var->space;
      else
        l.space = ptx::Space::kGlobal;
    }
  } else {
    l.address = i64(0);
  }
  if (l.space == ptx::Space::kConst) l.space = ptx::Space::kGlobal;
  return l;
}

V Emitter::read_address_constant(const Op& op, const Arg& arg) {
  if (arg.kind != ArgKind::kVar && m_->is_kernel(arg.name)) {
    // Its number is the module's, which this code may be shared between: it is linked.
    auto* g = m_->module->getOrInsertGlobal("e." + arg.name, b_.getInt8Ty());
    return b_.CreatePtrToInt(g, b_.getInt64Ty());
  }
  if (arg.kind == ArgKind::kFunction) {
    auto it = m_->function_numbers.find(arg.name);
    if (it == m_->function_numbers.end()) unsupported(op, "address of a function that is not defined");
    return i64(kFunctionWindow + 16ull * it->second);
  }
  const Place* p = arg.var;
  V base;
  switch (p->space) {
    case ptx::Space::kShared:
      if (p->dynamic_shared) {
        V dynamic = state_field(offsetof(WarpState, dynamic_shared_base), b_.getInt32Ty(), "dynamic");
        base = b_.CreateZExt(dynamic, b_.getInt64Ty());
      } else {
        base = i64(p->offset + (p->of_kernel ? shared_base_ : 0));
      }
      break;
    case ptx::Space::kLocal:
      if (m_->flat->globals.contains(p->name) && m_->flat->globals.at(p->name) == p)
        unsupported(op, ".local at module scope");
      base = b_.CreateAdd(b_.CreateZExt(frame_, b_.getInt64Ty()), i64(p->offset));
      break;
    case ptx::Space::kParam: {
      if (!entry_) unsupported(op, "address of a function's parameter");
      base = i64(p->offset);
      break;
    }
    case ptx::Space::kGlobal:
    case ptx::Space::kConst:
      base = variable_address(*p);
      break;
    default:
      unsupported(op, "address of " + p->name);
  }
  return arg.bits ? b_.CreateAdd(base, i64(arg.bits)) : base;
}

V Emitter::variable_address(const Place& place) {
  auto* g = m_->module->getNamedGlobal("v." + place.name);
  if (!g)
    g = new llvm::GlobalVariable(*m_->module, b_.getInt8Ty(), false, llvm::GlobalValue::ExternalLinkage, nullptr,
                                 "v." + place.name);
  return b_.CreatePtrToInt(g, b_.getInt64Ty());
}

void Emitter::op_ld(const Op& op) {
  ptx::Space space = op.in->space();
  if (op.in->opcode == "ldu" && space == ptx::Space::kNone) space = ptx::Space::kNone;
  const Arg& to = op.args.at(0);
  const Arg& from = op.args.at(1);
  if (space == ptx::Space::kParam) return load_param(op);
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  if (bits < 8 || bits > 64) {
    if (bits != 128) unsupported(op);
    Location l = locate(op, from, space);
    vec_ = true;
    auto values = load(op, l, 8, 2, true);
    V low = b_.CreateZExt(splat(values[0]), int_type(128, true));
    V high = b_.CreateShl(b_.CreateZExt(splat(values[1]), int_type(128, true)), 64);
    return write(op, to, b_.CreateOr(low, high));
  }
  unsigned count = op.in->vector();
  if ((to.kind == ArgKind::kVector ? to.elements.size() : 1) != count) unsupported(op, "vector size");
  if (auto early = loaded_.extract(&op)) return write(op, to, early.mapped(), ptx::is_signed(type));
  Location l = locate(op, from, space);
  if (load_together(op, l)) return write(op, to, loaded_.extract(&op).mapped(), ptx::is_signed(type));
  auto values = load(op, l, bits / 8, count, true);
  for (unsigned i = 0; i < count; ++i)
    write(op, count > 1 || to.kind == ArgKind::kVector ? to.elements[i] : to, values[i], ptx::is_signed(type));
}

void Emitter::op_st(const Op& op) {
  ptx::Space space = op.in->space();
  if (op.in->has("async")) return op_st_async(op);
  if (space == ptx::Space::kParam) return store_param(op);
  if (space == ptx::Space::kConst) unsupported(op);
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  const Arg& from = op.args.at(1);
  unsigned count = op.in->vector();
  Location l = locate(op, op.args.at(0), space);
  std::vector<V> values;
  if (bits == 128) {
    V v = read(from, 128);
    unsigned lanes = v->getType()->isVectorTy();
    values = {b_.CreateTrunc(v, int_type(64, lanes)), b_.CreateTrunc(b_.CreateLShr(v, 64), int_type(64, lanes))};
    return store(op, l, 8, values);
  }
  if (bits < 8 || bits > 64) unsupported(op);
  if ((from.kind == ArgKind::kVector ? from.elements.size() : 1) != count) unsupported(op, "vector size");
  // What is stored may differ between lanes even where the address does not.
  for (unsigned i = 0; i < count; ++i) {
    const Arg& a = from.kind == ArgKind::kVector ? from.elements[i] : from;
    vec_ = a.kind == ArgKind::kReg && a_.varying[a.reg];
    values.push_back(a.kind == ArgKind::kSink ? konst(0, bits) : read(a, bits));
  }
  bool any = false;
  for (V v : values) any = any || v->getType()->isVectorTy();
  if (l.space == ptx::Space::kNone && !l.address->getType()->isVectorTy()) {
    l.address = splat(l.address);  // may be local memory, different for each lane
    return store_slow(op, l, bits / 8, values, op_mask(op));
  }
  store(op, l, bits / 8, values);
}

void Emitter::op_nothing(const Op&) {}

void Emitter::op_fence(const Op& op) { b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent); }

// Asynchronous copies are done at once, so commit and wait have nothing to do.
void Emitter::op_cp_async(const Op& op) {
  if (!op.in->has("async")) unsupported(op);
  if (op.in->has("bulk")) return op_cp_async_bulk(op);
  if (op.in->has("mbarrier")) return op_cp_async_arrive(op);
  if (op.in->has("commit_group") || op.in->has("wait_group") || op.in->has("wait_all")) return;
  Location to = locate(op, op.args.at(0), ptx::Space::kShared);
  Location from = locate(op, op.args.at(1), ptx::Space::kGlobal);
  if (op.args.at(2).kind != ArgKind::kInt) unsupported(op);
  uint32_t bytes = op.args[2].bits;
  if (bytes != 4 && bytes != 8 && bytes != 16) unsupported(op);
  V mask = op_mask(op);
  V source_bytes = splat(i32(bytes));
  if (op.args.size() > 3 && op.args[3].kind != ArgKind::kNone) {
    bool pred = op.args[3].kind == ArgKind::kReg && f_.registers[op.args[3].reg].type == ptx::Type::kPred;
    if (pred) {
      V ignore = splat(read_pred(op.args[3]));
      source_bytes = b_.CreateSelect(ignore, splat(i32(0)), source_bytes);
    } else if (!op.in->has("L2::cache_hint")) {
      vec_ = true;
      source_bytes = read(op.args[3], 32);
    }
  }
  V a = frame_scratch("addresses", 8 * kLanes), d = frame_scratch("data", 8ull * 8 * kLanes),
    n = frame_scratch("in0", 8 * kLanes);
  b_.CreateStore(splat(address_of(from)), a);
  b_.CreateStore(splat(address_of(to)), d);
  b_.CreateStore(source_bytes, n);
  call_helper("bsw_copy_to_shared", b_.getVoidTy(), {warp_, mask, d, a, n, i32(bytes)});
}

void Emitter::op_cvta(const Op& op) {
  ptx::Space space = op.in->space();
  unsigned bits = ptx::bits_of(op.in->type());
  if (op.in->has("param")) space = ptx::Space::kParam;
  uint64_t window = space == ptx::Space::kShared  ? kSharedWindow
                    : space == ptx::Space::kLocal ? kLocalWindow
                    : space == ptx::Space::kParam ? kParameterWindow
                                                  : 0;
  V v = read(op.args.at(1), bits);
  V w = konst(window, bits);
  write(op, op.args.at(0), op.in->has("to") ? b_.CreateSub(v, w) : b_.CreateAdd(v, w));
}

// Constants lie among other memory here: an address is theirs if it is in one of the module's.
V Emitter::is_constant(V address) {
  V result = konst(0, 1);
  for (const auto& place : m_->flat->places) {
    if (place->space != ptx::Space::kConst || place->extern_symbol) continue;
    V offset = b_.CreateSub(address, shape(variable_address(*place)));
    result = b_.CreateOr(result, b_.CreateICmpULT(offset, konst(place->bytes, 64)));
  }
  return result;
}

void Emitter::op_isspacep(const Op& op) {
  V v = read(op.args.at(1), 64);
  ptx::Space space = op.in->space();
  if (op.in->has("param")) space = ptx::Space::kParam;
  uint64_t window = space == ptx::Space::kShared  ? kSharedWindow
                    : space == ptx::Space::kLocal ? kLocalWindow
                    : space == ptx::Space::kParam ? kParameterWindow
                                                  : 0;
  V result;
  if (window) {
    const bool own = space == ptx::Space::kShared && !op.in->has("shared::cluster");
    result = b_.CreateICmpULT(b_.CreateSub(v, konst(window, 64)), konst(own ? kClusterStep : kSpaceWindowBytes, 64));
  } else if (space == ptx::Space::kConst) {
    result = is_constant(v);
  } else {
    V outside = b_.CreateICmpUGE(b_.CreateSub(v, konst(kSharedWindow, 64)), konst(4 * kSpaceWindowBytes, 64));
    result = b_.CreateAnd(outside, b_.CreateNot(is_constant(v)));
  }
  write(op, op.args.at(0), result);
}

}  // namespace bandsaw::soft
