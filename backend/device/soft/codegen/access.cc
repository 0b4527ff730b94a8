// Loads and stores of 32 lanes. The common shapes (one address for all, consecutive elements, shared-memory patterns
// that a vector permutation serves) are inlined behind a check; everything else, faults included, goes to helpers.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include "backend/device/soft/codegen/emitter.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {
namespace {

uint32_t space_code(ptx::Space s) {
  switch (s) {
    case ptx::Space::kShared:
      return 2;
    case ptx::Space::kLocal:
      return 3;
    case ptx::Space::kNone:
      return 0;
    default:
      return 1;
  }
}

bool strong(const Op& op) {
  for (auto m : {"volatile", "relaxed", "acquire", "release", "mmio"})
    if (op.in->has(m)) return true;
  return false;
}

// Nobody may see half of its 16 bytes, or it has an effect of its own: a helper makes each access by itself.
bool indivisible(const Op& op) { return strong(op) && (op.in->has("mmio") || ptx::bits_of(op.in->type()) > 64); }

}  // namespace

V Emitter::in_window(V address, uint64_t bytes) {
  V distance = b_.CreateSub(address, i64(m_->window_base));
  return b_.CreateICmpULE(distance, i64(VGPU_WINDOW_BYTES - bytes));
}

// Before and after an access that others may look for: LLVM moves no other one over it, and the processor keeps loads
// and stores in order anyway. Elements of a vector are as whole as accesses of their own.
void Emitter::keep_order(const Op& op) {
  if (strong(op)) b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent, llvm::SyncScope::SingleThread);
}

V Emitter::address_of(const Location& l) { return l.offset ? add_offset(l, l.address) : l.address; }

// 32-bit addresses wrap around at 32 bits.
V Emitter::add_offset(const Location& l, V address) {
  V sum = b_.CreateAdd(address, llvm::ConstantInt::get(address->getType(), l.offset));
  return l.narrow ? b_.CreateAnd(sum, llvm::ConstantInt::get(address->getType(), 0xffffffffu)) : sum;
}

std::vector<V> Emitter::load_slow(const Op& op, const Location& l, unsigned bytes, unsigned count, V mask) {
  V addresses = frame_scratch("addresses", 8 * kLanes);
  V out = frame_scratch("data", 8ull * 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  call_helper("bsw_load", b_.getVoidTy(),
              {warp_, mask, addresses, out, i32(bytes), i32(count), i32(space_code(l.space))});
  std::vector<V> values;
  for (unsigned i = 0; i < count; ++i) {
    V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), out, uint64_t{i} * bytes * kLanes);
    values.push_back(b_.CreateAlignedLoad(int_type(bytes * 8, true), p, llvm::Align(bytes * 32 >= 64 ? 64 : 32)));
  }
  return values;
}

void Emitter::store_slow(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values, V mask) {
  V addresses = frame_scratch("addresses", 8 * kLanes);
  V data = frame_scratch("data", 8ull * 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  for (size_t i = 0; i < values.size(); ++i)
    b_.CreateAlignedStore(splat(values[i]), b_.CreateConstGEP1_64(b_.getInt8Ty(), data, i * bytes * kLanes),
                          llvm::Align(bytes * 32 >= 64 ? 64 : 32));
  call_helper("bsw_store", b_.getVoidTy(),
              {warp_, mask, addresses, data, i32(bytes), i32(values.size()), i32(space_code(l.space))});
}

// Whether [a, a + bytes) may be touched directly, and the pointer to do so.
V Emitter::range_ok(const Location& l, V address, uint64_t bytes) {
  if (l.space != ptx::Space::kShared) return in_window(address, bytes);
  V end = b_.CreateAdd(address, i64(bytes));
  V limit = b_.CreateZExt(shared_bytes_, b_.getInt64Ty());
  return b_.CreateAnd(b_.CreateICmpULE(end, limit), b_.CreateICmpULE(address, limit));
}

V Emitter::direct_pointer(const Location& l, V address) {
  if (l.space == ptx::Space::kShared) return b_.CreateGEP(b_.getInt8Ty(), shared_ptr_, address);
  return b_.CreateIntToPtr(address, b_.getPtrTy());
}

// The next warps mostly go on where this one ends; a warp is too short for the processor to see the stream in time.
void Emitter::prefetch(const Location& l, V address, bool write) {
  if (l.space == ptx::Space::kShared) return;
  constexpr uint64_t kAhead = 2048;
  for (uint64_t line = 0; line < 128; line += 64) {
    V p = b_.CreateIntToPtr(b_.CreateAdd(address, i64(kAhead + line)), b_.getPtrTy());
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()}, {p, i32(write), i32(3), i32(1)});
  }
}

