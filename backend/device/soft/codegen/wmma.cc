// wmma (PTX ISA 9.7.14.4): whole matrices in fragments whose layout is ours.
#include <array>
#include <bit>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/matrix.h"

namespace bandsaw::soft {
namespace {

struct WmmaShape {
  uint8_t m, n, k;
};
const std::pair<const char*, WmmaShape> kShapes[] = {
    {"m16n16k16", {16, 16, 16}}, {"m32n8k16", {32, 8, 16}}, {"m8n32k16", {8, 32, 16}}, {"m16n16k8", {16, 16, 8}},
    {"m8n8k4", {8, 8, 4}},       {"m8n8k32", {8, 8, 32}},   {"m8n8k128", {8, 8, 128}}};
const std::map<ptx::Type, MatrixType> kTypes = {
    {ptx::Type::kF16, MatrixType::kF16}, {ptx::Type::kBf16, MatrixType::kBf16}, {ptx::Type::kTf32, MatrixType::kTf32},
    {ptx::Type::kU8, MatrixType::kU8},   {ptx::Type::kS8, MatrixType::kS8},     {ptx::Type::kF64, MatrixType::kF64},
    {ptx::Type::kF32, MatrixType::kF32}, {ptx::Type::kS32, MatrixType::kS32},   {ptx::Type::kU4, MatrixType::kU4},
    {ptx::Type::kS4, MatrixType::kS4},   {ptx::Type::kB1, MatrixType::kB1}};

uint8_t registers_of(const Arg& arg) {
  return static_cast<uint8_t>(arg.kind == ArgKind::kVector ? arg.elements.size() : 1);
}

WmmaFragment fragment_of(char which, const WmmaShape& shape, MatrixType type, const Arg& arg) {
  WmmaFragment f;
  f.type = static_cast<uint8_t>(type);
  f.rows = which == 'b' ? shape.k : shape.m;
  f.columns = which == 'a' ? shape.k : shape.n;
  f.registers = registers_of(arg);
  return f;
}

// Elements of less than a byte come in whole words, along the rows of a and the columns of b.
bool is_packed(MatrixType type) {
  return type == MatrixType::kU4 || type == MatrixType::kS4 || type == MatrixType::kB1;
}

// The same fragment as words.
WmmaFragment in_words(char which, WmmaFragment f) {
  uint8_t& along = which == 'b' ? f.rows : f.columns;
  along = static_cast<uint8_t>(along / matrix_elements(MatrixType(f.type)));
  f.type = static_cast<uint8_t>(MatrixType::kS32);
  return f;
}

unsigned bits_of(const WmmaFragment& f) { return MatrixType(f.type) == MatrixType::kF64 ? 64 : 32; }

}  // namespace

void Emitter::op_wmma(const Op& op) {
  const auto& in = *op.in;
  const WmmaShape* shape = nullptr;
  for (const auto& [name, its] : kShapes)
    if (in.has(name)) shape = &its;
  if (!shape || in.modifiers.size() < 2) unsupported(op);
  vec_ = true;
  const auto type = [&](size_t n) {
    const auto found = kTypes.find(in.type(n));
    if (found == kTypes.end()) unsupported(op, "type");
    return found->second;
  };
  // Every lane's registers together hold the matrix at least once.
  const auto check = [&](const WmmaFragment& f) {
    const unsigned size = MatrixType(f.type) == MatrixType::kF64                                           ? 8
                          : f.type <= uint8_t(MatrixType::kBf16)                                           ? 2
                          : MatrixType(f.type) == MatrixType::kU8 || MatrixType(f.type) == MatrixType::kS8 ? 1
                                                                                                           : 4;
    if (is_packed(MatrixType(f.type))) {
      const unsigned held = kLanes * f.registers * matrix_elements(MatrixType(f.type));
      if (f.registers > 8 || held < unsigned{f.rows} * f.columns) unsupported(op, "fragment size");
      return;
    }
    const unsigned held = kLanes * f.registers * bits_of(f) / 8 / size;
    if (f.registers > 8 || held < unsigned{f.rows} * f.columns) unsupported(op, "fragment size");
  };
  if (in.modifiers[0] == "mma") {
    const size_t types = in.type_count();
    if (op.args.size() != 4 || (types != 2 && types != 4)) unsupported(op);
    const MatrixType left = types == 4 ? type(1) : MatrixType::kF16, right = types == 4 ? type(2) : MatrixType::kF16;
    const WmmaProduct product = {
        fragment_of('a', *shape, left, op.args[1]), fragment_of('b', *shape, right, op.args[2]),
        fragment_of('c', *shape, type(types - 1), op.args[3]), fragment_of('d', *shape, type(0), op.args[0])};
    for (const auto& f : {product.a, product.b, product.c, product.d}) check(f);
    V a = pack_fragment(op, op.args[1], product.a.registers, bits_of(product.a), "matrix_a");
    V b = pack_fragment(op, op.args[2], product.b.registers, bits_of(product.b), "matrix_b");
    V c = pack_fragment(op, op.args[3], product.c.registers, bits_of(product.c), "matrix_c");
    V d = frame_scratch("matrix_d", 8 * 8 * kLanes);
    const bool bits = left == MatrixType::kB1;
    if (left != right && is_packed(left)) unsupported(op, "type");
    if (bits && (!in.has("popc") || in.has("xor") == in.has("and"))) unsupported(op);
    const MatrixSum sum = bits ? (in.has("xor") ? MatrixSum::kXor : MatrixSum::kAnd)
                               : (in.has("satfinite") ? MatrixSum::kSaturate : MatrixSum::kWrap);
    const auto words = std::bit_cast<std::array<uint64_t, 2>>(product);
    call_helper("bsw_wmma", b_.getVoidTy(),
                {a, b, c, d, i64(words[0]), i64(words[1]), i32(static_cast<uint32_t>(sum))});
    return unpack_fragment(op, op.args[0], product.d.registers, bits_of(product.d), d);
  }
  const bool store = in.modifiers[0] == "store";
  const Arg &memory = op.args.at(store ? 0 : 1), &registers = op.args.at(store ? 1 : 0);
  const bool column_major = in.has("col");
  WmmaAccess access;
  access.fragment = fragment_of(in.modifiers[1][0], *shape, type(0), registers);  // a, b, c or d
  check(access.fragment);
  const char which = in.modifiers[1][0];
  uint32_t per_word = 1;
  if (is_packed(MatrixType(access.fragment.type))) {
    if (store || (which == 'b') != column_major) unsupported(op, "layout");
    per_word = matrix_elements(MatrixType(access.fragment.type));
    access.fragment = in_words(which, access.fragment);
  }
  access.column_major = column_major;
  const Location l = locate(op, memory, in.space());
  access.space = l.space == ptx::Space::kShared ? 2 : l.space == ptx::Space::kNone ? 0 : 1;
  V addresses = frame_scratch("addresses", 8 * kLanes), strides = frame_scratch("in0", 8 * kLanes);
  V address = address_of(l);
  access.one_address = !address->getType()->isVectorTy();
  b_.CreateStore(splat(address), addresses);
  const uint32_t packed = column_major ? access.fragment.rows : access.fragment.columns;
  V stride = op.args.size() > 2 ? b_.CreateUDiv(read(op.args[2], 32), konst(per_word, 32)) : konst(packed, 32);
  access.one_stride = !stride->getType()->isVectorTy();
  b_.CreateStore(splat(stride), strides);
  const unsigned bits = bits_of(access.fragment);
  V slot = store ? pack_fragment(op, registers, access.fragment.registers, bits, "matrix_a")
                 : frame_scratch("matrix_d", 8 * 8 * kLanes);
  call_helper(store ? "bsw_wmma_store" : "bsw_wmma_load", b_.getVoidTy(),
              {warp_, op_mask(op), addresses, strides, slot, i64(std::bit_cast<uint64_t>(access))});
  if (!store) unpack_fragment(op, registers, access.fragment.registers, bits, slot);
}

}  // namespace bandsaw::soft
