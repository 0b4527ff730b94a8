// mma.sync of dense fragments and ldmatrix (PTX ISA 9.7.14.5).
#include "backend/device/soft/codegen/matrix.h"

#include <bit>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

void Emitter::op_mma(const Op& op) {
  const auto& in = *op.in;
  static const std::map<ptx::Type, MatrixType> types = {
      {ptx::Type::kF16, MatrixType::kF16},   {ptx::Type::kBf16, MatrixType::kBf16},
      {ptx::Type::kTf32, MatrixType::kTf32}, {ptx::Type::kU8, MatrixType::kU8},
      {ptx::Type::kS8, MatrixType::kS8},     {ptx::Type::kF64, MatrixType::kF64},
      {ptx::Type::kE4m3, MatrixType::kE4m3}, {ptx::Type::kE5m2, MatrixType::kE5m2}};
  if (in.has("sp") || in.has("sp::ordered_metadata") || in.has("and") || in.has("xor") || in.has("block_scale"))
    unsupported(op);
  if (!in.has("row") || !in.has("col")) unsupported(op, "layout");
  if (in.type_count() != 4 || op.args.size() != 4) unsupported(op);
  auto a = types.find(in.type(1)), b = types.find(in.type(2));
  if (a == types.end() || b == types.end()) unsupported(op);
  bool f64 = a->second == MatrixType::kF64;
  static const std::map<std::string, std::pair<int, int>> shapes = {
      {"m16n8k16", {16, 16}}, {"m16n8k8", {16, 8}}, {"m16n8k4", {16, 4}}, {"m16n8k32", {16, 32}}, {"m8n8k4", {8, 4}}};
  int rows = 0, depth = 0;
  for (auto& [name, shape] : shapes)
    if (in.has(name)) std::tie(rows, depth) = shape;
  int per_register = a->second <= MatrixType::kBf16 ? 2
                     : a->second == MatrixType::kU8 || a->second == MatrixType::kS8 || a->second == MatrixType::kE4m3 ||
                             a->second == MatrixType::kE5m2
                         ? 4
                         : 1;
  if (rows == 0 || depth % (4 * per_register) != 0 || (rows == 8) != f64) unsupported(op);
  MatrixForm form;
  form.a = static_cast<uint8_t>(a->second);
  form.b = static_cast<uint8_t>(b->second);
  form.b_registers = static_cast<uint8_t>(depth / (4 * per_register));
  form.a_registers = static_cast<uint8_t>(form.b_registers * (rows / 8));
  form.half_result = in.type(0) == ptx::Type::kF16;
  form.half_accumulator = in.type(3) == ptx::Type::kF16;
  form.saturate = in.has("satfinite");
  form.rows = static_cast<uint8_t>(rows);
  vec_ = true;
  unsigned bits = f64 ? 64 : 32;
  size_t c_registers = f64 ? 2 : form.half_accumulator ? 2 : 4, d_registers = f64 ? 2 : form.half_result ? 2 : 4;
  auto pack = [&](const Arg& arg, size_t n, const char* name) {
    bool vector = arg.kind == ArgKind::kVector;
    if ((vector ? arg.elements.size() : 1) != n) unsupported(op, "fragment size");
    V slot = frame_scratch(name, 8 * 8 * kLanes);
    for (size_t i = 0; i < n; ++i)
      b_.CreateAlignedStore(read(vector ? arg.elements[i] : arg, bits),
                            b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, i * kLanes * bits / 8), llvm::Align(64));
    return slot;
  };
  V pa = pack(op.args[1], form.a_registers, "matrix_a"), pb = pack(op.args[2], form.b_registers, "matrix_b");
  V pc = pack(op.args[3], c_registers, "matrix_c"), pd = frame_scratch("matrix_d", 8 * 8 * kLanes);
  call_helper(f64 ? "bsw_mma_f64" : "bsw_mma", b_.getVoidTy(), {pa, pb, pc, pd, i64(std::bit_cast<uint64_t>(form))});
  const Arg& to = op.args[0];
  if ((to.kind == ArgKind::kVector ? to.elements.size() : 1) != d_registers) unsupported(op, "fragment size");
  for (size_t i = 0; i < d_registers; ++i)
    write(op, to.elements[i],
          b_.CreateAlignedLoad(int_type(bits, true), b_.CreateConstGEP1_64(b_.getInt8Ty(), pd, i * kLanes * bits / 8),
                               llvm::Align(64)));
}

