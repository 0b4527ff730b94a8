#include "backend/device/soft/codegen/emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kMemorySlot = 8 * kLanes;   // the widest register
constexpr uint64_t kRegisterRoom = 128 << 10;  // of a warp's stack

// What AVX2 has no instruction for: LLVM's own code for all lanes is long, and fast.
bool is_long_inline(const ptx::Instruction& in) {
  const std::string& code = in.opcode;
  if (in.type_count() == 0) return false;
  const bool wide = ptx::bits_of(in.type()) == 64;
  if (code == "mul" || code == "mad") return wide && in.has("hi");
  if (code == "clz" || code == "bfind") return wide;
  if (code != "cvt" || in.type_count() < 2 || ptx::is_float(in.type(0)) || !ptx::is_float(in.type(1))) return false;
  return wide || ptx::bits_of(in.type(1)) == 64;
}

}  // namespace

Emitter::Emitter(ModuleContext* module, const FlatFunction& function, const Analysis& analysis, uint32_t shared_base,
                 uint32_t frame_bytes)
    : m_(module),
      f_(function),
      a_(analysis),
      shared_base_(shared_base),
      frame_bytes_(frame_bytes),
      entry_(function.source->entry),
      c_(*module->context),
      b_(*module->context) {
  constexpr size_t kFew = 12;
  size_t long_inline = 0;
  for (auto& block : f_.blocks) {
    for (auto& op : block.ops) {
      accesses_ += op.in->opcode == "ld" || op.in->opcode == "st";
      long_inline += is_long_inline(*op.in);
    }
  }
  short_code_ = long_inline > kFew;
}

void Emitter::run() {
  create_function();
  create_slots();
  create_blocks();
  create_regions();
  create_dispatchers();
  for (const Place* p : f_.returns) param_slot(p);
  find_block_params();
  b_.CreateBr(blocks_[0]);
  for (const int block : a_.order) emit_block(block);
  emit_dispatchers();
  b_.SetInsertPoint(finish_);
  emit_return();
}

void Emitter::unsupported(const Op& op, const std::string& why) {
  ptx::Statement s;
  s.value = *op.in;
  std::string text = ptx::print(s);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  size_t start = text.find_first_not_of(" \t\n");
  if (start != std::string::npos) text.erase(0, start);
  throw CompileError(op.line, text + ": not supported" + (why.empty() ? "" : " (" + why + ")"));
}