V Emitter::likely(V condition, llvm::BasicBlock* yes, llvm::BasicBlock* no) {
  return b_.CreateCondBr(condition, yes, no, llvm::MDBuilder(c_).createBranchWeights(10000, 1));
}

// One address for all lanes; scalars result.
std::vector<V> Emitter::load_scalar(const Op& op, const Location& l, unsigned bytes, unsigned count) {
  uint64_t total = uint64_t{bytes} * count;
  V address = address_of(l);
  V mask = op_mask(op);
  V ok = b_.CreateAnd(range_ok(l, address, total), b_.CreateICmpEQ(b_.CreateAnd(address, i64(total - 1)), i64(0)));
  if (op.guard >= 0) ok = b_.CreateAnd(ok, b_.CreateICmpNE(mask, i32(0)));
  auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
  auto* slow = llvm::BasicBlock::Create(c_, "slow", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  likely(ok, fast, slow);
  b_.SetInsertPoint(fast);
  llvm::Type* element = b_.getIntNTy(bytes * 8);
  V pointer = direct_pointer(l, address);
  std::vector<V> quick;
  for (unsigned i = 0; i < count; ++i) {
    V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, uint64_t{i} * bytes);
    quick.push_back(b_.CreateAlignedLoad(element, p, llvm::Align(bytes), strong(op)));
  }
  b_.CreateBr(done);
  b_.SetInsertPoint(slow);
  std::vector<V> careful = load_slow(op, l, bytes, count, mask);
  for (auto& v : careful) v = scalar_of(v);
  auto* slow_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  std::vector<V> result;
  for (unsigned i = 0; i < count; ++i) {
    auto* phi = b_.CreatePHI(element, 2);
    phi->addIncoming(quick[i], fast);
    phi->addIncoming(careful[i], slow_end);
    result.push_back(phi);
  }
  return result;
}

// Shared memory, 4-byte elements: every half of the warp whose addresses lie within 64 bytes from its first lane's is
// one vector load and one permutation. That covers rows, broadcasts and small tiles.
V Emitter::load_shared_window(const Op& op, const Location& l, V mask, llvm::BasicBlock* slow) {
  V address = b_.CreateTrunc(l.address, int_type(32, true)), heads[2], index = nullptr;
  V ok = half_windows(address, mask, heads, &index);
  for (V& head : heads) {
    head = b_.CreateAdd(head, i32(static_cast<uint32_t>(l.offset)));
    ok = b_.CreateAnd(ok, b_.CreateICmpULT(head, shared_bytes_));
    ok = b_.CreateAnd(ok, b_.CreateICmpEQ(b_.CreateAnd(head, i32(3)), i32(0)));
  }
  auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
  likely(ok, fast, slow);
  b_.SetInsertPoint(fast);
  return permuted_halves(heads, 0, index);
}

// i1: each active lane lies within 64 bytes from the first one of its half, by whole words, of which *index gets the
// number. `heads`: the addresses of the first ones.
V Emitter::half_windows(V address, V mask, V heads[2], V* index) {
  llvm::SmallVector<int> first(16, 0);
  first.append(16, 16);
  V relative = b_.CreateSub(address, b_.CreateShuffleVector(address, first));
  V inside = b_.CreateICmpEQ(b_.CreateAnd(relative, llvm::ConstantInt::get(address->getType(), ~60u)),
                             llvm::Constant::getNullValue(address->getType()));
  for (int h = 0; h < 2; ++h) heads[h] = b_.CreateExtractElement(address, uint64_t(16 * h));
  *index = b_.CreateLShr(relative, 2);
  return b_.CreateICmpEQ(b_.CreateOr(bits_of_vector(inside), b_.CreateNot(mask)), i32(~0u));
}

