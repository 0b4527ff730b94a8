// call: functions of the module, function pointers, and the few functions that the CUDA runtime declares for device
// code. Arguments travel in memory, one vector of 32 lanes for each scalar (or word of an array).
#include <llvm/IR/Intrinsics.h>

#include "backend/device/soft/codegen/device_runtime.h"
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

bool is_array(const ptx::Variable* v) { return v->is_array(); }

uint64_t slot_bytes(const ptx::Variable* v) {
  if (is_array(v)) return 128 * std::max<uint64_t>(1, (v->bytes() + 3) / 4);
  return std::max<uint64_t>(64, v->bytes() * kLanes);
}

std::string signature(const std::vector<const ptx::Variable*>& returns,
                      const std::vector<const ptx::Variable*>& parameters) {
  std::string s;
  auto add = [&](const ptx::Variable* v) { s += (is_array(v) ? "a" : "s") + std::to_string(v->bytes()) + "."; };
  for (auto* v : returns) add(v);
  s += "-";
  for (auto* v : parameters) add(v);
  return s;
}

// FNV-1a: it stands in code that is kept on disk.
uint64_t number_of(const std::string& signature) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : signature) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::vector<const ptx::Variable*> pointers(const std::vector<ptx::Variable>& v) {
  std::vector<const ptx::Variable*> p;
  for (auto& x : v) p.push_back(&x);
  return p;
}

}  // namespace

uint64_t function_signature(const ptx::Function& function) {
  return number_of(signature(pointers(function.returns), pointers(function.parameters)));
}

std::vector<uint64_t> Emitter::layout(const std::vector<const ptx::Variable*>& v, uint64_t* total) {
  std::vector<uint64_t> offsets;
  *total = 0;
  for (auto* x : v) {
    offsets.push_back(*total);
    *total += slot_bytes(x);
  }
  return offsets;
}

void Emitter::op_call(const Op& op) {
  size_t i = 0;
  std::vector<Arg> returns, arguments;
  if (i < op.args.size() && op.args[i].kind == ArgKind::kVector) returns = op.args[i++].elements;
  if (i >= op.args.size()) unsupported(op);
  const Arg& target = op.args[i++];
  if (i < op.args.size() && op.args[i].kind == ArgKind::kVector) arguments = op.args[i++].elements;
  std::string prototype = i < op.args.size() ? op.args[i].name : "";
  vec_ = true;
  if (target.kind == ArgKind::kFunction && !m_->function_numbers.contains(target.name)) {
    if (!call_builtin(op, target.name, returns, arguments))
      unsupported(op, "function " + target.name + " is not defined");
    return;
  }
  if (target.kind != ArgKind::kFunction && target.kind != ArgKind::kReg) unsupported(op, "call of " + target.name);
  std::vector<const ptx::Variable*> in, out;
  for (auto& a : arguments) {
    if (a.kind != ArgKind::kVar || a.var->space != ptx::Space::kParam) unsupported(op, "argument that is not a .param");
    in.push_back(a.var->declaration);
  }
  for (auto& a : returns) {
    if (a.kind != ArgKind::kVar || a.var->space != ptx::Space::kParam) unsupported(op, "result that is not a .param");
    out.push_back(a.var->declaration);
  }
  std::string sig = signature(out, in);
  uint64_t in_bytes, out_bytes;
  auto in_offsets = layout(in, &in_bytes), out_offsets = layout(out, &out_bytes);
  V area = frame_scratch("arguments", std::max<uint64_t>(64, in_bytes));
  V results = frame_scratch("results", std::max<uint64_t>(64, out_bytes));
  for (size_t k = 0; k < arguments.size(); ++k)
    b_.CreateMemCpy(b_.CreateConstGEP1_64(b_.getInt8Ty(), area, in_offsets[k]), llvm::MaybeAlign(64),
                    param_slot(arguments[k].var), llvm::MaybeAlign(64),
                    is_array(in[k]) ? slot_bytes(in[k]) : in[k]->bytes() * kLanes);
  V frame = b_.CreateAdd(frame_, i32(frame_bytes_));
  V mask = op_mask(op);
  auto fetch = [&](V lanes) {
    for (size_t k = 0; k < returns.size(); ++k) {
      V slot = param_slot(returns[k].var);
      V from = b_.CreateConstGEP1_64(b_.getInt8Ty(), results, out_offsets[k]);
      uint64_t words = is_array(out[k]) ? slot_bytes(out[k]) / 128 : 1;
      llvm::Type* t = is_array(out[k]) ? int_type(32, true) : int_type(ptx::bits_of(out[k]->type), true);
      for (uint64_t w = 0; w < words; ++w) {
        V fresh = b_.CreateAlignedLoad(t, b_.CreateConstGEP1_64(b_.getInt8Ty(), from, w * 128), llvm::Align(32));
        V at = b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, w * 128);
        if (lanes) fresh = b_.CreateSelect(lanes_of(lanes), fresh, b_.CreateAlignedLoad(t, at, llvm::Align(32)));
        b_.CreateAlignedStore(fresh, at, llvm::Align(32));
      }
    }
  };
  auto type = llvm::FunctionType::get(
      b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getPtrTy(), b_.getPtrTy(), b_.getInt32Ty()}, false);
  auto* run = llvm::BasicBlock::Create(c_, "call", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "called", fn_);
  if (target.kind == ArgKind::kFunction) {
    const ptx::Function* callee = m_->flat->source->function(target.name);
    if (signature(pointers(callee->returns), pointers(callee->parameters)) != sig)
      unsupported(op, "arguments do not match");
    b_.CreateCondBr(b_.CreateICmpNE(mask, i32(0)), run, done);
    b_.SetInsertPoint(run);
    const llvm::FunctionCallee code = m_->apart->contains(target.name)
                                          ? found_function(*callee, type)
                                          : m_->module->getOrInsertFunction("f." + target.name, type);
    b_.CreateCall(code, {warp_, mask, area, results, frame});
    fetch(nullptr);
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    return refresh_after_call(op);
  }
  (void)prototype;
  V pointer = splat(read(target, 64));
  auto* function = indirect_function(sig);
  auto* entry = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(c_, "targets", fn_);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  auto* rest = b_.CreatePHI(b_.getInt32Ty(), 2);
  rest->addIncoming(mask, entry);
  b_.CreateCondBr(b_.CreateICmpNE(rest, i32(0)), run, done);
  b_.SetInsertPoint(run);
  V lane = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {rest, b_.getTrue()});
  V address = b_.CreateExtractElement(pointer, lane);
  V same = b_.CreateAnd(rest, bits_of_vector(b_.CreateICmpEQ(pointer, splat(address))));
  b_.CreateCall(function, {warp_, same, area, results, frame, address});
  fetch(same);
  rest->addIncoming(b_.CreateAnd(rest, b_.CreateNot(same)), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(done);
  refresh_after_call(op);
}

