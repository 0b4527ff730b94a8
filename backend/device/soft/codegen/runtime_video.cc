// Video instructions, lane by lane.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/video.h"

namespace bandsaw::soft {
namespace {

int64_t part(uint32_t v, uint8_t selector, bool sign) {
  if (selector == 0) return sign ? static_cast<int64_t>(static_cast<int32_t>(v)) : v;
  if (selector <= 4) {
    uint8_t b = static_cast<uint8_t>(v >> (8 * (selector - 1)));
    return sign ? static_cast<int8_t>(b) : b;
  }
  uint16_t h = static_cast<uint16_t>(v >> (16 * (selector - 5)));
  return sign ? static_cast<int16_t>(h) : h;
}

int64_t clamp_to(int64_t v, int bits, bool sign) {
  int64_t low = sign ? -(int64_t{1} << (bits - 1)) : 0;
  int64_t high = sign ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  return std::clamp(v, low, high);
}

bool compares(VideoCompare c, int64_t a, int64_t b) {
  switch (c) {
    case VideoCompare::kEq:
      return a == b;
    case VideoCompare::kNe:
      return a != b;
    case VideoCompare::kLt:
      return a < b;
    case VideoCompare::kLe:
      return a <= b;
    case VideoCompare::kGt:
      return a > b;
    case VideoCompare::kGe:
      return a >= b;
  }
  return false;
}

int64_t combine(VideoOp op, VideoCompare compare, int64_t a, int64_t b, bool wrap) {
  switch (op) {
    case VideoOp::kAdd:
      return a + b;
    case VideoOp::kSub:
      return a - b;
    case VideoOp::kAbsDiff:
      return a > b ? a - b : b - a;
    case VideoOp::kMin:
      return std::min(a, b);
    case VideoOp::kMax:
      return std::max(a, b);
    case VideoOp::kShl: {
      uint32_t n = static_cast<uint32_t>(b);
      n = wrap ? n & 31 : std::min(n, 32u);
      return static_cast<int64_t>(static_cast<uint64_t>(a) << n);
    }
    case VideoOp::kShr: {
      uint32_t n = static_cast<uint32_t>(b);
      return a >> (wrap ? n & 31 : std::min(n, 32u));
    }
    case VideoOp::kSet:
      return compares(compare, a, b);
    case VideoOp::kAverage:
      return (a + b + (a + b >= 0)) >> 1;
    case VideoOp::kMad:
      break;
  }
  return 0;
}

uint32_t multiply_add(const VideoForm& f, uint32_t a, uint32_t b, uint32_t c) {
  bool negate = ((f.flags & 4) != 0) != ((f.flags & 8) != 0);
  bool is_signed = (f.signs & 6) || negate || (f.flags & 16);
  __int128 tmp = static_cast<__int128>(part(a, f.a, f.signs & 2)) * part(b, f.b, f.signs & 4);
  int one = 0;
  if (f.flags & 32)
    one = 1;
  else if (negate) {
    tmp = ~tmp;
    one = 1;
  } else if (f.flags & 16) {
    c = ~c;
    one = 1;
  }
  // Without saturation the hardware takes c as signed whatever the types are; only a shift shows it.
  tmp += is_signed || !(f.flags & 1) ? static_cast<__int128>(static_cast<int32_t>(c)) : static_cast<__int128>(c);
  tmp += one;
  if (f.flags & 64) tmp >>= 7;
  if (f.flags & 128) tmp >>= 15;
  if (f.flags & 1) {
    __int128 low = is_signed ? INT32_MIN : 0, high = is_signed ? INT32_MAX : UINT32_MAX;
    tmp = tmp < low ? low : tmp > high ? high : tmp;
  }
  return static_cast<uint32_t>(tmp);
}

uint32_t scalar_video(const VideoForm& f, uint32_t a, uint32_t b, uint32_t c) {
  if (f.op == VideoOp::kMad) return multiply_add(f, a, b, c);
  bool sign = f.signs & 1;
  int64_t v = combine(f.op, f.compare, part(a, f.a, f.signs & 2), part(b, f.b, f.signs & 4), f.flags & 2);
  int bits = f.d == 0 ? 32 : f.d <= 4 ? 8 : 16;
  if (f.flags & 1) v = clamp_to(v, bits, sign);
  uint32_t t = static_cast<uint32_t>(v);
  auto choose = [&](bool min) {
    bool less = sign ? static_cast<int32_t>(t) < static_cast<int32_t>(c) : t < c;
    return less == min ? t : c;
  };
  switch (f.second) {
    case VideoSecond::kNone:
      return t;
    case VideoSecond::kAdd:
      return t + c;
    case VideoSecond::kMin:
      return choose(true);
    case VideoSecond::kMax:
      return choose(false);
    case VideoSecond::kMerge:
      break;
  }
  if (f.d == 0) return t;
  int shift = f.d <= 4 ? 8 * (f.d - 1) : 16 * (f.d - 5);
  uint32_t field = (bits == 8 ? 0xffu : 0xffffu) << shift;
  return (c & ~field) | (t << shift & field);
}

uint32_t simd_video(const SimdForm& f, uint32_t a, uint32_t b, uint32_t c, uint32_t a_picks, uint32_t b_picks) {
  int bits = 32 / f.elements;
  uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  auto element = [&](uint32_t pick, bool sign) -> int64_t {
    uint32_t raw = static_cast<uint32_t>(both >> (pick * bits)) & ((1u << bits) - 1);
    return sign && raw >> (bits - 1) ? static_cast<int64_t>(raw) - (int64_t{1} << bits) : raw;
  };
  uint32_t result = c, sum = c;
  for (int i = 0; i < f.elements; ++i) {
    if (!(f.mask >> i & 1)) continue;
    int64_t v = combine(f.op, f.compare, element(a_picks >> (4 * i) & 15, f.signs & 2),
                        element(b_picks >> (4 * i) & 15, f.signs & 4), false);
    if (f.flags & 1) v = clamp_to(v, bits, f.signs & 1);
    uint32_t field = ((1u << bits) - 1) << (i * bits);
    result = (result & ~field) | (static_cast<uint32_t>(v) << (i * bits) & field);
    sum += static_cast<uint32_t>(v);
  }
  return f.flags & 2 ? sum : result;
}

}  // namespace

extern "C" {
static void bsw_video(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint64_t form) {
  VideoForm f = std::bit_cast<VideoForm>(form);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = scalar_video(f, a[l], b[l], c[l]);
}
static void bsw_video_simd(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint64_t form,
                           uint32_t a_picks, uint32_t b_picks) {
  SimdForm f = std::bit_cast<SimdForm>(form);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = simd_video(f, a[l], b[l], c[l], a_picks, b_picks);
}
}

void add_video_symbols(SymbolTable* table) {
  table->push_back({"bsw_video", (void*)bsw_video});
  table->push_back({"bsw_video_simd", (void*)bsw_video_simd});
}

}  // namespace bandsaw::soft
