// How the emitter tells the video helpers what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class VideoOp : uint8_t { kAdd, kSub, kAbsDiff, kMin, kMax, kShl, kShr, kMad, kSet, kAverage };
enum class VideoCompare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
enum class VideoSecond : uint8_t { kNone, kAdd, kMin, kMax, kMerge };

// Passed by value as two words. Selectors of scalar forms: 0 all, 1-4 bytes b0-b3, 5-6 halves h0-h1.
struct VideoForm {
  VideoOp op = VideoOp::kAdd;
  VideoCompare compare = VideoCompare::kEq;
  VideoSecond second = VideoSecond::kNone;
  uint8_t signs = 0;  // 1: d, 2: a, 4: b
  uint8_t a = 0, b = 0, d = 0;
  uint8_t flags = 0;  // 1 sat, 2 wrap, 4 -a, 8 -b, 16 -c, 32 plus one, 64 shr7, 128 shr15
};
static_assert(sizeof(VideoForm) == 8);

// SIMD forms: elements of a and b are picked by nibbles of `a_picks` and `b_picks` from {a, b}; `mask` has a bit for
// each element of d.
struct SimdForm {
  VideoOp op = VideoOp::kAdd;
  VideoCompare compare = VideoCompare::kEq;
  uint8_t signs = 0, elements = 4;
  uint8_t mask = 15;
  uint8_t flags = 0;  // 1 sat, 2 add into c
  uint16_t unused = 0;
};
static_assert(sizeof(SimdForm) == 8);

}  // namespace bandsaw::soft