// The words of shared memory at these places, `offset` bytes on.
V Emitter::permuted_halves(V heads[2], uint64_t offset, V index) {
  std::vector<V> halves;
  auto* half = llvm::FixedVectorType::get(b_.getInt32Ty(), 16);
  for (unsigned h = 0; h < 2; ++h) {
    V p = b_.CreateGEP(b_.getInt8Ty(), shared_ptr_, b_.CreateZExt(heads[h], b_.getInt64Ty()));
    if (offset != 0) p = b_.CreateConstGEP1_64(b_.getInt8Ty(), p, offset);
    V data = b_.CreateAlignedLoad(half, p, llvm::Align(4));
    V where = b_.CreateShuffleVector(index, llvm::createSequentialMask(16 * h, 16, 0));
    halves.push_back(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_si_512, {}, {data, where}));
  }
  return llvm::concatenateVectors(b_, halves);
}

// i1: all active lanes address consecutive elements, each half of the warp from its own start. `starts` gets the two
// first addresses.
V Emitter::consecutive(const Location& l, V mask, uint64_t step, V starts[2]) {
  if (l.index && step % l.scale == 0) return consecutive_index(l, mask, step, starts);
  llvm::SmallVector<int> heads(16, 0);
  heads.append(16, 16);
  V expected = b_.CreateAdd(b_.CreateShuffleVector(l.address, heads), iota(64, 2, step));
  V equal = bits_of_vector(b_.CreateICmpEQ(l.address, expected));
  V ok = b_.CreateICmpEQ(b_.CreateOr(equal, b_.CreateNot(mask)), i32(~0u));
  for (int h = 0; h < 2; ++h) {
    starts[h] = add_offset(l, b_.CreateExtractElement(l.address, uint64_t(16 * h)));
    ok = b_.CreateAnd(ok, range_ok(l, starts[h], 16 * step));
  }
  V low = b_.CreateAnd(b_.CreateOr(starts[0], starts[1]), i64(step - 1));
  return b_.CreateAnd(ok, b_.CreateICmpEQ(low, i64(0)));
}

// Whether elements that lie side by side are accessed directly only where no lane is missing. AVX2 has no masks for
// bytes and halves: LLVM would make a branch for each lane.
bool Emitter::takes_all_lanes(unsigned bytes, unsigned count) const { return count > 1 || (bytes < 4 && !m_->avx512); }

// <16 x i1>: the lanes of one half, for elements of so many bytes. Bits become a mask in one instruction of AVX-512;
// for AVX2, LLVM would take out one bit after the other, unless each lane is told to look at its own.
V Emitter::half_lanes(V mask, int half, unsigned bytes) {
  if (m_->avx512) {
    return b_.CreateBitCast(b_.CreateTrunc(half ? b_.CreateLShr(mask, 16) : mask, b_.getInt16Ty()),
                            llvm::FixedVectorType::get(b_.getInt1Ty(), 16));
  }
  auto* element = b_.getIntNTy(8 * bytes);
  llvm::SmallVector<llvm::Constant*, 16> own;
  for (unsigned lane = 0; lane < 16; ++lane) own.push_back(llvm::ConstantInt::get(element, 1u << (16 * half + lane)));
  V bits = b_.CreateAnd(b_.CreateVectorSplat(16, b_.CreateZExt(mask, element)), llvm::ConstantVector::get(own));
  return b_.CreateICmpNE(bits, llvm::Constant::getNullValue(bits->getType()));
}

bool Emitter::can_scatter(unsigned bytes, unsigned count) const {
  constexpr size_t kMostInline = 24;
  return m_->avx512 && accesses_ <= kMostInline && count == 1 && (bytes == 4 || bytes == 8);
}

