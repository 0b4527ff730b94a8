// Half precision and bfloat16, single and in pairs: PTX ISA 9.7.4, 9.7.7.
#include <algorithm>

#include "tests/unit/soft/random/form.h"
#include "tests/unit/soft/random/rounding.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
using Operation = std::function<U(const Format&, Sources)>;

// .ftz: of f16 only.
U flushed_half(U bits) { return (bits & 0x7c00) ? bits : bits & 0x8000; }

U finish(U bits, const Format& format, bool ftz, bool sat, bool relu) {
  if (ftz) bits = flushed_half(bits);
  const double v = decode(bits, format);
  if (std::isnan(v)) return sat ? 0 : format.nan;
  if (sat) return v <= 0 ? 0 : v >= 1 ? encode(1, format, FE_TONEAREST) : bits;
  if (relu && (v <= 0)) return 0;
  return bits;
}

void add(std::vector<Form>* to, const std::string& opcode, size_t n, bool is_bfloat, bool ftz,
         std::function<U(const Format&, Sources)> f, bool sat = false, bool relu = false) {
  const std::string type = is_bfloat ? "bf16" : "f16";
  const Format& format = is_bfloat ? kBfloat : kHalf;
  std::string sources;
  for (size_t i = 1; i <= n; ++i) sources += ", $" + std::to_string(i);
  auto one = [=, &format](Sources s) {
    U v[3] = {};
    for (size_t i = 0; i < n; ++i) v[i] = ftz ? flushed_half(low(s[i], 16)) : low(s[i], 16);
    return finish(f(format, v), format, ftz, sat, relu);
  };
  to->push_back(pure(opcode + "." + type + " $0" + sources + ";" + one_nan(type), "h:" + std::string(n, 'e'), one));
  const std::string halves = " mov.b32 {%th0, %th1}, $0; setp.nan." + type +
                             " %tp, %th0, %th0; selp.b16 %th0, 0x7fff, %th0, "
                             "%tp; setp.nan." +
                             type + " %tp, %th1, %th1; selp.b16 %th1, 0x7fff, %th1, %tp; mov.b32 $0, {%th0, %th1};";
  to->push_back(
      pure(opcode + "." + type + "x2 $0" + sources + ";" + halves, "r:" + std::string(n, 'r'), [=](Sources s) {
        U first[3] = {}, second[3] = {};
        for (size_t i = 0; i < n; ++i) first[i] = low(s[i], 16), second[i] = low(s[i] >> 16, 16);
        return one(first) | one(second) << 16;
      }));
}

U fused(const Format& f, U a, U b, U c) {
  return encode(static_cast<long double>(sticky_fma(decode(a, f), decode(b, f), decode(c, f))), f, FE_TONEAREST);
}

U chosen(const Format& f, U a, U b, bool least, bool nan, bool magnitude) {
  double x = decode(a, f), y = decode(b, f);
  if (std::isnan(x) || std::isnan(y)) {
    if (nan || (std::isnan(x) && std::isnan(y))) return f.nan;
    const U r = std::isnan(x) ? b : a;
    return magnitude ? (r & 0x7fff) | ((a ^ b) & 0x8000) : r;
  }
  const U sign = (a ^ b) & 0x8000;
  if (magnitude) a &= 0x7fff, b &= 0x7fff, x = std::fabs(x), y = std::fabs(y);
  const bool first = x == y ? std::signbit(x) == least : (x < y) == least;
  const U r = first ? a : b;
  return magnitude ? r | sign : r;
}