void Emitter::create_function() {
  llvm::Type *ptr = b_.getPtrTy(), *word = b_.getInt32Ty(), *vd = b_.getVoidTy();
  if (entry_) {
    begin(llvm::FunctionType::get(vd, {ptr}, false), "k." + f_.source->name);
  } else {
    begin(llvm::FunctionType::get(vd, {ptr, word, ptr, ptr, word}, false), "f." + f_.source->name);
    fn_->setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  create_state();
  V active;
  if (entry_) {
    active = state_field(offsetof(WarpState, live), b_.getInt32Ty(), "live");
    frame_ = i32(0);
  } else {
    active = fn_->getArg(1);
    arguments_ = fn_->getArg(2);
    results_ = fn_->getArg(3);
    frame_ = fn_->getArg(4);
    call_helper("bsw_enter", vd,
                {warp_, b_.CreateAdd(frame_, i32(frame_bytes_)),
                 b_.CreatePtrToInt(intrinsic(llvm::Intrinsic::frameaddress, {i32(0)}), b_.getInt64Ty())});
  }
  b_.CreateStore(active, active_slot_);
  b_.CreateStore(active, mask_slot_);
  keep_stack();
}

void Emitter::begin(llvm::FunctionType* type, const std::string& name) {
  fn_ = llvm::cast<llvm::Function>(m_->module->getOrInsertFunction(name, type).getCallee());
  fn_->addFnAttr("no-trapping-math", "true");
  fn_->addFnAttr("probe-stack", "inline-asm");  // a frame of any size meets the stack's guard page
  fn_->addFnAttr(llvm::Attribute::NoUnwind);
  b_.SetInsertPoint(llvm::BasicBlock::Create(c_, "entry", fn_));
  warp_ = fn_->getArg(0);
  fn_->addParamAttr(0, llvm::Attribute::NoAlias);
}

void Emitter::create_state() {
  active_slot_ = variable(b_.getInt32Ty(), "active");
  mask_slot_ = variable(b_.getInt32Ty(), "mask");
  spin_counter_ = variable(b_.getInt32Ty(), "spins");
  carry_slot_ = variable(int_type(1, true), "cc");
  arrived_slot_ = variable(b_.getInt32Ty(), "arrived");
  cancelled_ = state_field(offsetof(WarpState, cancelled), b_.getPtrTy(), "cancelled");
  parameters_ = state_field(offsetof(WarpState, parameters), b_.getPtrTy(), "parameters");
  shared_ptr_ = state_field(offsetof(WarpState, shared), b_.getPtrTy(), "shared");
  shared_bytes_ = state_field(offsetof(WarpState, shared_bytes), b_.getInt32Ty(), "shared_bytes");
  local_base_ = state_field(offsetof(WarpState, local), b_.getPtrTy(), "local");
}

// Of the warp, zero at first.
V Emitter::variable(llvm::Type* type, const char* name) {
  if (pieces_) return frame_place(type, name);
  V slot = b_.CreateAlloca(type, nullptr, name);
  b_.CreateStore(llvm::Constant::getNullValue(type), slot);
  return slot;
}

llvm::Type* Emitter::register_type(size_t reg) const {
  const ptx::Type type = f_.registers[reg].type;
  return int_type(type == ptx::Type::kPred ? 1 : ptx::bits_of(type), a_.varying[reg]);
}

void Emitter::create_slots() {
  const std::vector<bool> in_memory = registers_in_memory();
  uint64_t bytes = 0;
  for (size_t r = 0; r < f_.registers.size(); ++r) bytes += in_memory[r] ? kMemorySlot : 0;
  V area = nullptr;
  if (bytes) {
    auto* room = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), bytes), nullptr, "registers");
    room->setAlignment(llvm::Align(64));
    area = call_helper("bsw_same", b_.getPtrTy(), {room});  // nothing in it becomes a value of LLVM's
    llvm::cast<llvm::CallInst>(area)->addRetAttr(llvm::Attribute::NoAlias);
  }
  uint64_t at = 0;
  for (size_t r = 0; r < f_.registers.size(); ++r) {
    llvm::Type* const type = register_type(r);
    V slot = in_memory[r] ? b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), area, at)
                          : b_.CreateAlloca(type, nullptr, f_.registers[r].name);
    at += in_memory[r] ? kMemorySlot : 0;
    slots_.push_back(slot);
    slot_types_.push_back(type);
    // Undefined registers read as zero: values then depend on the program only.
    b_.CreateStore(llvm::Constant::getNullValue(type), slot);
  }
}

// Inside regions any block may follow any other, so a value needs a phi in each of them that it is live into; where
// these are very many, LLVM takes minutes. The longest-lived registers stay in memory then.
std::vector<bool> Emitter::registers_in_memory() const {
  constexpr uint64_t kPhisMost = 3000;
  constexpr uint32_t kJoinsLeast = 12;
  std::vector<bool> in_memory(f_.registers.size());
  std::vector<size_t> order;
  uint64_t phis = 0, room = kRegisterRoom / kMemorySlot;
  for (size_t r = 0; r < a_.joins.size(); ++r) {
    phis += a_.joins[r];
    if (a_.joins[r] >= kJoinsLeast) order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return a_.joins[a] > a_.joins[b]; });
  for (size_t r : order) {
    if (phis <= kPhisMost || room-- == 0) break;
    in_memory[r] = true;
    phis -= a_.joins[r];
  }
  return in_memory;
}

llvm::Type* Emitter::int_type(unsigned bits, bool vector) const {
  llvm::Type* t = llvm::Type::getIntNTy(c_, bits);
  return vector ? llvm::FixedVectorType::get(t, kLanes) : t;
}

llvm::Type* Emitter::float_type(unsigned bits, bool vector) const {
  llvm::Type* t = bits == 64   ? llvm::Type::getDoubleTy(c_)
                  : bits == 16 ? llvm::Type::getHalfTy(c_)
                               : llvm::Type::getFloatTy(c_);
  return vector ? llvm::FixedVectorType::get(t, kLanes) : t;
}