// Code in another object, or null.
V Emitter::find_function(llvm::IRBuilder<>& b, V address, uint64_t signature) {
  auto finder = m_->module->getOrInsertFunction(
      "bsw_find_function",
      llvm::FunctionType::get(b.getPtrTy(), {b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()}, false));
  V here = m_->module->getOrInsertGlobal("m.functions", b.getInt8Ty());
  return b.CreateCall(finder, {here, address, b.getInt64(signature)});
}

// The code of a function that is compiled apart, which happens now if nobody has called it yet.
llvm::FunctionCallee Emitter::found_function(const ptx::Function& function, llvm::FunctionType* type) {
  const uint64_t address = kFunctionWindow + 16ull * m_->function_numbers.at(function.name);
  V found = find_function(b_, i64(address), function_signature(function));
  fault_if(b_.CreateSelect(b_.CreateIsNull(found), mask_, i32(0)), Fault::kInvalidPc);
  return {type, found};
}

// A function that calls the one of the module's functions that the pointer means, if its signature fits: a program can
// put any number into a function pointer.
llvm::Function* Emitter::indirect_function(const std::string& sig) {
  std::string name = "i." + sig;
  if (auto* known = m_->module->getFunction(name)) return known;
  llvm::Type *ptr = b_.getPtrTy(), *word = b_.getInt32Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, word, ptr, ptr, word, b_.getInt64Ty()}, false);
  auto* f = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, *m_->module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(c_, "entry", f));
  auto* bad = llvm::BasicBlock::Create(c_, "bad", f);
  auto* plain = llvm::FunctionType::get(b.getVoidTy(), {ptr, word, ptr, ptr, word}, false);
  std::vector<llvm::Value*> args;
  for (int i = 0; i < 5; ++i) args.push_back(f->getArg(i));
  if (m_->by_finder) {
    llvm::Value* found = find_function(b, f->getArg(5), number_of(sig));
    auto* good = llvm::BasicBlock::Create(c_, "good", f);
    b.CreateCondBr(b.CreateIsNotNull(found), good, bad);
    b.SetInsertPoint(good);
    b.CreateCall(plain, found, args);
    b.CreateRetVoid();
  } else {
    llvm::Value* number = b.CreateSub(f->getArg(5), b.getInt64(kFunctionWindow));
    auto* sw = b.CreateSwitch(number, bad);
    for (auto& [callee_name, index] : m_->function_numbers) {
      const ptx::Function* callee = m_->flat->source->function(callee_name);
      if (callee->entry || signature(pointers(callee->returns), pointers(callee->parameters)) != sig) continue;
      auto* bb = llvm::BasicBlock::Create(c_, callee_name, f);
      sw->addCase(b.getInt64(16ull * index), bb);
      b.SetInsertPoint(bb);
      b.CreateCall(m_->module->getOrInsertFunction("f." + callee_name, plain), args);
      b.CreateRetVoid();
    }
  }
  b.SetInsertPoint(bad);
  auto fault = m_->module->getOrInsertFunction(
      "bandsaw_fault", llvm::FunctionType::get(b.getVoidTy(), {ptr, word, b.getInt64Ty()}, false));
  b.CreateCall(fault, {f->getArg(0), b.getInt32(uint32_t(Fault::kInvalidPc)), f->getArg(5)});
  b.CreateUnreachable();
  return f;
}

