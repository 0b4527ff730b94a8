// wmma: fragments to whole matrices and back.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/device/soft/codegen/half.h"
#include "backend/device/soft/codegen/matrix.h"
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

double value_of(MatrixType type, const std::byte* at) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, at, sizeof zero);
    return zero;
  };
  switch (type) {
    case MatrixType::kF16:
      return from_f16(as(uint16_t{}));
    case MatrixType::kBf16:
      return from_bf16(as(uint16_t{}));
    case MatrixType::kTf32:
      return std::bit_cast<float>(as(uint32_t{}) & ~0x1fffu);
    case MatrixType::kU8:
      return as(uint8_t{});
    case MatrixType::kS8:
      return as(int8_t{});
    case MatrixType::kF64:
      return as(double{});
    case MatrixType::kS32:
      return as(int32_t{});
    default:
      return as(float{});
  }
}

void put(MatrixType type, std::byte* at, double value) {
  const auto as = [&](auto made) { std::memcpy(at, &made, sizeof made); };
  if (type == MatrixType::kF16) return as(to_f16(value));
  if (type == MatrixType::kF64) return as(value);
  // Sums of products of 8 bits are exact; they wrap.
  if (type == MatrixType::kS32) return as(static_cast<uint32_t>(static_cast<int64_t>(value)));
  as(static_cast<float>(value));
}

// Words hold elements of a row of a, and of a column of b.
void whole_packed(const WmmaFragment& f, bool right, const std::byte* registers, double* matrix) {
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
        double& to =
            right ? matrix[(row * each + e) * f.columns + column] : matrix[row * f.columns + column * each + e];
        to = negative ? static_cast<double>(value) - 16 : value;
      }
    }
}

void whole(const WmmaFragment& f, bool right, const std::byte* registers, double* matrix) {
  if (is_matrix_integer(MatrixType(f.type)) && matrix_elements(MatrixType(f.type)) > 4)
    return whole_packed(f, right, registers, matrix);
  const Slots slots(f);
  for (uint32_t l = 0; l < kWarpLanes; ++l)
    for (uint32_t e = 0; e < slots.each; ++e)
      matrix[slots.index(l, e)] = value_of(MatrixType(f.type), registers + slots.byte(l, e));
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

}  // namespace

extern "C" {
static void bsw_wmma_load(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                          std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    read_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma_store(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* strides,
                           const std::byte* registers, uint64_t word) {
  const auto form = std::bit_cast<WmmaAccess>(word);
  each_element(mask, addresses, strides, form, [&](uint32_t l, uint64_t address, size_t byte, uint32_t size) {
    write_bytes(warp, l, address, registers + byte, size, AccessSpace(form.space));
  });
}

static void bsw_wmma(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d, uint64_t first,
                     uint64_t second, uint32_t kind) {
  const auto p = std::bit_cast<WmmaProduct>(std::array<uint64_t, 2>{first, second});
  double left[kElementsMost], right[kElementsMost], sum[kElementsMost];
  whole(p.a, false, a, left);
  whole(p.b, true, b, right);
  whole(p.c, false, c, sum);
  const auto product = [how = MatrixSum(kind)](double x, double y, double s) {
    if (how == MatrixSum::kXor) return s + (x != y);
    return how == MatrixSum::kAnd ? s + (x != 0 && y != 0) : std::fma(x, y, s);
  };
  for (uint32_t row = 0; row < p.d.rows; ++row)
    for (uint32_t column = 0; column < p.d.columns; ++column) {
      double& s = sum[row * p.d.columns + column];
      for (uint32_t k = 0; k < p.a.columns; ++k)
        s = product(left[row * p.a.columns + k], right[k * p.b.columns + column], s);
      if (MatrixSum(kind) == MatrixSum::kSaturate && MatrixType(p.d.type) == MatrixType::kS32)
        s = std::clamp<double>(s, INT32_MIN, INT32_MAX);
    }
  const Slots slots(p.d);
  for (uint32_t l = 0; l < kWarpLanes; ++l)
    for (uint32_t e = 0; e < slots.each; ++e) put(MatrixType(p.d.type), d + slots.byte(l, e), sum[slots.index(l, e)]);
}
}

void add_wmma_symbols(SymbolTable* table) {
  table->push_back({"bsw_wmma", (void*)bsw_wmma});
  table->push_back({"bsw_wmma_load", (void*)bsw_wmma_load});
  table->push_back({"bsw_wmma_store", (void*)bsw_wmma_store});
}

}  // namespace bandsaw::soft