V Emitter::iota(unsigned bits, unsigned groups, uint64_t step) {
  std::vector<llvm::Constant*> e;
  for (unsigned i = 0; i < kLanes; ++i)
    e.push_back(llvm::ConstantInt::get(llvm::Type::getIntNTy(c_, bits), (i % (kLanes / groups)) * step));
  return llvm::ConstantVector::get(e);
}

bool Emitter::op_is_vector(const Op& op) const {
  OpInfo info = op_info(op, entry_);
  bool varying = info.result == Result::kVarying;
  for_operands(op, info.definitions, [&](int r) { varying = varying || a_.varying[r]; });
  for (auto& a : op.args)
    if (a.kind == ArgKind::kSreg && !uniform_special(a.name)) varying = true;
  return varying;
}

void Emitter::check(const FlatFunction& function) {
  for (auto& block : function.blocks) {
    for (auto& op : block.ops) {
      if (!is_terminator(*op.in) && !handlers().contains(op.in->opcode)) unsupported(op);
      check_modifiers(op);
    }
  }
}

void Emitter::emit_op(const Op& op) {
  auto it = handlers().find(op.in->opcode);
  if (it == handlers().end()) unsupported(op);
  check_modifiers(op);
  vec_ = op_is_vector(op);
  op_ = &op;
  record_access(op);
  (this->*it->second)(op);
}

V Emitter::read_reg(int reg) { return b_.CreateLoad(slot_types_[reg], slots_[reg]); }

V Emitter::read(const Arg& arg, unsigned bits, bool sign) {
  switch (arg.kind) {
    case ArgKind::kReg: {
      V v = read_reg(arg.reg);
      unsigned have = v->getType()->getScalarSizeInBits();
      if (!arg.component.empty()) unsupported(*op_, "part of a register");
      llvm::Type* want = int_type(bits, v->getType()->isVectorTy());
      if (have > bits) v = b_.CreateTrunc(v, want);
      if (have < bits) v = sign ? b_.CreateSExt(v, want) : b_.CreateZExt(v, want);
      return shape(v);
    }
    case ArgKind::kInt:
      return konst(arg.bits, bits);
    case ArgKind::kFloat: {
      uint64_t v = arg.bits;
      if (bits == 32 && arg.is_double) {
        float f = static_cast<float>(std::bit_cast<double>(v));
        v = std::bit_cast<uint32_t>(f);
      } else if (bits == 64 && !arg.is_double) {
        v = std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(v))));
      }
      return konst(v, bits);
    }
    case ArgKind::kSreg: {
      V v = special(*op_, arg);
      unsigned have = v->getType()->getScalarSizeInBits();
      llvm::Type* want = int_type(bits, v->getType()->isVectorTy());
      if (have != bits) v = b_.CreateZExtOrTrunc(v, want);
      return shape(v);
    }
    case ArgKind::kName:
      if (!m_->is_kernel(arg.name)) unsupported(*op_, "operand " + arg.name);
      [[fallthrough]];
    case ArgKind::kVar:
    case ArgKind::kFunction: {
      V v = read_address_constant(*op_, arg);
      return shape(b_.CreateZExtOrTrunc(v, b_.getIntNTy(bits)));
    }
    case ArgKind::kVector: {
      if (arg.elements.empty() || bits % arg.elements.size()) unsupported(*op_);
      unsigned part = bits / arg.elements.size();
      V all = nullptr;
      for (size_t i = 0; i < arg.elements.size(); ++i) {
        V e = b_.CreateZExt(read(arg.elements[i], part), ity(bits));
        if (i) e = b_.CreateShl(e, konst(i * part, bits));
        all = all ? b_.CreateOr(all, e) : e;
      }
      return all;
    }
    default:
      unsupported(*op_, "operand");
  }
}

V Emitter::read_pred(const Arg& arg) {
  V v;
  if (arg.kind == ArgKind::kReg) {
    v = read_reg(arg.reg);
    if (v->getType()->getScalarSizeInBits() != 1) unsupported(*op_, "not a predicate");
    v = shape(v);
  } else if (arg.kind == ArgKind::kInt) {
    v = konst(arg.bits != 0, 1);
  } else {
    unsupported(*op_, "not a predicate");
  }
  return arg.negated ? b_.CreateNot(v) : v;
}