void Emitter::op_ldmatrix(const Op& op) {
  const auto& in = *op.in;
  if (!in.has("m8n8") || !in.has("b16")) unsupported(op);
  size_t n = in.has("x4") ? 4 : in.has("x2") ? 2 : 1;
  vec_ = true;
  Location l = locate(op, op.args.at(1), in.space() == ptx::Space::kNone ? ptx::Space::kNone : ptx::Space::kShared);
  V addresses = frame_scratch("addresses", 8 * kLanes), out = frame_scratch("matrix_d", 8 * 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  call_helper(
      "bsw_ldmatrix", b_.getVoidTy(),
      {warp_, op_mask(op), addresses, out, i32(n), i32(in.has("trans")), i32(l.space == ptx::Space::kShared ? 2 : 0)});
  const Arg& to = op.args[0];
  bool vector = to.kind == ArgKind::kVector;
  if ((vector ? to.elements.size() : 1) != n) unsupported(op, "fragment size");
  for (size_t i = 0; i < n; ++i)
    write(
        op, vector ? to.elements[i] : to,
        b_.CreateAlignedLoad(int_type(32, true), b_.CreateConstGEP1_64(b_.getInt8Ty(), out, i * 128), llvm::Align(64)));
}

void Emitter::op_stmatrix(const Op& op) {
  const auto& in = *op.in;
  if (!in.has("m8n8") || !in.has("b16")) unsupported(op);
  const size_t n = in.has("x4") ? 4 : in.has("x2") ? 2 : 1;
  vec_ = true;
  const Location l = locate(op, op.args.at(0), in.space());
  V addresses = frame_scratch("addresses", 8 * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  V rows = pack_fragment(op, op.args.at(1), n, 32, "matrix_a");
  call_helper(
      "bsw_stmatrix", b_.getVoidTy(),
      {warp_, op_mask(op), addresses, rows, i32(n), i32(in.has("trans")), i32(l.space == ptx::Space::kShared ? 2 : 0)});
}

void Emitter::op_movmatrix(const Op& op) {
  if (!op.in->has("m8n8") || !op.in->has("trans") || !op.in->has("b16")) unsupported(op);
  vec_ = true;
  V from = pack_fragment(op, op.args.at(1), 1, 32, "matrix_a"), to = frame_scratch("matrix_d", 8 * 8 * kLanes);
  call_helper("bsw_movmatrix", b_.getVoidTy(), {from, to});
  unpack_fragment(op, op.args.at(0), 1, 32, to);
}

// The registers of a fragment as arrays of 32 lanes, one after another.
V Emitter::pack_fragment(const Op& op, const Arg& arg, size_t n, unsigned bits, const char* name) {
  const bool vector = arg.kind == ArgKind::kVector;
  if ((vector ? arg.elements.size() : 1) != n || n > 8) unsupported(op, "fragment size");
  V slot = frame_scratch(name, 8 * 8 * kLanes);
  for (size_t i = 0; i < n; ++i)
    b_.CreateAlignedStore(splat(read(vector ? arg.elements[i] : arg, bits)),
                          b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, i * kLanes * bits / 8), llvm::Align(64));
  return slot;
}

void Emitter::unpack_fragment(const Op& op, const Arg& arg, size_t n, unsigned bits, V slot) {
  const bool vector = arg.kind == ArgKind::kVector;
  for (size_t i = 0; i < n; ++i)
    write(op, vector ? arg.elements[i] : arg,
          b_.CreateAlignedLoad(int_type(bits, true), b_.CreateConstGEP1_64(b_.getInt8Ty(), slot, i * kLanes * bits / 8),
                               llvm::Align(64)));
}

}  // namespace bandsaw::soft