// Lanes may have exited in the callee.
void Emitter::refresh_after_call(const Op& op) {
  if (!m_->functions_may_exit) return;
  V live = b_.CreateLoad(b_.getInt32Ty(), state_ptr(offsetof(WarpState, live)));
  V active = b_.CreateLoad(b_.getInt32Ty(), active_slot_);
  b_.CreateStore(b_.CreateAnd(active, live), active_slot_);
  mask_ = b_.CreateAnd(mask_, live);
  auto* on = llvm::BasicBlock::Create(c_, "on", fn_);
  auto* none = llvm::BasicBlock::Create(c_, "none", fn_);
  b_.CreateCondBr(b_.CreateICmpNE(mask_, i32(0)), on, none);
  b_.SetInsertPoint(none);
  finish_if_empty();
  b_.SetInsertPoint(on);
}

bool Emitter::call_builtin(const Op& op, const std::string& name, const std::vector<Arg>& returns,
                           const std::vector<Arg>& args) {
  static const std::map<std::string, std::pair<size_t, size_t>> known = {
      {"vprintf", {1, 2}}, {"__assertfail", {0, 5}}, {"malloc", {1, 1}}, {"free", {0, 1}}};
  if (const DeviceFunction* function = device_function(name)) return call_device(op, *function, returns, args), true;
  auto it = known.find(name);
  if (it == known.end()) return false;
  const auto [results, arguments] = it->second;  // declarations may leave the result out
  if (returns.size() > results || args.size() != arguments) unsupported(op, "arguments");
  std::vector<V> helper{warp_, op_mask(op)};
  int n = 0;
  for (auto& a : args) {
    if (a.kind != ArgKind::kVar || a.var->declaration->is_array()) unsupported(op, "argument");
    unsigned bits = ptx::bits_of(a.var->declaration->type);
    V v = b_.CreateAlignedLoad(int_type(bits, true), param_slot(a.var), llvm::Align(32));
    V area = frame_scratch(("builtin" + std::to_string(n++)).c_str(), 8 * kLanes);
    b_.CreateStore(b_.CreateZExt(v, int_type(64, true)), area);
    helper.push_back(area);
  }
  V out = frame_scratch("out", 8 * kLanes);
  if (results != 0) helper.push_back(out);
  call_helper("bsw_" + name, b_.getVoidTy(), helper);
  if (!returns.empty()) {
    const Place* p = returns[0].var;
    if (returns[0].kind != ArgKind::kVar || p->declaration->is_array()) unsupported(op, "result");
    unsigned bits = ptx::bits_of(p->declaration->type);
    V r = b_.CreateTrunc(b_.CreateLoad(int_type(64, true), out), int_type(bits, true));
    b_.CreateAlignedStore(r, param_slot(p), llvm::Align(32));
  }
  return true;
}

// Words of all lanes, one row an argument.
void Emitter::call_device(const Op& op, const DeviceFunction& function, const std::vector<Arg>& returns,
                          const std::vector<Arg>& args) {
  constexpr uint64_t kRow = 8 * kLanes;
  const bool value = function.result != 'v';
  if (args.size() != function.words() || returns.size() != (value ? 1 : 0)) unsupported(op, "arguments");
  const auto scalar_bits = [&](const Arg& a) {
    if (a.kind != ArgKind::kVar || a.var->declaration->is_array()) unsupported(op, "argument");
    return ptx::bits_of(a.var->declaration->type);
  };
  V words = frame_scratch("device_words", kRow * kDeviceCallWords), out = frame_scratch("out", kRow);
  for (size_t i = 0; i < args.size(); ++i) {
    V v = b_.CreateAlignedLoad(int_type(scalar_bits(args[i]), true), param_slot(args[i].var), llvm::Align(32));
    V row = b_.CreateConstGEP1_64(b_.getInt8Ty(), words, i * kRow);
    b_.CreateAlignedStore(b_.CreateZExt(v, int_type(64, true)), row, llvm::Align(32));
  }
  call_helper("bsw_device_call", b_.getVoidTy(),
              {warp_, op_mask(op), i32(static_cast<uint32_t>(function.call)), words, out});
  if (!value) return;
  V r = b_.CreateTrunc(b_.CreateLoad(int_type(64, true), out), int_type(scalar_bits(returns[0]), true));
  b_.CreateAlignedStore(r, param_slot(returns[0].var), llvm::Align(32));
}

}  // namespace bandsaw::soft
