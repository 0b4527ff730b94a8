// wgmma: matrix products of four warps, the right matrix in shared memory (PTX ISA 9.7.15).
#include "backend/device/soft/codegen/wgmma.h"

#include <bit>
#include <cstdio>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

namespace {

const std::map<ptx::Type, MatrixType> kWgmmaTypes = {
    {ptx::Type::kF16, MatrixType::kF16},   {ptx::Type::kBf16, MatrixType::kBf16}, {ptx::Type::kTf32, MatrixType::kTf32},
    {ptx::Type::kE4m3, MatrixType::kE4m3}, {ptx::Type::kE5m2, MatrixType::kE5m2}, {ptx::Type::kU8, MatrixType::kU8},
    {ptx::Type::kS8, MatrixType::kS8},     {ptx::Type::kB1, MatrixType::kB1}};

bool is_wgmma_half(MatrixType type) { return type == MatrixType::kF16 || type == MatrixType::kBf16; }
bool is_wgmma_fp8(MatrixType type) { return type == MatrixType::kE4m3 || type == MatrixType::kE5m2; }
bool is_wgmma_byte(MatrixType type) { return type == MatrixType::kU8 || type == MatrixType::kS8; }

// Which types PTX lets multiply, and what of them comes out.
bool goes_together(MatrixType a, MatrixType b, WgmmaResult result) {
  if (is_matrix_integer(a)) return result == WgmmaResult::kS32 && (is_wgmma_byte(a) ? is_wgmma_byte(b) : a == b);
  if (result == WgmmaResult::kS32) return false;
  if (is_wgmma_fp8(a)) return is_wgmma_fp8(b);
  return a == b && (a == MatrixType::kF16 || result == WgmmaResult::kF32);
}

}  // namespace

// What the instruction's name says.
WgmmaForm Emitter::wgmma_form(const Op& op) {
  const auto& in = *op.in;
  unsigned columns = 0, depth = 0;
  for (const std::string& m : in.modifiers)
    if (std::sscanf(m.c_str(), "m64n%uk%u", &columns, &depth) == 2) break;
  if (columns < 8 || columns > kWgmmaColumns || columns % 8) unsupported(op, "shape");
  if (in.type_count() != 3) unsupported(op, "types");
  const auto a = kWgmmaTypes.find(in.type(1)), b = kWgmmaTypes.find(in.type(2));
  if (a == kWgmmaTypes.end() || b == kWgmmaTypes.end()) unsupported(op, "types");
  WgmmaForm form;
  form.result = in.type(0) == ptx::Type::kF16   ? WgmmaResult::kF16
                : in.type(0) == ptx::Type::kS32 ? WgmmaResult::kS32
                                                : WgmmaResult::kF32;
  if (!goes_together(a->second, b->second, form.result)) unsupported(op, "types");
  form.a = static_cast<uint8_t>(a->second);
  form.b = static_cast<uint8_t>(b->second);
  form.columns8 = static_cast<uint8_t>(columns / 8);
  form.sparse = in.has("sp");
  if (depth != kWgmmaRowBytes / 4 * matrix_elements(a->second) * (form.sparse ? 2 : 1)) unsupported(op, "shape");
  if (a->second == MatrixType::kB1 && (!in.has("and") || !in.has("popc"))) unsupported(op);
  if (in.has("satfinite")) form.sum = MatrixSum::kSaturate;
  return form;
}

void Emitter::op_wgmma(const Op& op) {
  const auto& in = *op.in;
  if (in.has("commit_group")) return;  // a product is done when it is issued
  if (in.has("fence") || in.has("wait_group")) {
    call_helper("bsw_wgmma_meet", b_.getVoidTy(), {warp_, op_mask(op)});
    return;
  }
  if (!in.has("mma_async") || !in.has("sync") || !in.has("aligned")) unsupported(op);
  WgmmaForm form = wgmma_form(op);
  // d, a, b, of sparse ones metadata and selector, scale-d; of floats the signs of a and b; of 16 bits, whether those
  // in shared memory are transposed.
  const bool floats = form.result != WgmmaResult::kS32, halves = is_wgmma_half(MatrixType(form.a));
  const size_t scale = form.sparse ? 5 : 3;
  if (op.args.size() <= scale) unsupported(op);
  form.a_in_registers = op.args[1].kind == ArgKind::kVector;
  const size_t signs = floats ? 2 : 0, turns = halves ? (form.a_in_registers ? 1 : 2) : 0;
  if (op.args.size() != scale + 1 + signs + turns) unsupported(op, "operands");
  for (size_t i = scale + 1; i < op.args.size(); ++i)
    if (op.args[i].kind != ArgKind::kInt) unsupported(op, "operands");
  if (floats) {
    form.negate_a = static_cast<int64_t>(op.args[scale + 1].bits) < 0;
    form.negate_b = static_cast<int64_t>(op.args[scale + 2].bits) < 0;
  }
  if (turns == 2) form.a_by_columns = op.args[scale + 3].bits & 1;
  if (turns) form.b_by_rows = op.args.back().bits & 1;

  const size_t results = form.columns8 * (form.result == WgmmaResult::kF16 ? 2 : 4);
  if (fragment_registers(op.args[0]) != results) unsupported(op, "fragment size");
  vec_ = true;
  V a = llvm::ConstantPointerNull::get(b_.getPtrTy()), a_descriptor = i64(0);
  if (form.a_in_registers)
    a = pack_fragment(op, op.args[1], 4, 32, "matrix_a");
  else
    a_descriptor = uniform_operand(op.args[1], 64);
  V b_descriptor = uniform_operand(op.args[2], 64);
  V adds = op.args[scale].kind == ArgKind::kInt
               ? V(i32(op.args[scale].bits != 0))
               : b_.CreateZExt(
                     b_.CreateICmpNE(b_.CreateAnd(bits_of_vector(splat(read_pred(op.args[scale]))), mask_), i32(0)),
                     b_.getInt32Ty());
  V d = frame_scratch("wgmma_d", 4ull * kLanes * kWgmmaColumns / 2);
  const auto at = [&](size_t i) { return b_.CreateConstGEP1_64(b_.getInt8Ty(), d, i * kLanes * 4); };
  for (size_t i = 0; i < results; ++i)
    b_.CreateAlignedStore(splat(read(op.args[0].elements[i], 32)), at(i), llvm::Align(64));
  V metadata = llvm::ConstantPointerNull::get(b_.getPtrTy());
  if (form.sparse) {
    const auto type = MatrixType(form.a);
    metadata = sparse_operands(op, 3, type, 2 * kWgmmaRowBytes / 4 * matrix_elements(type)).first;
    form.selector = static_cast<uint8_t>(op.args[4].bits);
  }
  call_helper(
      "bsw_wgmma", b_.getVoidTy(),
      {warp_, op_mask(op), a, a_descriptor, b_descriptor, d, i64(std::bit_cast<uint64_t>(form)), adds, metadata});
  for (size_t i = 0; i < results; ++i)
    write(op, op.args[0].elements[i], b_.CreateAlignedLoad(int_type(32, true), at(i), llvm::Align(64)));
}

}  // namespace bandsaw::soft
