// wmma: products of fragments, and fragments in memory. The registers of a fragment are arrays of 32 lanes; these
// words, one after another, are those of the matrix, row after row, and from the beginning again where there is room
// for more.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/codegen/product.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/transposed.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kElementsMost = 8 * 128, kFloatsMost = 32 * 16;

uint32_t size_of(MatrixType type) {
  switch (type) {
    case MatrixType::kF16:
    case MatrixType::kBf16:
      return 2;
    case MatrixType::kU8:
    case MatrixType::kS8:
      return 1;
    case MatrixType::kF64:
      return 8;
    default:
      return 4;
  }
}

// Where element e of lane l lies among the registers, which are arrays of 32 lanes; and which of the matrix it is.
struct Slots {
  explicit Slots(const WmmaFragment& f)
      : size(size_of(MatrixType(f.type))),
        word(size == 8 ? 8 : 4),
        per_word(word / size),
        each(f.registers * per_word),
        total(uint32_t{f.rows} * f.columns) {}
  size_t byte(uint32_t lane, uint32_t e) const {
    return (size_t{e / per_word} * kWarpLanes + lane) * word + e % per_word * size;
  }
  uint32_t index(uint32_t lane, uint32_t e) const {
    return ((e / per_word * kWarpLanes + lane) * per_word + e % per_word) % total;
  }
  const uint32_t size, word, per_word, each, total;
};

uint32_t elements_of(const WmmaFragment& f) { return uint32_t{f.rows} * f.columns; }

// Where there is room for more than the matrix.
void repeat(const WmmaFragment& f, std::byte* registers) {
  const uint32_t size = size_of(MatrixType(f.type)), total = elements_of(f) * size;
  const uint32_t room = f.registers * kWarpLanes * (size == 8 ? 8 : 4);
  for (uint32_t at = total; at < room; at += total) std::memcpy(registers + at, registers, std::min(total, room - at));
}

// Words hold elements of a row of a, and of a column of b.
void whole_packed(const WmmaFragment& f, bool right, const std::byte* registers, double* matrix) {
  const auto type = MatrixType(f.type);
  const uint32_t each = matrix_elements(type), bits = 32 / each;
  const uint32_t words = elements_of(f) / each, columns = right ? f.columns : f.columns / each;
  for (uint32_t at = 0; at < words; ++at) {
    uint32_t word;
    std::memcpy(&word, registers + size_t{at} * 4, 4);
    const uint32_t row = at / columns, column = at % columns;
    for (uint32_t e = 0; e < each; ++e) {
      const uint32_t value = word >> (e * bits) & ((1u << bits) - 1);
      const bool negative = type == MatrixType::kS4 && value & 8;
      double& to = right ? matrix[(row * each + e) * f.columns + column] : matrix[row * f.columns + column * each + e];
      to = static_cast<double>(value) - (negative ? 16 : 0);
    }
  }
}

void whole(const WmmaFragment& f, bool right, const std::byte* registers, double* matrix) {
  const auto type = MatrixType(f.type);
  if (is_matrix_integer(type) && matrix_elements(type) > 4) return whole_packed(f, right, registers, matrix);
  to_doubles(type, registers, elements_of(f), matrix);
}

// Where the lines of a matrix lie that all lanes access alike: rows, or columns of a column-major one. False: element
// by element, which faults where it must.
struct Lines {
  static constexpr uint32_t kMost = 128;
  bool find(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides, const WmmaAccess& form,
            bool write) {
    const WmmaFragment& f = form.fragment;
    size = size_of(MatrixType(f.type));
    count = form.column_major ? f.columns : f.rows;
    elements = form.column_major ? f.rows : f.columns;
    const auto same = [](const auto* lanes) {
      return std::memcmp(lanes, lanes + 1, (kWarpLanes - 1) * sizeof *lanes) == 0;
    };
    if ((!form.one_address && !same(addresses)) || (!form.one_stride && !same(strides)) || mask != ~0u ||
        addresses[0] % size || count > kMost)
      return false;
    const uint64_t step = uint64_t{strides[0]} * size, all = (count - 1) * step + uint64_t{elements} * size;
    const Resolved together = find_bytes(*warp, 0, addresses[0], all, AccessSpace(form.space), write);
    if (together.kind == Resolved::kFound && !together.local) {
      for (uint32_t i = 0; i < count; ++i) lines[i] = together.pointer + i * step;
      return true;
    }
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t address = addresses[0] + i * strides[0] * size;
      const Resolved at = find_bytes(*warp, 0, address, uint64_t{elements} * size, AccessSpace(form.space), write);
      if (at.kind != Resolved::kFound || at.local) return false;
      lines[i] = at.pointer;
    }
    return true;
  }
  uint32_t size = 0, count = 0, elements = 0;
  std::array<std::byte*, kMost> lines;
};

// Copies `bytes`, which are a few, without a call.
inline __attribute__((always_inline)) void copy_part(std::byte* to, const std::byte* from, uint32_t bytes) {
  const auto copy = [&](auto unit) {
    for (uint32_t i = 0; i < bytes; i += sizeof unit) {
      std::memcpy(&unit, from + i, sizeof unit);
      std::memcpy(to + i, &unit, sizeof unit);
    }
  };
  if (bytes % 8 == 0) return copy(uint64_t{});
  if (bytes % 4 == 0) return copy(uint32_t{});
  if (bytes % 2 == 0) return copy(uint16_t{});
  copy(uint8_t{});
}

