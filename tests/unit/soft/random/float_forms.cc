// Single and double precision: PTX ISA 9.7.3 and 9.7.6, where it says the result to the last bit.
#include <algorithm>

#include "tests/unit/soft/random/form.h"
#include "tests/unit/soft/random/rounding.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;

template <class T>
T number(U bits) {
  if constexpr (sizeof(T) == 4) return f32(bits);
  return f64(bits);
}

template <class T>
struct Names {
  static constexpr bool kSingle = sizeof(T) == 4;
  static std::string type() { return kSingle ? "f32" : "f64"; }
  static std::string operands(size_t n) { return (kSingle ? "r:" : "d:") + std::string(n, kSingle ? 'f' : 'g'); }
};

// f(a, b, c) in a rounding mode, the operands and the result as .ftz and .sat say.
template <class T, class F>
U computed(Sources s, size_t n, int mode, bool ftz, bool sat, F f) {
  T v[3] = {};
  for (size_t i = 0; i < n; ++i) v[i] = number<T>(s[i]);
  if constexpr (sizeof(T) == 4)
    if (ftz)
      for (T& x : v) x = flushed(x);
  T r = in_mode(mode, [&] {
    volatile T a = v[0], b = v[1], c = v[2];
    volatile T result = f(a, b, c);
    return static_cast<T>(result);
  });
  if constexpr (sizeof(T) == 4)
    if (ftz) r = flushed(r);
  if (sat) r = std::isnan(r) || r <= 0 ? 0 : std::min(r, T{1});
  return bits_of(r);
}

template <class T, class F>
void rounded(std::vector<Form>* to, const std::string& opcode, size_t n, F f, bool saturates = false) {
  std::string sources;
  for (size_t i = 1; i <= n; ++i) sources += ", $" + std::to_string(i);
  for (const Mode& mode : kModes)
    for (bool ftz : {false, true})
      for (bool sat : {false, true}) {
        if ((ftz || sat) && !Names<T>::kSingle) continue;
        if (sat && !saturates) continue;
        const std::string text = opcode + "." + mode.name + (ftz ? ".ftz" : "") + (sat ? ".sat" : "") + "." +
                                 Names<T>::type() + " $0" + sources + ";" + one_nan(Names<T>::type());
        to->push_back(pure(text, Names<T>::operands(n),
                           [=, m = mode.fenv](Sources s) { return computed<T>(s, n, m, ftz, sat, f); }));
      }
}

template <class T>
T pick(T a, T b, bool least) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) == least ? a : b;
  return (a < b) == least ? a : b;
}