void arithmetic(std::vector<Form>* to, bool is_bfloat) {
  const U one = is_bfloat ? 0x3f80 : 0x3c00, minus_one = one | 0x8000, minus_zero = 0x8000;
  for (bool ftz : {false, true}) {
    if (ftz && is_bfloat) continue;
    const std::string z = ftz ? ".ftz" : "";
    for (bool sat : {false, true}) {
      if (sat && is_bfloat) continue;
      const std::string m = ".rn" + z + (sat ? ".sat" : "");
      add(to, "add" + m, 2, is_bfloat, ftz, [=](const Format& f, Sources s) { return fused(f, s[0], one, s[1]); }, sat);
      add(
          to, "sub" + m, 2, is_bfloat, ftz, [=](const Format& f, Sources s) { return fused(f, s[1], minus_one, s[0]); },
          sat);
      add(
          to, "mul" + m, 2, is_bfloat, ftz,
          [=](const Format& f, Sources s) {
            // The sum of a negative zero and a zero of either sign is that zero.
            return fused(f, s[0], s[1], minus_zero);
          },
          sat);
      add(to, "fma" + m, 3, is_bfloat, ftz, [](const Format& f, Sources s) { return fused(f, s[0], s[1], s[2]); }, sat);
    }
    add(
        to, "fma.rn" + z + ".relu", 3, is_bfloat, ftz,
        [](const Format& f, Sources s) { return fused(f, s[0], s[1], s[2]); }, false, true);
    for (bool least : {false, true}) {
      const std::string name = std::string(least ? "min" : "max") + z;
      add(to, name, 2, is_bfloat, ftz,
          [=](const Format& f, Sources s) { return chosen(f, s[0], s[1], least, false, false); });
      add(to, name + ".NaN", 2, is_bfloat, ftz,
          [=](const Format& f, Sources s) { return chosen(f, s[0], s[1], least, true, false); });
      add(to, name + ".NaN.xorsign.abs", 2, is_bfloat, ftz,
          [=](const Format& f, Sources s) { return chosen(f, s[0], s[1], least, true, true); });
    }
    add(to, "neg" + z, 1, is_bfloat, ftz, [](const Format&, Sources s) { return s[0] ^ 0x8000; });
    add(to, "abs" + z, 1, is_bfloat, ftz, [](const Format&, Sources s) { return s[0] & 0x7fff; });
  }
}

void compared(std::vector<Form>* to, bool is_bfloat) {
  const std::string type = is_bfloat ? "bf16" : "f16";
  const Format& format = is_bfloat ? kBfloat : kHalf;
  const std::pair<const char*, bool (*)(double, double)> all[] = {
      {"lt", [](double a, double b) { return a < b; }},
      {"ge", [](double a, double b) { return a >= b; }},
      {"eq", [](double a, double b) { return a == b; }},
      {"neu", [](double a, double b) { return a != b; }},
      {"gtu", [](double a, double b) { return !(a <= b); }}};
  for (const auto& [name, f] : all)
    for (bool ftz : {false, true}) {
      if (ftz && is_bfloat) continue;
      auto test = [f = f, ftz, &format](U a, U b) {
        if (ftz) a = flushed_half(a), b = flushed_half(b);
        return f(decode(a, format), decode(b, format));
      };
      const std::string head = "." + std::string(name) + (ftz ? ".ftz." : ".");
      to->push_back(pure("setp" + head + type + " $0, $1, $2;", "p:ee", [=](Sources s) { return test(s[0], s[1]); }));
      to->push_back({"setp" + head + type + "x2 $0|$1, $2, $3;", "pp:rr", [=](LaneMemory&, U* r, Sources s) {
                       r[0] = test(low(s[0], 16), low(s[1], 16));
                       r[1] = test(s[0] >> 16, s[1] >> 16);
                     }});
      to->push_back(pure("set" + head + "u32." + type + " $0, $1, $2;", "r:ee",
                         [=](Sources s) { return test(s[0], s[1]) ? ~U{0} : 0; }));
      const U one = is_bfloat ? 0x3f80 : 0x3c00;
      to->push_back(pure("set" + head + type + "x2." + type + "x2 $0, $1, $2;", "r:rr", [=](Sources s) {
        return (test(low(s[0], 16), low(s[1], 16)) ? one : 0) | (test(s[0] >> 16, s[1] >> 16) ? one << 16 : 0);
      }));
    }
}

}  // namespace

void add_half_forms(std::vector<Form>* forms) {
  for (bool is_bfloat : {false, true}) {
    arithmetic(forms, is_bfloat);
    compared(forms, is_bfloat);
  }
}

}  // namespace bandsaw::soft::test