// i1: every active lane's address is aligned, and `reach` bytes from it may be touched directly.
V Emitter::all_direct(const Location& l, V mask, uint64_t reach, uint64_t align) {
  V address = address_of(l), inside;
  if (l.space == ptx::Space::kShared) {
    V room = intrinsic(llvm::Intrinsic::usub_sat, {b_.CreateZExt(shared_bytes_, b_.getInt64Ty()), i64(reach - 1)});
    inside = b_.CreateICmpULT(address, splat(room));
  } else {
    inside =
        b_.CreateICmpULE(b_.CreateSub(address, splat(i64(m_->window_base))), splat(i64(VGPU_WINDOW_BYTES - reach)));
  }
  V aligned =
      b_.CreateICmpEQ(b_.CreateAnd(address, splat(i64(align - 1))), llvm::Constant::getNullValue(address->getType()));
  return b_.CreateICmpEQ(b_.CreateOr(bits_of_vector(b_.CreateAnd(inside, aligned)), b_.CreateNot(mask)), i32(~0u));
}

V Emitter::lane_pointers(const Location& l) {
  V address = address_of(l);
  if (l.space == ptx::Space::kShared) return b_.CreateGEP(b_.getInt8Ty(), shared_ptr_, address);
  return b_.CreateIntToPtr(address, llvm::FixedVectorType::get(b_.getPtrTy(), kLanes));
}

// i1: each half of the warp reads one place, from where `reach` bytes may be read. `starts` gets the two.
V Emitter::half_places(const Location& l, V mask, uint64_t reach, uint64_t align, V starts[2]) {
  V address = address_of(l);
  llvm::SmallVector<int> order;
  for (int i = 0; i < static_cast<int>(kLanes); ++i) order.push_back(i / 16 * 16);
  V same = b_.CreateICmpEQ(address, b_.CreateShuffleVector(address, order));
  V ok = b_.CreateICmpEQ(b_.CreateOr(bits_of_vector(same), b_.CreateNot(mask)), i32(~0u));
  for (int h = 0; h < 2; ++h) {
    starts[h] = b_.CreateExtractElement(address, uint64_t(16 * h));
    ok = b_.CreateAnd(ok, range_ok(l, starts[h], reach));
    ok = b_.CreateAnd(ok, b_.CreateICmpEQ(b_.CreateAnd(starts[h], i64(align - 1)), i64(0)));
  }
  return ok;
}

// Two runs of 16 elements, `further` bytes on from these places; lanes that do not take part read nothing.
V Emitter::masked_halves(V places[2], uint64_t further, unsigned bytes, V mask) {
  auto* half = llvm::FixedVectorType::get(b_.getIntNTy(bytes * 8), 16);
  V parts[2];
  for (int h = 0; h < 2; ++h) {
    V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), places[h], further);
    parts[h] = b_.CreateMaskedLoad(half, p, llvm::Align(bytes), half_lanes(mask, h, bytes),
                                   llvm::Constant::getNullValue(half));
  }
  return llvm::concatenateVectors(b_, parts);
}

// What lies there, `further` bytes on, in all lanes of each half.
V Emitter::splat_halves(V places[2], uint64_t further, unsigned bytes) {
  V words[2];
  for (int h = 0; h < 2; ++h) {
    V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), places[h], further);
    words[h] = b_.CreateVectorSplat(16, b_.CreateAlignedLoad(b_.getIntNTy(bytes * 8), p, llvm::Align(bytes)));
  }
  return llvm::concatenateVectors(b_, words);
}

// Shared memory where each half of the warp reads one place, as rows of a tile are: two loads of each word. Leaves by
// `halves`, whose end the caller writes, or to `other`.
std::vector<V> Emitter::load_halves(const Location& l, V mask, unsigned bytes, unsigned count, llvm::BasicBlock* halves,
                                    llvm::BasicBlock* other) {
  const uint64_t total = uint64_t{bytes} * count;
  V starts[2], ok = half_places(l, mask, total, total, starts);
  likely(ok, halves, other);
  b_.SetInsertPoint(halves);
  V places[2] = {direct_pointer(l, starts[0]), direct_pointer(l, starts[1])};
  std::vector<V> values;
  for (unsigned i = 0; i < count; ++i) values.push_back(splat_halves(places, uint64_t{i} * bytes, bytes));
  return values;
}

