// cvt: PTX ISA 9.7.9.21, and the rules for registers wider than a type (9.4.1).
#include <algorithm>

#include "tests/unit/soft/random/form.h"
#include "tests/unit/soft/random/rounding.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
using S = int64_t;
__extension__ using Wide = __int128;

struct Integer {
  bool is_signed;
  unsigned bits;
  std::string name() const { return (is_signed ? "s" : "u") + std::to_string(bits); }
  Wide least() const { return is_signed ? -(Wide{1} << (bits - 1)) : 0; }
  Wide most() const { return (Wide{1} << (is_signed ? bits - 1 : bits)) - 1; }
  Wide value(U v) const { return is_signed ? Wide{extend(v, bits)} : Wide{low(v, bits)}; }
  // What a wider register has of a result.
  U widened(Wide v) const { return static_cast<U>(value(static_cast<U>(v))); }
};

std::vector<Integer> integers() {
  std::vector<Integer> all;
  for (unsigned bits : {8u, 16u, 32u, 64u})
    for (bool is_signed : {false, true}) all.push_back({is_signed, bits});
  return all;
}

std::string registers(unsigned bits) { return bits <= 16 ? "hrd" : bits == 32 ? "rd" : "d"; }

void between_integers(std::vector<Form>* to) {
  for (const Integer& target : integers())
    for (const Integer& source : integers())
      for (bool sat : {false, true})
        for (char d : registers(target.bits))
          for (char s : registers(source.bits))
            to->push_back(
                pure("cvt." + std::string(sat ? "sat." : "") + target.name() + "." + source.name() + " $0, $1;",
                     std::string(1, d) + ":" + s, [=](Sources v) {
                       Wide x = source.value(v[0]);
                       if (sat) x = std::clamp(x, target.least(), target.most());
                       return target.widened(x);
                     }));
}

struct Float {
  std::string name;
  unsigned bits;
  const Format* format;  // of those with 16 bits
  double value(U v) const { return format ? decode(low(v, 16), *format) : bits == 32 ? double{f32(v)} : f64(v); }
  char source() const { return format ? 'e' : bits == 32 ? 'f' : 'g'; }
};

std::vector<Float> floats() {
  return {{"f16", 16, &kHalf}, {"bf16", 16, &kBfloat}, {"f32", 32, nullptr}, {"f64", 64, nullptr}};
}

U rounded(const Float& to, long double v, int mode) {
  if (to.format) return encode(v, *to.format, mode);
  return in_mode(mode, [&] {
    volatile long double x = v;
    return to.bits == 32 ? bits_of(static_cast<float>(x)) : bits_of(static_cast<double>(x));
  });
}

U saturated(const Float& type, U bits) {
  const double v = type.value(bits);
  if (std::isnan(v) || v <= 0) return 0;
  return v < 1 ? bits : rounded(type, 1, FE_TONEAREST);
}

void integers_to_floats(std::vector<Form>* to) {
  for (const Float& target : floats())
    for (const Integer& source : integers())
      for (const Mode& mode : kModes) {
        if (target.format == &kBfloat && mode.fenv != FE_TONEAREST) continue;
        for (char s : registers(source.bits))
          to->push_back(pure(std::string("cvt.") + mode.name + "." + target.name + "." + source.name() + " $0, $1;",
                             std::string(1, letter(target.bits)) + ":" + s, [=, m = mode.fenv](Sources v) {
                               return rounded(target, static_cast<long double>(source.value(v[0])), m);
                             }));
      }
}

void floats_to_integers(std::vector<Form>* to) {
  for (const Float& source : floats())
    for (const Integer& target : integers())
      for (const Mode& mode : kModes)
        for (bool ftz : {false, true}) {
          if (ftz && source.name != "f32") continue;
          auto f = [=, m = mode.fenv](Sources v) {
            double x = source.value(v[0]);
            if (ftz) x = double{flushed(static_cast<float>(x))};
            if (std::isnan(x))  // as the table of section 9.7.9.21 has it
              return source.bits == 64 || target.bits == 64 ? target.widened(Wide{1} << (target.bits - 1)) : U{0};
            x = in_mode(m, [&] {
              volatile double y = x;
              return std::nearbyint(y);
            });
            if (x <= static_cast<double>(target.least())) return target.widened(target.least());
            if (x >= static_cast<double>(target.most())) return target.widened(target.most());
            return target.widened(static_cast<Wide>(x));
          };
          for (char d : registers(target.bits))
            to->push_back(pure(std::string("cvt.") + mode.name + "i" + (ftz ? ".ftz." : ".") + target.name() + "." +
                                   source.name + " $0, $1;",
                               std::string(1, d) + ":" + source.source(), f));
        }
}

