// mma.sync of dense fragments and ldmatrix (PTX ISA 9.7.14.5).
#include "backend/device/soft/codegen/matrix.h"

#include <bit>
#include <cstdio>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/sparse.h"

namespace bandsaw::soft {

namespace {

const std::map<ptx::Type, MatrixType> kMmaTypes = {
    {ptx::Type::kF16, MatrixType::kF16},   {ptx::Type::kBf16, MatrixType::kBf16}, {ptx::Type::kTf32, MatrixType::kTf32},
    {ptx::Type::kU8, MatrixType::kU8},     {ptx::Type::kS8, MatrixType::kS8},     {ptx::Type::kF64, MatrixType::kF64},
    {ptx::Type::kE4m3, MatrixType::kE4m3}, {ptx::Type::kE5m2, MatrixType::kE5m2}, {ptx::Type::kU4, MatrixType::kU4},
    {ptx::Type::kS4, MatrixType::kS4},     {ptx::Type::kB1, MatrixType::kB1}};

// Rows and depth of "m16n8k16"; no rows: no shape of 8 columns is among the modifiers.
std::pair<uint32_t, uint32_t> mma_shape(const ptx::Instruction& in) {
  for (const std::string& m : in.modifiers) {
    unsigned rows = 0, depth = 0;
    if (std::sscanf(m.c_str(), "m%un8k%u", &rows, &depth) == 2) return {rows, depth};
  }
  return {0, 0};
}

}  // namespace

void Emitter::op_mma(const Op& op) {
  const auto& in = *op.in;
  if (in.has("block_scale")) unsupported(op);
  const bool sparse = in.has("sp") || in.has("sp::ordered_metadata");
  if (in.type_count() != 4 || op.args.size() != (sparse ? 6 : 4)) unsupported(op);
  const auto a = kMmaTypes.find(in.type(1)), b = kMmaTypes.find(in.type(2));
  if (a == kMmaTypes.end() || b == kMmaTypes.end()) unsupported(op);
  const auto [rows, depth] = mma_shape(in);
  vec_ = true;
  if (rows == 8 && a->second == MatrixType::kF16 && !sparse) return mma_quads(op);
  if (!in.has("row") || !in.has("col")) unsupported(op, "layout");
  const bool f64 = a->second == MatrixType::kF64, integer = is_matrix_integer(a->second);
  const uint32_t each = 4 * matrix_elements(a->second), b_registers = depth / each;
  // 8 rows are the old integer shapes and f64's smallest; all others have 16, of one or two registers of columns.
  const uint32_t most = rows == 8 ? 1 : f64 || sparse ? 4 : 2;
  if (sparse && (rows != 16 || f64 || a->second == MatrixType::kB1 || b_registers < 2)) unsupported(op);
  if ((rows != 8 && rows != 16) || depth % each || !b_registers || b_registers > most || b_registers == 3)
    unsupported(op);
  if ((rows == 8 && !f64 && !integer) || matrix_elements(a->second) != matrix_elements(b->second)) unsupported(op);
  if (f64 != (b->second == MatrixType::kF64) || integer != is_matrix_integer(b->second)) unsupported(op);
  MatrixForm form;
  form.a = static_cast<uint8_t>(a->second);
  form.b = static_cast<uint8_t>(b->second);
  form.b_registers = static_cast<uint8_t>(b_registers);
  form.a_registers = static_cast<uint8_t>(b_registers * (rows / 8) / (sparse ? 2 : 1));
  form.half_result = in.type(0) == ptx::Type::kF16;
  form.half_accumulator = in.type(3) == ptx::Type::kF16;
  form.rows = static_cast<uint8_t>(rows);
  if (a->second == MatrixType::kB1) {
    if (!in.has("popc") || in.has("xor") == in.has("and")) unsupported(op);
    form.sum = in.has("xor") ? MatrixSum::kXor : MatrixSum::kAnd;
  } else if (in.has("satfinite")) {
    form.sum = MatrixSum::kSaturate;
  }
  const unsigned bits = f64 ? 64 : 32;
  const size_t results = rows / 4, c_registers = form.half_accumulator ? results / 2 : results,
               d_registers = form.half_result ? results / 2 : results;
  V pa = pack_fragment(op, op.args[1], form.a_registers, bits, "matrix_a");
  V pb = pack_fragment(op, op.args[2], form.b_registers, bits, "matrix_b");
  V pc = pack_fragment(op, op.args[3], c_registers, bits, "matrix_c"), pd = frame_scratch("matrix_d", 8 * 8 * kLanes);
  V packed_form = i64(std::bit_cast<uint64_t>(form));
  if (sparse) {
    auto [metadata, selector] = sparse_operands(op, 4, a->second, depth);
    call_helper("bsw_mma_sparse", b_.getVoidTy(), {pa, pb, pc, pd, packed_form, metadata, selector});
  } else {
    call_helper(f64 ? "bsw_mma_f64" : "bsw_mma", b_.getVoidTy(), {pa, pb, pc, pd, packed_form});
  }
  if (fragment_registers(op.args[0]) != d_registers) unsupported(op, "fragment size");
  unpack_fragment(op, op.args[0], d_registers, bits, pd);
}

// The metadata of all lanes, and which lanes' counts: operands `at` and `at + 1`.
std::pair<V, V> Emitter::sparse_operands(const Op& op, size_t at, MatrixType type, uint32_t depth) {
  const Arg& selector = op.args.at(at + 1);
  if (selector.kind != ArgKind::kInt || selector.bits >= sparse_selectors(type, depth))
    unsupported(op, "sparsity selector");
  V metadata = frame_scratch("metadata", 8 * kLanes);
  b_.CreateStore(splat(read(op.args[at], 32)), metadata);
  return {metadata, i32(static_cast<uint32_t>(selector.bits))};
}

void Emitter::mma_quads(const Op& op) {
  const auto& in = *op.in;
  if (in.modifiers.size() < 5 || in.type(2) != ptx::Type::kF16) unsupported(op);
  QuadForm form;
  size_t layouts = 0;
  for (const std::string& m : in.modifiers) {
    if (m != "row" && m != "col") continue;
    if (++layouts == 1) form.a_by_columns = m == "col";
    if (layouts == 2) form.b_by_rows = m == "row";
  }
  if (layouts != 2) unsupported(op, "layout");
  form.half_result = in.type(0) == ptx::Type::kF16;
  form.half_accumulator = in.type(3) == ptx::Type::kF16;
  V a = pack_fragment(op, op.args[1], 2, 32, "matrix_a"), b = pack_fragment(op, op.args[2], 2, 32, "matrix_b");
  V c = pack_fragment(op, op.args[3], form.half_accumulator ? 4 : 8, 32, "matrix_c");
  V d = frame_scratch("matrix_d", 8 * 8 * kLanes);
  call_helper("bsw_mma_quads", b_.getVoidTy(), {a, b, c, d, i32(std::bit_cast<uint32_t>(form))});
  const size_t results = form.half_result ? 4 : 8;
  if (fragment_registers(op.args[0]) != results) unsupported(op, "fragment size");
  unpack_fragment(op, op.args[0], results, 32, d);
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

size_t Emitter::fragment_registers(const Arg& arg) { return arg.kind == ArgKind::kVector ? arg.elements.size() : 1; }

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