V Emitter::f32_of_half(V bits16, ptx::Type type) {
  bool vector = bits16->getType()->isVectorTy();
  if (type == ptx::Type::kF16 || type == ptx::Type::kF16x2)
    return b_.CreateFPExt(b_.CreateBitCast(bits16, float_type(16, vector)), float_type(32, vector));
  V wide = b_.CreateShl(b_.CreateZExt(bits16, int_type(32, vector)), 16);
  return b_.CreateBitCast(wide, float_type(32, vector));
}

// f64 to f32 rounded to odd: a second rounding to 16 bits is then right.
V Emitter::odd_f32(V d) {
  bool vector = d->getType()->isVectorTy();
  V f = b_.CreateFPTrunc(d, float_type(32, vector));
  V back = b_.CreateFPExt(f, d->getType());
  V bits = b_.CreateBitCast(f, int_type(32, vector));
  V magnitude = intrinsic(llvm::Intrinsic::fabs, {d}), back_magnitude = intrinsic(llvm::Intrinsic::fabs, {back});
  V above = b_.CreateFCmpOGT(back_magnitude, magnitude);
  V lower = b_.CreateSub(bits, b_.CreateZExt(above, bits->getType()));
  V odd = b_.CreateOr(lower, llvm::ConstantInt::get(bits->getType(), 1));
  return b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpONE(back, d), odd, bits), f->getType());
}

V Emitter::half_of_f32(V f, ptx::Type type) {
  bool vector = f->getType()->isVectorTy();
  if (f->getType()->getScalarSizeInBits() == 64) f = odd_f32(f);
  llvm::Type* narrow = int_type(16, vector);
  V r;
  if (type == ptx::Type::kF16) {
    r = b_.CreateBitCast(b_.CreateFPTrunc(f, float_type(16, vector)), narrow);
  } else {
    llvm::Type* t = int_type(32, vector);
    V bits = b_.CreateBitCast(f, t);
    V odd = b_.CreateAnd(b_.CreateLShr(bits, 16), llvm::ConstantInt::get(t, 1));
    V sum = b_.CreateAdd(bits, b_.CreateAdd(odd, llvm::ConstantInt::get(t, 0x7fff)));
    r = b_.CreateTrunc(b_.CreateLShr(sum, 16), narrow);
  }
  return b_.CreateSelect(b_.CreateFCmpUNO(f, f), llvm::ConstantInt::get(narrow, 0x7fff), r);
}

V Emitter::read_float(const Op& op, const Arg& arg, ptx::Type type) {
  switch (type) {
    case ptx::Type::kF32:
    case ptx::Type::kTf32:
      return b_.CreateBitCast(read(arg, 32), fty(32));
    case ptx::Type::kF64:
      return b_.CreateBitCast(read(arg, 64), fty(64));
    case ptx::Type::kF16:
    case ptx::Type::kBf16:
      return f32_of_half(flush_half(op, read(arg, 16), type), type);
    default:
      unsupported(op, "type");
  }
}

V Emitter::int_of(V v) {
  if (v->getType()->isIntOrIntVectorTy()) return v;
  return b_.CreateBitCast(v, int_type(v->getType()->getScalarSizeInBits(), v->getType()->isVectorTy()));
}

void Emitter::write_float(const Op& op, const Arg& arg, V value, ptx::Type type) {
  if (type == ptx::Type::kF16 || type == ptx::Type::kBf16) value = flush_half(op, half_of_f32(value, type), type);
  write(op, arg, int_of(value));
}

void Emitter::write(const Op& op, const Arg& arg, V value, bool sign) {
  if (arg.kind == ArgKind::kSink) return;
  value = int_of(value);
  if (arg.kind == ArgKind::kVector) {
    unsigned bits = value->getType()->getScalarSizeInBits();
    unsigned part = bits / arg.elements.size();
    bool vector = value->getType()->isVectorTy();
    for (size_t i = 0; i < arg.elements.size(); ++i) {
      V e = i ? b_.CreateLShr(value, i * part) : value;
      write(op, arg.elements[i], b_.CreateTrunc(e, int_type(part, vector)));
    }
    return;
  }
  if (arg.kind != ArgKind::kReg) unsupported(op, "destination");
  unsigned want = slot_types_[arg.reg]->getScalarSizeInBits();
  unsigned have = value->getType()->getScalarSizeInBits();
  llvm::Type* t = int_type(want, value->getType()->isVectorTy());
  if ((want == 1) != (have == 1)) unsupported(op, "destination type");
  if (have < want) value = sign ? b_.CreateSExt(value, t) : b_.CreateZExt(value, t);
  if (have > want) value = b_.CreateTrunc(value, t);
  store_reg(op, arg.reg, value);
}

