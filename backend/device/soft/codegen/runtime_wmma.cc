// wmma: fragments to whole matrices and back.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "backend/device/soft/codegen/half.h"
#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/codegen/product.h"
#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kElementsMost = 8 * 128;

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
        each(f.registers * word / size),
        total(uint32_t{f.rows} * f.columns) {}
  size_t byte(uint32_t lane, uint32_t e) const {
    const uint32_t per_word = word / size;
    return (size_t{e / per_word} * kWarpLanes + lane) * word + e % per_word * size;
  }
  uint32_t index(uint32_t lane, uint32_t e) const { return (lane * each + e) % total; }
  const uint32_t size, word, each, total;
};

// Words hold elements of a row of a, and of a column of b.
void whole_packed(const WmmaFragment& f, bool right, const std::byte* registers, float* matrix) {
  const auto type = MatrixType(f.type);
  const uint32_t each = matrix_elements(type), bits = 32 / each;
  const uint32_t words = uint32_t{f.rows} * f.columns / each, columns = right ? f.columns : f.columns / each;
  for (uint32_t l = 0; l < kWarpLanes; ++l)
    for (uint32_t r = 0; r < f.registers; ++r) {
      uint32_t word;
      std::memcpy(&word, registers + (size_t{r} * kWarpLanes + l) * 4, 4);
      const uint32_t at = (l * f.registers + r) % words, row = at / columns, column = at % columns;
      for (uint32_t e = 0; e < each; ++e) {
        const uint32_t value = word >> (e * bits) & ((1u << bits) - 1);
        const bool negative = type == MatrixType::kS4 && value & 8;
        float& to = right ? matrix[(row * each + e) * f.columns + column] : matrix[row * f.columns + column * each + e];
        to = static_cast<float>(value) - (negative ? 16.0f : 0.0f);
      }
    }
}

// Registers are arrays of 32 lanes. Lane after lane, they hold the words of the matrix, row after row, and from the
// beginning again where there is room for more. Words of f64 have 64 bits.
template <class F>
void with_words(const WmmaFragment& f, F&& visit) {
  const uint32_t bytes = uint32_t{f.rows} * f.columns * size_of(MatrixType(f.type));
  if (MatrixType(f.type) == MatrixType::kF64) return visit(uint64_t{}, bytes / 8);
  visit(uint32_t{}, bytes / 4);
}

// Whether each of these lanes holds `kEach` words of its own, and those behind them the same again.
template <class W, uint32_t kEach>
struct Transposed {
  using Word [[gnu::may_alias]] = W;

  [[gnu::optimize("O3")]] static void gather(const std::byte* registers, std::byte* matrix, uint32_t lanes) {
    const auto* const from = reinterpret_cast<const Word*>(registers);
    auto* const to = reinterpret_cast<Word*>(matrix);
    for (uint32_t l = 0; l < lanes; ++l)
      for (uint32_t r = 0; r < kEach; ++r) to[l * kEach + r] = from[r * kWarpLanes + l];
  }
  [[gnu::optimize("O3")]] static void spread(const std::byte* matrix, std::byte* registers, uint32_t lanes) {
    const auto* const from = reinterpret_cast<const Word*>(matrix);
    auto* const to = reinterpret_cast<Word*>(registers);
    for (uint32_t first = 0; first < kWarpLanes; first += lanes)
      for (uint32_t l = 0; l < lanes; ++l)
        for (uint32_t r = 0; r < kEach; ++r) to[r * kWarpLanes + first + l] = from[l * kEach + r];
  }
};

// f.template operator()<registers>(lanes) for fragments whose lanes hold whole parts of the matrix. False: it is not
// called.
template <class F>
bool with_lanes(const WmmaFragment& f, uint32_t total, F&& visit) {
  const uint32_t lanes = total / std::max<uint32_t>(f.registers, 1);
  if (lanes == 0 || lanes * f.registers != total || kWarpLanes % lanes != 0) return false;
  switch (f.registers) {
    case 1:
      return visit.template operator()<1>(lanes), true;
    case 2:
      return visit.template operator()<2>(lanes), true;
    case 4:
      return visit.template operator()<4>(lanes), true;
    case 8:
      return visit.template operator()<8>(lanes), true;
    default:
      return false;
  }
}

void gather(const WmmaFragment& f, const std::byte* registers, std::byte* matrix) {
  with_words(f, [&]<class W>(W word, uint32_t total) {
    const auto all = [&]<uint32_t kEach>(uint32_t lanes) { Transposed<W, kEach>::gather(registers, matrix, lanes); };
    if (with_lanes(f, total, all)) return;
    for (uint32_t l = 0, at = 0; l < kWarpLanes && at < total; ++l)
      for (uint32_t r = 0; r < f.registers && at < total; ++r, ++at) {
        std::memcpy(&word, registers + (r * kWarpLanes + l) * sizeof word, sizeof word);
        std::memcpy(matrix + at * sizeof word, &word, sizeof word);
      }
  });
}

void spread(const WmmaFragment& f, const std::byte* matrix, std::byte* registers) {
  with_words(f, [&]<class W>(W word, uint32_t total) {
    const auto all = [&]<uint32_t kEach>(uint32_t lanes) { Transposed<W, kEach>::spread(matrix, registers, lanes); };
    if (with_lanes(f, total, all)) return;
    for (uint32_t l = 0, at = 0; l < kWarpLanes; ++l)
      for (uint32_t r = 0; r < f.registers; ++r, at = at + 1 == total ? 0 : at + 1) {
        std::memcpy(&word, matrix + at * sizeof word, sizeof word);
        std::memcpy(registers + (r * kWarpLanes + l) * sizeof word, &word, sizeof word);
      }
  });
}