void between_floats(std::vector<Form>* to) {
  for (const Float& source : floats())
    for (const Float& target : floats()) {
      const std::string operands = std::string(1, letter(target.bits)) + ":" + source.source();
      const std::string types = target.name + "." + source.name + " $0, $1;" + one_nan(target.name);
      const bool narrows = target.bits < source.bits, single = source.name == "f32" || target.name == "f32";
      if (target.format && source.format && target.format != source.format) continue;
      if ((target.format == &kBfloat || source.format == &kBfloat) && !single) continue;
      for (bool sat : {false, true})
        for (bool ftz : {false, true}) {
          if ((ftz && !single) || ((sat || ftz) && (target.format == &kBfloat || source.format == &kBfloat))) continue;
          auto value = [=](Sources v) {
            const double x = source.value(v[0]);
            return ftz && source.name == "f32" ? double{flushed(static_cast<float>(x))} : x;
          };
          auto finish = [=](U bits) {
            if (ftz && target.name == "f32") bits = bits_of(flushed(f32(bits)));
            return sat ? saturated(target, bits) : bits;
          };
          const std::string end = std::string(ftz ? ".ftz" : "") + (sat ? ".sat." : ".") + types;
          for (const Mode& mode : kModes) {
            if (narrows && (target.format != &kBfloat || mode.fenv == FE_TONEAREST || mode.fenv == FE_TOWARDZERO))
              to->push_back(pure(std::string("cvt.") + mode.name + end, operands,
                                 [=, m = mode.fenv](Sources v) { return finish(rounded(target, value(v), m)); }));
            if (target.bits == source.bits && !target.format)
              to->push_back(pure(std::string("cvt.") + mode.name + "i" + end, operands, [=, m = mode.fenv](Sources v) {
                const double x = in_mode(m, [&] {
                  volatile double y = value(v);
                  return std::nearbyint(y);
                });
                return finish(rounded(target, x, FE_TONEAREST));
              }));
          }
          if (!narrows && !(target.bits == source.bits && !sat && !ftz) &&
              !(target.bits == source.bits && target.format))
            to->push_back(pure("cvt" + end, operands,
                               [=](Sources v) { return finish(rounded(target, value(v), FE_TONEAREST)); }));
        }
    }
}

void packed(std::vector<Form>* to) {
  const std::pair<const char*, const Format*> formats[] = {{"f16", &kHalf}, {"bf16", &kBfloat}};
  for (const auto& [name, format] : formats)
    for (const Mode& mode : {kModes[0], kModes[1]})
      for (bool relu : {false, true}) {
        auto part = [=, format = format, m = mode.fenv](U v) {
          const float x = f32(v);
          return relu && x < 0 ? U{0}
                               : encode(static_cast<long double>(x), *format, m) & (relu && x == 0 ? 0x7fff : 0xffff);
        };
        const std::string m = std::string("cvt.") + mode.name + (relu ? ".relu." : ".") + name;
        to->push_back(pure(m + ".f32 $0, $1;", "h:f", [=](Sources s) { return part(s[0]); }));
        to->push_back(pure(m + "x2.f32 $0, $1, $2;", "r:ff", [=](Sources s) { return part(s[0]) << 16 | part(s[1]); }));
      }
  for (unsigned bits : {8u, 16u})
    for (bool is_signed : {false, true}) {
      const Integer t{is_signed, bits}, whole{true, 32};
      auto clamp = [=](U v) { return low(static_cast<U>(std::clamp(whole.value(v), t.least(), t.most())), bits); };
      if (bits == 16)
        to->push_back(pure("cvt.pack.sat." + t.name() + ".s32 $0, $1, $2;", "r:rr",
                           [=](Sources s) { return clamp(s[0]) << 16 | clamp(s[1]); }));
      else
        to->push_back(pure("cvt.pack.sat." + t.name() + ".s32.b32 $0, $1, $2, $3;", "r:rrr",
                           [=](Sources s) { return low(s[2], 16) << 16 | clamp(s[0]) << 8 | clamp(s[1]); }));
    }
}

// 8 bits: what is beyond the greatest number becomes that.
U encode8(float v, bool e4m3) {
  const U sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v)) return 0x7f;
  const int fraction = e4m3 ? 3 : 2, least = e4m3 ? -6 : -14;
  const double most = e4m3 ? 448 : 57344, x = std::min(std::fabs(double{v}), most);
  if (x == 0) return sign;
  int exponent;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 1, least) - fraction;
  const double rounded = std::min(std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit), most);
  if (rounded == 0) return sign;
  std::frexp(rounded, &exponent);
  const int normal = std::max(exponent - 1, least);
  return sign | ((static_cast<U>(normal - least) << fraction) + static_cast<U>(std::ldexp(rounded, fraction - normal)));
}

double decode8(U v, bool e4m3) {
  const int fraction = e4m3 ? 3 : 2, least = e4m3 ? -6 : -14;
  const U digits = v & ((1u << fraction) - 1), exponent = (v & 0x7f) >> fraction;
  const double sign = v & 0x80 ? -1 : 1;
  if (e4m3 ? (v & 0x7f) == 0x7f : exponent == 31 && digits) return std::numeric_limits<double>::quiet_NaN();
  if (!e4m3 && exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(digits), least - fraction);
  return sign *
         std::ldexp(static_cast<double>(digits | U{1} << fraction), static_cast<int>(exponent) - 1 + least - fraction);
}

void of_eight_bits(std::vector<Form>* to) {
  for (bool e4m3 : {false, true}) {
    const std::string name = e4m3 ? "e4m3x2" : "e5m2x2";
    to->push_back(pure("cvt.rn.satfinite." + name + ".f32 $0, $1, $2;", "h:ff",
                       [=](Sources s) { return encode8(f32(s[0]), e4m3) << 8 | encode8(f32(s[1]), e4m3); }));
    to->push_back(pure("cvt.rn.satfinite." + name + ".f16x2 $0, $1;", "h:r", [=](Sources s) {
      auto part = [=](U v) { return encode8(static_cast<float>(decode(v, kHalf)), e4m3); };
      return part(s[0] >> 16) << 8 | part(low(s[0], 16));
    }));
    to->push_back(pure("cvt.rn.f16x2." + name + " $0, $1;", "r:e", [=](Sources s) {
      auto part = [=](U v) { return encode(decode8(v, e4m3), kHalf, FE_TONEAREST); };
      return part(s[0] >> 8 & 255) << 16 | part(s[0] & 255);
    }));
  }
}

}  // namespace

void add_convert_forms(std::vector<Form>* forms) {
  between_integers(forms);
  integers_to_floats(forms);
  floats_to_integers(forms);
  between_floats(forms);
  packed(forms);
  of_eight_bits(forms);
}

}  // namespace bandsaw::soft::test