void Emitter::store_reg(const Op& op, int reg, V value) {
  V slot = slots_[reg];
  bool varying = a_.varying[reg];
  if (varying)
    value = splat(value);
  else if (value->getType()->isVectorTy())
    value = scalar_of(value);
  bool blend = a_.needs_blend(block_, reg);
  if (op.guard >= 0) {
    V old = read_reg(reg);
    V bits;
    if (!varying) {
      V p = read_reg(op.guard);
      bits = op.guard_negated ? b_.CreateNot(p) : p;
    } else {
      bits = lanes_of(blend ? op_mask(op) : guard_bits(op));
    }
    value = b_.CreateSelect(bits, value, old);
  } else if (blend && varying) {
    value = b_.CreateSelect(lanes_of(mask_), value, read_reg(reg));
  }
  b_.CreateStore(value, slot);
}

V Emitter::guard_bits(const Op& op) {
  V p = read_reg(op.guard);
  if (op.guard_negated) p = b_.CreateNot(p);
  return p->getType()->isVectorTy() ? bits_of_vector(p) : b_.CreateSExt(p, b_.getInt32Ty());
}

V Emitter::op_mask(const Op& op) {
  if (op.guard < 0) return mask_;
  return b_.CreateAnd(mask_, guard_bits(op));
}

V Emitter::state_ptr(size_t offset) { return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), warp_, offset); }

V Emitter::state_field(size_t offset, llvm::Type* type, const char* name) {
  auto* load = b_.CreateLoad(type, state_ptr(offset), name);
  return load;
}

V Emitter::frame_scratch(const char* name, uint64_t bytes) {
  V& slot = scratch_[name + std::string(":") + std::to_string(bytes)];
  if (!slot) {
    llvm::IRBuilder<> entry(&fn_->getEntryBlock(), fn_->getEntryBlock().begin());
    auto* a = entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), bytes), nullptr, name);
    a->setAlignment(llvm::Align(64));
    slot = a;
  }
  return slot;
}

V Emitter::call_helper(const std::string& name, llvm::Type* result, std::vector<V> args) {
  std::vector<llvm::Type*> types;
  for (V a : args) types.push_back(a->getType());
  auto callee = m_->module->getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  auto* call = b_.CreateCall(callee, args);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  return call;
}

V Emitter::lane_helper(const std::string& name, std::vector<V> inputs, llvm::Type* element_result,
                       std::vector<V> extra) {
  std::vector<V> args;
  int n = 0;
  for (V in : inputs) {
    V v = splat(in);
    if (v->getType()->getScalarSizeInBits() == 1) v = b_.CreateZExt(v, int_type(8, true));
    V slot = frame_scratch(("in" + std::to_string(n++)).c_str(), 8 * kLanes);
    b_.CreateStore(v, slot);
    args.push_back(slot);
  }
  V out = frame_scratch("out", 8 * kLanes);
  args.push_back(out);
  for (V e : extra) args.push_back(e);
  call_helper(name, b_.getVoidTy(), args);
  V result = b_.CreateLoad(llvm::FixedVectorType::get(element_result, kLanes), out);
  return vec_ ? result : b_.CreateExtractElement(result, uint64_t{0});
}

V Emitter::intrinsic(llvm::Intrinsic::ID id, std::vector<V> args) {
  std::vector<llvm::Type*> types;
  if (id == llvm::Intrinsic::frameaddress)
    types.push_back(b_.getPtrTy());
  else
    types.push_back(args[0]->getType());
  return b_.CreateIntrinsic(id, types, args);
}

V Emitter::scalar_of(V v) {
  if (!v->getType()->isVectorTy()) return v;
  V lane = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {mask_, b_.getFalse()});
  return b_.CreateExtractElement(v, b_.CreateAnd(lane, i32(31)));
}

}  // namespace bandsaw::soft