template <class T>
void chosen(std::vector<Form>* to) {
  const std::string type = Names<T>::type(), operands = Names<T>::operands(2),
                    end = type + " $0, $1, $2;" + one_nan(type);
  for (bool least : {false, true})
    for (bool ftz : {false, true}) {
      if (ftz && !Names<T>::kSingle) continue;
      const std::string head = std::string(least ? "min" : "max") + (ftz ? ".ftz." : ".");
      auto f = [=](Sources s, bool nan, bool magnitude) {
        return computed<T>(s, 2, FE_TONEAREST, ftz, false, [=](T a, T b, T) -> T {
          if (nan && (std::isnan(a) || std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
          if (!magnitude) return pick(a, b, least);
          const T r = pick(std::fabs(a), std::fabs(b), least);
          return std::signbit(a) != std::signbit(b) ? -r : r;
        });
      };
      to->push_back(pure(head + end, operands, [=](Sources s) { return f(s, false, false); }));
      if (!Names<T>::kSingle) continue;
      to->push_back(pure(head + "NaN." + end, operands, [=](Sources s) { return f(s, true, false); }));
      to->push_back(pure(head + "NaN.xorsign.abs." + end, operands, [=](Sources s) { return f(s, true, true); }));
    }
}

template <class T>
void compared(std::vector<Form>* to) {
  const std::pair<const char*, bool (*)(T, T)> all[] = {
      {"eq", [](T a, T b) { return a == b; }},
      {"ne", [](T a, T b) { return a < b || a > b; }},
      {"lt", [](T a, T b) { return a < b; }},
      {"le", [](T a, T b) { return a <= b; }},
      {"gt", [](T a, T b) { return a > b; }},
      {"ge", [](T a, T b) { return a >= b; }},
      {"equ", [](T a, T b) { return !(a < b || a > b); }},
      {"neu", [](T a, T b) { return a != b; }},
      {"ltu", [](T a, T b) { return !(a >= b); }},
      {"leu", [](T a, T b) { return !(a > b); }},
      {"gtu", [](T a, T b) { return !(a <= b); }},
      {"geu", [](T a, T b) { return !(a < b); }},
      {"num", [](T a, T b) { return !std::isnan(a) && !std::isnan(b); }},
      {"nan", [](T a, T b) { return std::isnan(a) || std::isnan(b); }}};
  const std::string sources = Names<T>::operands(2).substr(2), type = Names<T>::type();
  for (const auto& [name, f] : all)
    for (bool ftz : {false, true}) {
      if (ftz && !Names<T>::kSingle) continue;
      auto test = [f = f, ftz](Sources s) {
        T a = number<T>(s[0]), b = number<T>(s[1]);
        if constexpr (sizeof(T) == 4)
          if (ftz) a = flushed(a), b = flushed(b);
        return f(a, b);
      };
      const std::string end = std::string(ftz ? ".ftz." : ".");
      to->push_back(pure("setp." + std::string(name) + end + type + " $0, $1, $2;", "p:" + sources, test));
      to->push_back({"setp." + std::string(name) + ".or" + end + type + " $0|$1, $2, $3, $4;", "pp:" + sources + "p",
                     [=](LaneMemory&, U* r, Sources s) {
                       r[0] = test(s) || s[2];
                       r[1] = !test(s) || s[2];
                     }});
      to->push_back(pure("set." + std::string(name) + end + "s32." + type + " $0, $1, $2;", "r:" + sources,
                         [=](Sources s) { return test(s) ? ~U{0} : 0; }));
      to->push_back(pure("set." + std::string(name) + end + "f32." + type + " $0, $1, $2;", "r:" + sources,
                         [=](Sources s) { return test(s) ? U{0x3f800000} : 0; }));
    }
}

template <class T>
void all_of(std::vector<Form>* to) {
  const std::string type = Names<T>::type(), one = Names<T>::operands(1);
  rounded<T>(to, "add", 2, [](T a, T b, T) { return a + b; }, true);
  rounded<T>(to, "sub", 2, [](T a, T b, T) { return a - b; }, true);
  rounded<T>(to, "mul", 2, [](T a, T b, T) { return a * b; }, true);
  rounded<T>(to, "fma", 3, [](T a, T b, T c) { return std::fma(a, b, c); }, true);
  rounded<T>(to, "div", 2, [](T a, T b, T) { return a / b; });
  rounded<T>(to, "sqrt", 1, [](T a, T, T) { return std::sqrt(a); });
  rounded<T>(to, "rcp", 1, [](T a, T, T) { return T{1} / a; });
  chosen<T>(to);
  compared<T>(to);
  to->push_back(
      pure("neg." + type + " $0, $1;" + one_nan(type), one, [](Sources s) { return bits_of(-number<T>(s[0])); }));
  to->push_back(pure("abs." + type + " $0, $1;" + one_nan(type), one,
                     [](Sources s) { return bits_of(std::fabs(number<T>(s[0]))); }));
  to->push_back(pure("copysign." + type + " $0, $1, $2;" + one_nan(type), Names<T>::operands(2),
                     [](Sources s) { return bits_of(std::copysign(number<T>(s[1]), number<T>(s[0]))); }));
  const std::pair<const char*, bool (*)(T)> tests[] = {
      {"finite", [](T v) { return bool(std::isfinite(v)); }},
      {"infinite", [](T v) { return bool(std::isinf(v)); }},
      {"number", [](T v) { return !std::isnan(v); }},
      {"notanumber", [](T v) { return bool(std::isnan(v)); }},
      {"normal", [](T v) { return std::isnormal(v) || v == 0; }},
      {"subnormal", [](T v) { return std::fpclassify(v) == FP_SUBNORMAL; }}};
  for (const auto& [name, f] : tests)
    to->push_back(pure("testp." + std::string(name) + "." + type + " $0, $1;", "p:" + one.substr(2),
                       [f = f](Sources s) -> U { return f(number<T>(s[0])); }));
}

}  // namespace

void add_float_forms(std::vector<Form>* forms) {
  all_of<float>(forms);
  all_of<double>(forms);
  for (bool ftz : {false, true})
    forms->push_back(
        pure(std::string("slct") + (ftz ? ".ftz" : "") + ".b32.f32 $0, $1, $2, $3;", "r:rrf", [=](Sources s) {
          const float c = ftz ? flushed(f32(s[2])) : f32(s[2]);
          return c >= 0 ? s[0] : s[1];
        }));
}

}  // namespace bandsaw::soft::test
