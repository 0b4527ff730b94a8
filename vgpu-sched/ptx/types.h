// PTX state spaces, types and linkage as enumerations, with their spelling (PTX ISA 9.0, sections 5.1 and 5.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bandsaw::ptx {

enum class Space : uint8_t { kNone, kReg, kSreg, kConst, kGlobal, kLocal, kParam, kShared, kTex };

// clang-format off
enum class Type : uint8_t {
  kNone,
  kB8, kB16, kB32, kB64, kB128,
  kU8, kU16, kU32, kU64, kU128,
  kS8, kS16, kS32, kS64, kS128,
  kF16, kF16x2, kBf16, kBf16x2, kTf32, kF32, kF32x2, kF64,
  kU16x2, kS16x2, kU8x4, kS8x4,
  kE4m3, kE5m2, kE4m3x2, kE5m2x2, kE2m3, kE3m2, kE2m1, kE2m1x2, kE2m3x2, kE3m2x2, kUe8m0, kUe8m0x2,
  kPred, kTexref, kSamplerref, kSurfref,
  kB1, kB4, kU4, kS4, kE4m3x4, kE5m2x4, kE2m1x4, kE2m3x4, kE3m2x4,
};
// clang-format on

enum class Linkage : uint8_t { kNone, kVisible, kExtern, kWeak, kCommon };

// Spelling without the leading dot: "f16x2", "global", "visible"; "" for kNone.
std::string_view spelling(Type type);
std::string_view spelling(Space space);
std::string_view spelling(Linkage linkage);

std::optional<Type> type_of(std::string_view spelling);
// Also accepts a sub-space ("shared::cta", "shared::cluster", "param::entry", "param::func").
std::optional<Space> space_of(std::string_view spelling);
std::optional<Linkage> linkage_of(std::string_view spelling);

// Width of one value in bits; 1 for .pred, 64 for texture, sampler and surface references, 0 for kNone.
uint32_t bits_of(Type type);
bool is_signed(Type type);    // .s*
bool is_unsigned(Type type);  // .u*
bool is_float(Type type);     // every floating point format, packed ones too

}  // namespace bandsaw::ptx
