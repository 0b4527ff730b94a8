// Numbers by which compiled code tells the atomic helper what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class AtomicOp : uint32_t { kAdd, kInc, kDec, kMin, kMax, kAnd, kOr, kXor, kExch, kCas };
enum class AtomicType : uint32_t { kU32, kS32, kU64, kS64, kF32, kF64, kF16, kBf16, kF16x2, kBf16x2, kU16 };

}  // namespace bandsaw::soft
