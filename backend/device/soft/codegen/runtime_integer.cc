// Integer instructions that are not worth inlining, lane by lane.
#include <bit>
#include <cstdint>
#include <limits>

#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

template <class T>
void divide(const T* a, const T* b, T* out) {
  for (int l = 0; l < kWarpLanes; ++l) {
    T d = b[l];
    if (d == 0) {
      out[l] = static_cast<T>(~T{0});
      continue;
    }
    if constexpr (std::numeric_limits<T>::is_signed) {
      if (d == -1) {
        out[l] = static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a[l]));
        continue;
      }
    }
    out[l] = static_cast<T>(a[l] / d);
  }
}
template <class T>
void remainder(const T* a, const T* b, T* out) {
  for (int l = 0; l < kWarpLanes; ++l) {
    T d = b[l];
    if (d == 0) {
      out[l] = static_cast<T>(~T{0});
      continue;
    }
    if constexpr (std::numeric_limits<T>::is_signed) {
      if (d == -1) {
        out[l] = 0;
        continue;
      }
    }
    out[l] = static_cast<T>(a[l] % d);
  }
}

template <class T, class Wide>
void multiply_high(const T* a, const T* b, T* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = static_cast<T>(static_cast<Wide>(a[l]) * b[l] >> 64);
}

void leading_zeros(const uint64_t* a, uint32_t* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = static_cast<uint32_t>(std::countl_zero(a[l]));
}

uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t mode) {
  uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t s = c & 3, r = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t pick = 0;
    switch (mode) {
      case 1:
        pick = s + i;
        break;  // f4e
      case 2:
        pick = (8 + s - i) & 7;
        break;  // b4e
      case 3:
        pick = s;
        break;  // rc8
      case 4:
        pick = i < s ? s : i;
        break;  // ecl
      case 5:
        pick = i > s ? s : i;
        break;  // ecr
      case 6:
        pick = (s & 1) * 2 + (i & 1);
        break;  // rc16
    }
    r |= static_cast<uint32_t>(both >> (pick * 8) & 0xff) << (i * 8);
  }
  return r;
}

uint32_t find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) ? base : 0xffffffffu;
  int32_t count = offset > 0 ? offset - 1 : -(offset + 1);
  int step = offset > 0 ? 1 : -1;
  for (int64_t p = base; p >= 0 && p < 32; p += step) {
    if (!(mask >> p & 1)) continue;
    if (count-- == 0) return static_cast<uint32_t>(p);
  }
  return 0xffffffffu;
}

}  // namespace

extern "C" {
static void bsw_prmt(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint32_t mode) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = permute_bytes(a[l], b[l], c[l], mode);
}
static void bsw_fns(const uint32_t* mask, const uint32_t* base, const uint32_t* offset, uint32_t* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = find_nth_set(mask[l], base[l], static_cast<int32_t>(offset[l]));
}
static void bsw_permute(const uint32_t* a, const uint32_t* source, uint32_t* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = a[source[l] & 31];
}
static void bsw_match_any(const uint64_t* a, uint32_t* out, uint32_t lanes) {
  for (int l = 0; l < kWarpLanes; ++l) {
    uint32_t same = 0;
    for (int k = 0; k < kWarpLanes; ++k) same |= static_cast<uint32_t>(a[k] == a[l]) << k;
    out[l] = same & lanes;
  }
}
static void bsw_match_all(const uint64_t* a, uint32_t* out, uint32_t lanes) {
  bool same = true;
  uint32_t first = lanes ? __builtin_ctz(lanes) : 0;
  for (int l = 0; l < kWarpLanes; ++l) same = same && (!(lanes >> l & 1) || a[l] == a[first]);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = same ? lanes : 0;
}
}

void add_integer_symbols(SymbolTable* table) {
  auto add = [&](const char* name, auto* f) { table->push_back({name, reinterpret_cast<void*>(f)}); };
  add("bsw_div_s16", divide<int16_t>);
  add("bsw_div_u16", divide<uint16_t>);
  add("bsw_div_s32", divide<int32_t>);
  add("bsw_div_u32", divide<uint32_t>);
  add("bsw_div_s64", divide<int64_t>);
  add("bsw_div_u64", divide<uint64_t>);
  add("bsw_rem_s16", remainder<int16_t>);
  add("bsw_rem_u16", remainder<uint16_t>);
  add("bsw_rem_s32", remainder<int32_t>);
  add("bsw_rem_u32", remainder<uint32_t>);
  add("bsw_rem_s64", remainder<int64_t>);
  add("bsw_rem_u64", remainder<uint64_t>);
  __extension__ using Wide = __int128;
  __extension__ using WideUnsigned = unsigned __int128;
  add("bsw_mul_hi_s64", multiply_high<int64_t, Wide>);
  add("bsw_mul_hi_u64", multiply_high<uint64_t, WideUnsigned>);
  add("bsw_clz_b64", leading_zeros);
  add("bsw_prmt", bsw_prmt);
  add("bsw_fns", bsw_fns);
  add("bsw_permute", bsw_permute);
  add("bsw_match_any", bsw_match_any);
  add("bsw_match_all", bsw_match_all);
}

}  // namespace bandsaw::soft