std::vector<V> Emitter::load_lanes(const Op& op, const Location& l, unsigned bytes, unsigned count) {
  V mask = op_mask(op);
  if (indivisible(op) || bytes * count > 16) return load_slow(op, l, bytes, count, mask);
  keep_order(op);
  auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
  auto* slow = llvm::BasicBlock::Create(c_, "slow", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  std::vector<V> quick;
  if (l.space == ptx::Space::kShared && bytes == 4 && count == 1 && m_->avx512 && l.offset % 4 == 0) {
    quick.push_back(load_shared_window(op, l, mask, slow));
    fast->eraseFromParent();
  } else {
    V starts[2];
    V ok = consecutive(l, mask, uint64_t{bytes} * count, starts);
    const bool all_lanes = takes_all_lanes(bytes, count);
    if (all_lanes) ok = b_.CreateAnd(ok, b_.CreateICmpEQ(mask, i32(~0u)));
    likely(ok, fast, slow);
    b_.SetInsertPoint(fast);
    prefetch(l, starts[0], false);
    V places[2] = {direct_pointer(l, starts[0]), direct_pointer(l, starts[1])};
    if (all_lanes) {
      quick = load_side_by_side(places, bytes, count);
    } else {
      quick.push_back(masked_halves(places, 0, bytes, mask));
    }
  }
  auto* fast_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(slow);
  V gathered = nullptr;
  llvm::BasicBlock* gather = nullptr;
  if (can_scatter(bytes, count)) {
    gather = llvm::BasicBlock::Create(c_, "gather", fn_);
    auto* helper = llvm::BasicBlock::Create(c_, "helper", fn_);
    likely(all_direct(l, mask, bytes, bytes), gather, helper);
    b_.SetInsertPoint(gather);
    gathered = b_.CreateMaskedGather(quick[0]->getType(), lane_pointers(l), llvm::Align(bytes), lanes_of(mask),
                                     llvm::Constant::getNullValue(quick[0]->getType()));
    b_.CreateBr(done);
    b_.SetInsertPoint(helper);
  }
  std::vector<V> two;
  llvm::BasicBlock* halves = nullptr;
  if (l.space == ptx::Space::kShared && (count > 1 || !m_->avx512)) {
    halves = llvm::BasicBlock::Create(c_, "halves", fn_);
    auto* helper = llvm::BasicBlock::Create(c_, "helper", fn_);
    two = load_halves(l, mask, bytes, count, halves, helper);
    b_.CreateBr(done);
    b_.SetInsertPoint(helper);
  }
  std::vector<V> careful = load_slow(op, l, bytes, count, mask);
  auto* slow_end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  std::vector<V> result;
  for (unsigned i = 0; i < count; ++i) {
    auto* phi = b_.CreatePHI(quick[i]->getType(), 3);
    phi->addIncoming(quick[i], fast_end);
    if (gather) phi->addIncoming(gathered, gather);
    if (halves) phi->addIncoming(two[i], halves);
    phi->addIncoming(careful[i], slow_end);
    result.push_back(phi);
  }
  keep_order(op);
  return result;
}

std::vector<V> Emitter::load(const Op& op, const Location& l, unsigned bytes, unsigned count, bool vector_result) {
  if (l.space == ptx::Space::kLocal) return load_local(op, l, bytes, count);
  bool generic = l.space == ptx::Space::kNone;
  if (l.address->getType()->isVectorTy()) return load_lanes(op, l, bytes, count);
  if (generic || bytes * count > 16) {
    // One generic address may still be each lane's own local memory.
    if (bytes * count > 16) return load_slow(op, l, bytes, count, op_mask(op));
    V address = address_of(l);
    V total = i64(bytes * count);
    V ok = b_.CreateAnd(in_window(address, bytes * count),
                        b_.CreateICmpEQ(b_.CreateAnd(address, b_.CreateSub(total, i64(1))), i64(0)));
    if (op.guard >= 0) ok = b_.CreateAnd(ok, b_.CreateICmpNE(op_mask(op), i32(0)));
    auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
    auto* slow = llvm::BasicBlock::Create(c_, "slow", fn_);
    auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
    likely(ok, fast, slow);
    b_.SetInsertPoint(fast);
    std::vector<V> quick;
    V pointer = direct_pointer(l, address);
    for (unsigned i = 0; i < count; ++i)
      quick.push_back(splat(b_.CreateAlignedLoad(b_.getIntNTy(bytes * 8),
                                                 b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, uint64_t{i} * bytes),
                                                 llvm::Align(bytes), strong(op))));
    b_.CreateBr(done);
    b_.SetInsertPoint(slow);
    auto careful = load_slow(op, l, bytes, count, op_mask(op));
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    std::vector<V> result;
    for (unsigned i = 0; i < count; ++i) {
      auto* phi = b_.CreatePHI(quick[i]->getType(), 2);
      phi->addIncoming(quick[i], fast);
      phi->addIncoming(careful[i], slow);
      result.push_back(phi);
    }
    return result;
  }
  return load_scalar(op, l, bytes, count);
}

