// f16 and bf16 arithmetic of compiled code against exact sums and products, rounded once.
#include "backend/device/soft/codegen/halves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>

#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/half.h"

namespace bandsaw::soft {
namespace {

__extension__ using Exact = __float128;
using Halves = void (*)(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint32_t flags);

Halves halves() {
  const SymbolTable table = runtime_symbols();
  const auto found =
      std::find_if(table.begin(), table.end(), [](const auto& one) { return one.first == std::string("bsw_halves"); });
  return reinterpret_cast<Halves>(found->second);
}

// Of a + b: the odd one of the two next doubles, if it is none itself, so that a second rounding is right.
double odd_sum(Exact a, Exact b) {
  const Exact sum = a + b, back = sum - a, error = (a - (sum - back)) + (b - back);
  const double d = static_cast<double>(sum);
  const Exact magnitude = d < 0 ? -static_cast<Exact>(d) : static_cast<Exact>(d), whole = sum < 0 ? -sum : sum;
  if (!std::isfinite(d) || (magnitude == whole && error == 0)) return d;
  const bool above = magnitude == whole ? (error < 0) != (sum < 0) : magnitude > whole;
  return std::bit_cast<double>((std::bit_cast<uint64_t>(d) - above) | 1);
}

struct Case {
  HalfOp op;
  uint32_t flags;
  bool has(HalfFlag flag) const { return flags & flag; }
  uint16_t infinity() const { return has(kHalfBf16) ? 0x7f80 : 0x7c00; }
  bool nan(uint16_t v) const { return (v & 0x7fff) > infinity(); }
  uint16_t flushed(uint16_t v) const { return has(kHalfFtz) && !(v & infinity()) ? v & 0x8000 : v; }
  float wide(uint16_t v) const { return has(kHalfBf16) ? from_bf16(v) : from_f16(v); }

  uint16_t select(uint16_t a, uint16_t b) const {
    if (has(kHalfNan) ? nan(a) || nan(b) : nan(a) && nan(b)) return 0x7fff;
    const uint16_t sign = has(kHalfXorsign) ? (a ^ b) & 0x8000 : 0;
    if (has(kHalfXorsign)) a &= 0x7fff, b &= 0x7fff;
    if (nan(a)) return b | sign;
    if (nan(b)) return a | sign;
    const auto below = [&](uint16_t x, uint16_t y) {
      return wide(x) < wide(y) || (wide(x) == wide(y) && std::signbit(wide(x)) > std::signbit(wide(y)));
    };
    return (below(a, b) == (op == HalfOp::kMin) ? a : b) | sign;
  }
  uint16_t compute(uint16_t a, uint16_t b, uint16_t c) const {
    if (op == HalfOp::kMin || op == HalfOp::kMax) return select(a, b);
    const double x = wide(a), y = wide(b), z = wide(c);
    const double plain = op == HalfOp::kAdd   ? x + y
                         : op == HalfOp::kSub ? x - y
                         : op == HalfOp::kMul ? x * y
                                              : x * y + z;
    double r = plain;
    if (std::isfinite(plain) && plain != 0) {
      const Exact p = x, q = y;
      r = op == HalfOp::kAdd   ? odd_sum(p, q)
          : op == HalfOp::kSub ? odd_sum(p, -q)
          : op == HalfOp::kMul ? odd_sum(p * q, 0)
                               : odd_sum(p * q, z);
    }
    if (has(kHalfSat)) r = std::isnan(r) || r <= 0 ? 0 : std::min(r, 1.0);
    if (has(kHalfRelu) && r <= 0) r = 0;
    return has(kHalfBf16) ? to_bf16(r) : to_f16(r);
  }
  uint16_t expected(uint16_t a, uint16_t b, uint16_t c) const {
    return flushed(compute(flushed(a), flushed(b), flushed(c)));
  }
};

TEST(Halves, AreRoundedOnce) {
  const Halves run = halves();
  std::mt19937 random(7);
  const uint16_t special[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x7f,   0x80,   0x3c00, 0x3f80, 0xbc00,
                              0x7bff, 0x7c00, 0xfc00, 0x7c01, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0x7fff, 0xffff, 0x0c00};
  const auto half = [&]() -> uint16_t {
    return random() % 4 == 0 ? special[random() % std::size(special)] : static_cast<uint16_t>(random());
  };
  for (const HalfOp op : {HalfOp::kAdd, HalfOp::kSub, HalfOp::kMul, HalfOp::kFma, HalfOp::kMin, HalfOp::kMax}) {
    for (const uint32_t format : {0u, uint32_t{kHalfBf16}}) {
      for (const uint32_t more : std::initializer_list<uint32_t>{0, kHalfFtz, kHalfSat, kHalfRelu, kHalfNan,
                                                                 kHalfXorsign, kHalfNan | kHalfXorsign}) {
        const bool selects = op == HalfOp::kMin || op == HalfOp::kMax;
        if (selects ? more & (kHalfSat | kHalfRelu) : more & (kHalfNan | kHalfXorsign)) continue;
        const Case one{op, format | more};
        for (int round = 0; round < 200; ++round) {
          uint16_t a[64], b[64], c[64], got[64];
          for (int i = 0; i < 64; ++i) {
            a[i] = half(), b[i] = half(), c[i] = half();
            if (round % 2)  // of like size, so that sums cancel and ties come
              b[i] = (a[i] & 0xff00) | (b[i] & 0xff), c[i] = (a[i] & 0xfc00) | (c[i] & 0x83ff);
          }
          uint32_t words[4][32];
          std::memcpy(words[0], a, sizeof a), std::memcpy(words[1], b, sizeof b), std::memcpy(words[2], c, sizeof c);
          run(words[0], words[1], words[2], words[3], one.flags | static_cast<uint32_t>(op));
          std::memcpy(got, words[3], sizeof got);
          for (int i = 0; i < 64; ++i) {
            const uint16_t wanted = one.expected(a[i], b[i], c[i]);
            ASSERT_EQ(got[i], wanted) << std::hex << "operation " << static_cast<uint32_t>(op) << ", flags "
                                      << one.flags << ": " << a[i] << ", " << b[i] << ", " << c[i];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bandsaw::soft
