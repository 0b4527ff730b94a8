#include "vgpu-sched/ptx/types.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace bandsaw::ptx {
namespace {

enum class Kind : uint8_t { kBits, kUnsigned, kSigned, kFloat, kOther };

struct TypeRow {
  Type type;
  std::string_view spelling;
  uint32_t bits;
  Kind kind;
};

// In the order of the enumeration, so that a type is its row's index.
constexpr TypeRow kTypes[] = {
    {Type::kNone, "", 0, Kind::kOther},
    {Type::kB8, "b8", 8, Kind::kBits},
    {Type::kB16, "b16", 16, Kind::kBits},
    {Type::kB32, "b32", 32, Kind::kBits},
    {Type::kB64, "b64", 64, Kind::kBits},
    {Type::kB128, "b128", 128, Kind::kBits},
    {Type::kU8, "u8", 8, Kind::kUnsigned},
    {Type::kU16, "u16", 16, Kind::kUnsigned},
    {Type::kU32, "u32", 32, Kind::kUnsigned},
    {Type::kU64, "u64", 64, Kind::kUnsigned},
    {Type::kU128, "u128", 128, Kind::kUnsigned},
    {Type::kS8, "s8", 8, Kind::kSigned},
    {Type::kS16, "s16", 16, Kind::kSigned},
    {Type::kS32, "s32", 32, Kind::kSigned},
    {Type::kS64, "s64", 64, Kind::kSigned},
    {Type::kS128, "s128", 128, Kind::kSigned},
    {Type::kF16, "f16", 16, Kind::kFloat},
    {Type::kF16x2, "f16x2", 32, Kind::kFloat},
    {Type::kBf16, "bf16", 16, Kind::kFloat},
    {Type::kBf16x2, "bf16x2", 32, Kind::kFloat},
    {Type::kTf32, "tf32", 32, Kind::kFloat},
    {Type::kF32, "f32", 32, Kind::kFloat},
    {Type::kF32x2, "f32x2", 64, Kind::kFloat},
    {Type::kF64, "f64", 64, Kind::kFloat},
    {Type::kU16x2, "u16x2", 32, Kind::kUnsigned},
    {Type::kS16x2, "s16x2", 32, Kind::kSigned},
    {Type::kU8x4, "u8x4", 32, Kind::kUnsigned},
    {Type::kS8x4, "s8x4", 32, Kind::kSigned},
    {Type::kE4m3, "e4m3", 8, Kind::kFloat},
    {Type::kE5m2, "e5m2", 8, Kind::kFloat},
    {Type::kE4m3x2, "e4m3x2", 16, Kind::kFloat},
    {Type::kE5m2x2, "e5m2x2", 16, Kind::kFloat},
    {Type::kE2m3, "e2m3", 6, Kind::kFloat},
    {Type::kE3m2, "e3m2", 6, Kind::kFloat},
    {Type::kE2m1, "e2m1", 4, Kind::kFloat},
    {Type::kE2m1x2, "e2m1x2", 8, Kind::kFloat},
    {Type::kE2m3x2, "e2m3x2", 16, Kind::kFloat},
    {Type::kE3m2x2, "e3m2x2", 16, Kind::kFloat},
    {Type::kUe8m0, "ue8m0", 8, Kind::kFloat},
    {Type::kUe8m0x2, "ue8m0x2", 16, Kind::kFloat},
    {Type::kPred, "pred", 1, Kind::kOther},
    {Type::kTexref, "texref", 64, Kind::kOther},
    {Type::kSamplerref, "samplerref", 64, Kind::kOther},
    {Type::kSurfref, "surfref", 64, Kind::kOther},
    {Type::kB1, "b1", 1, Kind::kBits},
    {Type::kB4, "b4", 4, Kind::kBits},
    {Type::kU4, "u4", 4, Kind::kUnsigned},
    {Type::kS4, "s4", 4, Kind::kSigned},
    {Type::kE4m3x4, "e4m3x4", 32, Kind::kFloat},
    {Type::kE5m2x4, "e5m2x4", 32, Kind::kFloat},
    {Type::kE2m1x4, "e2m1x4", 16, Kind::kFloat},
    {Type::kE2m3x4, "e2m3x4", 32, Kind::kFloat},
    {Type::kE3m2x4, "e3m2x4", 32, Kind::kFloat},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
  return true;
}
static_assert(in_order());

const TypeRow& row(Type type) {
  auto index = static_cast<size_t>(type);
  return kTypes[index < std::size(kTypes) ? index : 0];
}

constexpr std::string_view kSpaces[] = {"", "reg", "sreg", "const", "global", "local", "param", "shared", "tex"};
constexpr std::string_view kLinkages[] = {"", "visible", "extern", "weak", "common"};

}  // namespace

std::string_view spelling(Type type) { return row(type).spelling; }
std::string_view spelling(Space space) { return kSpaces[static_cast<size_t>(space)]; }
std::string_view spelling(Linkage linkage) { return kLinkages[static_cast<size_t>(linkage)]; }

std::optional<Type> type_of(std::string_view name) {
  // Called for every modifier of every instruction: most are not types, and the first letter says so.
  if (name.size() < 2 || name.size() > 10 || std::string_view("bustfep").find(name[0]) == std::string_view::npos)
    return std::nullopt;
  for (const TypeRow& r : kTypes)
    if (r.spelling == name) return r.type;
  return std::nullopt;
}

std::optional<Space> space_of(std::string_view name) {
  name = name.substr(0, name.find("::"));
  for (size_t i = 1; i < std::size(kSpaces); ++i)
    if (kSpaces[i] == name) return static_cast<Space>(i);
  return std::nullopt;
}

std::optional<Linkage> linkage_of(std::string_view name) {
  for (size_t i = 1; i < std::size(kLinkages); ++i)
    if (kLinkages[i] == name) return static_cast<Linkage>(i);
  return std::nullopt;
}

uint32_t bits_of(Type type) { return row(type).bits; }
bool is_signed(Type type) { return row(type).kind == Kind::kSigned; }
bool is_unsigned(Type type) { return row(type).kind == Kind::kUnsigned; }
bool is_float(Type type) { return row(type).kind == Kind::kFloat; }

}  // namespace bandsaw::ptx
