// Arithmetic on f16 and bf16, two halves of each lane's word at a time, for all lanes. Inline, the code generator would
// split and join vectors of 16 bits for each instruction, and take a tenth of a second for some.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class HalfOp : uint32_t { kAdd, kSub, kMul, kFma, kMin, kMax };

// What stands above a HalfOp in the flags of `bsw_halves`.
enum HalfFlag : uint32_t {
  kHalfBf16 = 1u << 8,      // else f16
  kHalfFtz = 1u << 9,       // subnormal operands and results are zero
  kHalfSat = 1u << 10,      // results in [0, 1], NaN is 0
  kHalfRelu = 1u << 11,     // results are at least 0, NaN stays
  kHalfNan = 1u << 12,      // of a minimum or maximum: NaN if either operand is
  kHalfXorsign = 1u << 13,  // the same of magnitudes, with the sign of both signs' exclusive or
};

}  // namespace bandsaw::soft