void Emitter::store(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values) {
  if (l.space == ptx::Space::kLocal) return store_local(op, l, bytes, values);
  V mask = op_mask(op);
  unsigned count = values.size();
  uint64_t total = uint64_t{bytes} * count;
  const bool lanes = l.address->getType()->isVectorTy();
  if (total > 16 || (lanes && indivisible(op))) return store_slow(op, l, bytes, values, mask);
  if (lanes) keep_order(op);
  auto* fast = llvm::BasicBlock::Create(c_, "fast", fn_);
  auto* slow = llvm::BasicBlock::Create(c_, "slow", fn_);
  auto* done = llvm::BasicBlock::Create(c_, "done", fn_);
  if (!lanes) {
    V address = address_of(l);
    V ok = b_.CreateAnd(range_ok(l, address, total), b_.CreateICmpEQ(b_.CreateAnd(address, i64(total - 1)), i64(0)));
    if (op.guard >= 0) ok = b_.CreateAnd(ok, b_.CreateICmpNE(mask, i32(0)));
    likely(ok, fast, slow);
    b_.SetInsertPoint(fast);
    V lane = b_.CreateAnd(b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {mask, b_.getFalse()}), i32(31));
    V pointer = direct_pointer(l, address);
    for (unsigned i = 0; i < count; ++i) {
      V v = values[i]->getType()->isVectorTy() ? b_.CreateExtractElement(values[i], lane) : values[i];
      b_.CreateAlignedStore(v, b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, uint64_t{i} * bytes), llvm::Align(bytes),
                            strong(op));
    }
  } else {
    V starts[2];
    V ok = consecutive(l, mask, total, starts);
    const bool all_lanes = takes_all_lanes(bytes, count);
    if (all_lanes) ok = b_.CreateAnd(ok, b_.CreateICmpEQ(mask, i32(~0u)));
    likely(ok, fast, slow);
    b_.SetInsertPoint(fast);
    prefetch(l, starts[0], true);
    V places[2] = {direct_pointer(l, starts[0]), direct_pointer(l, starts[1])};
    if (all_lanes) {
      store_side_by_side(places, bytes, values);
    } else {
      for (unsigned h = 0; h < 2; ++h) {
        V half = b_.CreateShuffleVector(splat(values[0]), llvm::createSequentialMask(16 * h, 16, 0));
        b_.CreateMaskedStore(half, places[h], llvm::Align(bytes), half_lanes(mask, static_cast<int>(h), bytes));
      }
    }
  }
  b_.CreateBr(done);
  b_.SetInsertPoint(slow);
  if (lanes && can_scatter(bytes, count)) {
    auto* scatter = llvm::BasicBlock::Create(c_, "scatter", fn_);
    auto* helper = llvm::BasicBlock::Create(c_, "helper", fn_);
    likely(all_direct(l, mask, bytes, bytes), scatter, helper);
    b_.SetInsertPoint(scatter);
    b_.CreateMaskedScatter(splat(values[0]), lane_pointers(l), llvm::Align(bytes), lanes_of(mask));
    b_.CreateBr(done);
    b_.SetInsertPoint(helper);
  }
  store_slow(op, l, bytes, values, mask);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  if (lanes) keep_order(op);
}

}  // namespace bandsaw::soft