void whole(const WmmaFragment& f, bool right, const std::byte* registers, float* matrix) {
  if (is_matrix_integer(MatrixType(f.type)) && matrix_elements(MatrixType(f.type)) > 4)
    return whole_packed(f, right, registers, matrix);
  alignas(64) std::byte raw[kElementsMost * 4];
  gather(f, registers, raw);
  to_floats(MatrixType(f.type), raw, uint32_t{f.rows} * f.columns, matrix);
}

// f(type's elements in memory) for the types of sums.
template <class F>
void with_sum_type(MatrixType type, F&& f) {
  if (type == MatrixType::kF16) return f(uint16_t{});
  if (type == MatrixType::kF64) return f(double{});
  if (type == MatrixType::kS32) return f(int32_t{});
  f(float{});
}

void whole(const WmmaFragment& f, bool, const std::byte* registers, double* matrix) {
  if (MatrixType(f.type) == MatrixType::kF64) return gather(f, registers, reinterpret_cast<std::byte*>(matrix));
  with_sum_type(MatrixType(f.type), [&]<class T>(T element) {
    alignas(64) std::byte raw[kElementsMost * sizeof(T)];
    gather(f, registers, raw);
    for (uint32_t i = 0; i < uint32_t{f.rows} * f.columns; ++i) {
      std::memcpy(&element, raw + i * sizeof element, sizeof element);
      if constexpr (std::is_same_v<T, uint16_t>)
        matrix[i] = from_f16(element);
      else
        matrix[i] = element;
    }
  });
}

void put_all(const WmmaFragment& f, const double* sums, std::byte* registers) {
  if (MatrixType(f.type) == MatrixType::kF64) return spread(f, reinterpret_cast<const std::byte*>(sums), registers);
  with_sum_type(MatrixType(f.type), [&]<class T>(T) {
    alignas(64) std::byte raw[kElementsMost * sizeof(T)];
    for (uint32_t i = 0; i < uint32_t{f.rows} * f.columns; ++i) {
      T value;
      if constexpr (std::is_same_v<T, uint16_t>)
        value = to_f16(sums[i]);
      else if constexpr (std::is_same_v<T, int32_t>)  // sums of integers are exact, and wrap
        value = static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sums[i])));
      else
        value = static_cast<T>(sums[i]);
      std::memcpy(raw + i * sizeof value, &value, sizeof value);
    }
    spread(f, raw, registers);
  });
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
    for (uint32_t l = 1; l < kWarpLanes; ++l) {
      if (addresses[l] != addresses[0] || strides[l] != strides[0]) return false;
    }
    if (mask != ~0u || addresses[0] % size || count > kMost) return false;
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

template <class T>
void multiply(const WmmaProduct& p, const std::byte* a, const std::byte* b, MatrixSum kind, double* sum) {
  alignas(64) T left[kElementsMost], right[kElementsMost];
  whole(p.a, false, a, left);
  whole(p.b, true, b, right);
  const uint32_t rows = p.d.rows, columns = p.d.columns, depth = p.a.columns;
  if (kind != MatrixSum::kXor && kind != MatrixSum::kAnd)
    return add_products(sum, left, right, {rows, columns, depth, columns, depth, columns});
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column)
      for (uint32_t k = 0; k < depth; ++k) {
        const bool x = left[row * depth + k] != 0, y = right[k * columns + column] != 0;
        sum[row * columns + column] += kind == MatrixSum::kXor ? x != y : x && y;
      }
}

}  // namespace

extern "C" {
static void bsw_wmma_load(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                          std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  if (Lines lines; lines.find(warp, mask, addresses, strides, form, false)) {
    alignas(64) std::byte matrix[kElementsMost * 8];
    each_part(lines, form, [&](uint32_t to, const std::byte* from, uint32_t n) { copy_part(matrix + to, from, n); });
    spread(form.fragment, matrix, registers);
    return;
  }
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    read_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma_store(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                           const std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  if (Lines lines; lines.find(warp, mask, addresses, strides, form, true)) {
    alignas(64) std::byte matrix[kElementsMost * 8];
    gather(form.fragment, registers, matrix);
    each_part(lines, form, [&](uint32_t from, std::byte* to, uint32_t n) { copy_part(to, matrix + from, n); });
    return;
  }
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    write_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d, uint64_t first,
                     uint64_t second, uint32_t kind) {
  const auto p = std::bit_cast<WmmaProduct>(std::array<uint64_t, 2>{first, second});
  alignas(64) double sum[kElementsMost];
  whole(p.c, false, c, sum);
  if (MatrixType(p.a.type) == MatrixType::kF64)
    multiply<double>(p, a, b, MatrixSum(kind), sum);
  else
    multiply<float>(p, a, b, MatrixSum(kind), sum);
  if (MatrixSum(kind) == MatrixSum::kSaturate && MatrixType(p.d.type) == MatrixType::kS32) {
    for (uint32_t i = 0; i < uint32_t{p.d.rows} * p.d.columns; ++i)
      sum[i] = std::clamp<double>(sum[i], INT32_MIN, INT32_MAX);
  }
  put_all(p.d, sum, d);
}
}

void add_wmma_symbols(SymbolTable* table) {
  table->push_back({"bsw_wmma", (void*)bsw_wmma});
  table->push_back({"bsw_wmma_load", (void*)bsw_wmma_load});
  table->push_back({"bsw_wmma_store", (void*)bsw_wmma_store});
}

}  // namespace bandsaw::soft