// f(byte of the matrix, row after row; where it lies; bytes) for parts that lie together.
template <class F>
void each_part(const Lines& at, const WmmaAccess& form, F&& visit) {
  const uint32_t size = at.size;
  for (uint32_t line = 0; line < at.count; ++line) {
    if (!form.column_major) {
      visit(line * at.elements * size, at.lines[line], at.elements * size);
      continue;
    }
    for (uint32_t i = 0; i < at.elements; ++i) visit((i * at.count + line) * size, at.lines[line] + i * size, size);
  }
}

void load_lines(const Lines& at, const WmmaAccess& form, std::byte* matrix) {
  if (form.column_major && transpose(at.lines.data(), at.count, at.elements, at.size, matrix)) return;
  each_part(at, form, [&](uint32_t to, const std::byte* from, uint32_t n) { copy_part(matrix + to, from, n); });
}

template <class Access>
void each_element(uint32_t mask, const uint64_t* addresses, const uint32_t* strides, const WmmaAccess& form,
                  Access access) {
  const Slots slots(form.fragment);
  for (; mask; mask &= mask - 1) {
    const auto l = static_cast<uint32_t>(__builtin_ctz(mask));
    for (uint32_t e = 0; e < slots.each; ++e) {
      const uint64_t row = slots.index(l, e) / form.fragment.columns,
                     column = slots.index(l, e) % form.fragment.columns;
      const uint64_t at = form.column_major ? column * strides[l] + row : row * strides[l] + column;
      access(l, addresses[l] + at * slots.size, slots.byte(l, e), slots.size);
    }
  }
}

// Bits that differ, or are both set.
void count_bits(const ProductShape& s, const double* left, const double* right, MatrixSum kind, double* sum) {
  for (uint32_t row = 0; row < s.rows; ++row)
    for (uint32_t column = 0; column < s.columns; ++column)
      for (uint32_t k = 0; k < s.depth; ++k) {
        const bool x = left[row * s.depth + k] != 0, y = right[k * s.columns + column] != 0;
        sum[row * s.columns + column] += kind == MatrixSum::kXor ? x != y : x && y;
      }
}

ProductShape shape_of(const WmmaProduct& p) {
  const uint32_t columns = p.d.columns, depth = p.a.columns;
  return {p.d.rows, columns, depth, columns, depth, columns};
}

// The three are apart since large arrays make a product of small matrices slower than itself: their stack is cold.

// Registers hold them as they are.
void multiply_doubles(const WmmaProduct& p, const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d) {
  fuse_products(reinterpret_cast<const double*>(c), reinterpret_cast<double*>(d), reinterpret_cast<const double*>(a),
                reinterpret_cast<const double*>(b), shape_of(p));
}

[[gnu::noinline]] void multiply_floats(const WmmaProduct& p, const std::byte* a, const std::byte* b, const std::byte* c,
                                       std::byte* d) {
  alignas(64) double left[kFloatsMost], right[kFloatsMost];
  whole(p.a, false, a, left);
  whole(p.b, true, b, right);
  sum_products(reinterpret_cast<const float*>(c), reinterpret_cast<float*>(d), left, right, shape_of(p));
}

[[gnu::noinline]] void multiply_any(const WmmaProduct& p, const std::byte* a, const std::byte* b, const std::byte* c,
                                    MatrixSum kind, std::byte* d) {
  alignas(64) double left[kElementsMost], right[kElementsMost], sum[kElementsMost];
  whole(p.a, false, a, left);
  whole(p.b, true, b, right);
  whole(p.c, false, c, sum);
  if (kind == MatrixSum::kXor || kind == MatrixSum::kAnd)
    count_bits(shape_of(p), left, right, kind, sum);
  else
    sum_products(sum, sum, left, right, shape_of(p));
  if (kind == MatrixSum::kSaturate && MatrixType(p.d.type) == MatrixType::kS32) {
    for (uint32_t i = 0; i < elements_of(p.d); ++i) sum[i] = std::clamp<double>(sum[i], INT32_MIN, INT32_MAX);
  }
  from_doubles(MatrixType(p.d.type), sum, elements_of(p.d), d);
}

}  // namespace

extern "C" {
static void bsw_wmma_load(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                          std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  if (Lines lines; lines.find(warp, mask, addresses, strides, form, false)) {
    load_lines(lines, form, registers);
    return repeat(form.fragment, registers);
  }
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    read_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma_store(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                           const std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  if (Lines lines; lines.find(warp, mask, addresses, strides, form, true)) {
    each_part(lines, form, [&](uint32_t from, std::byte* to, uint32_t n) { copy_part(to, registers + from, n); });
    return;
  }
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    write_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d, uint64_t first,
                     uint64_t second, uint32_t kind) {
  WmmaProduct p;  // in place: put together byte by byte, it would wait for them
  auto* const place = reinterpret_cast<std::byte*>(&p);
  std::memcpy(place, &first, sizeof first);
  std::memcpy(place + sizeof first, &second, sizeof second);
  const auto all = [&](MatrixType type) { return MatrixType(p.c.type) == type && MatrixType(p.d.type) == type; };
  const auto doubles = [](const WmmaFragment& f) { return MatrixType(f.type) == MatrixType::kF64; };
  if (all(MatrixType::kF64) && doubles(p.a) && doubles(p.b))
    multiply_doubles(p, a, b, c, d);
  else if (all(MatrixType::kF32) && std::max(elements_of(p.a), elements_of(p.b)) <= kFloatsMost)
    multiply_floats(p, a, b, c, d);
  else
    multiply_any(p, a, b, c, MatrixSum(kind), d);
  repeat(p.d, d);
}
}

void add_wmma_symbols(SymbolTable* table) {
  table->push_back({"bsw_wmma", (void*)bsw_wmma});
  table->push_back({"bsw_wmma_load", (void*)bsw_wmma_load});
  table->push_back({"bsw_wmma_store", (void*)bsw_wmma_store});
}

}  // namespace bandsaw::soft
