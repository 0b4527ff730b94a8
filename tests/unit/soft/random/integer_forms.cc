// Integer arithmetic and comparisons, as PTX ISA 9.7.1, 9.7.2 and 9.7.6 have them.
#include <algorithm>

#include "tests/unit/soft/random/form.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
using S = int64_t;
__extension__ using Wide = __int128;

struct Type {
  bool is_signed;
  unsigned bits;
  std::string name() const { return (is_signed ? "s" : "u") + std::to_string(bits); }
  Wide value(U v) const { return is_signed ? Wide{extend(v, bits)} : Wide{low(v, bits)}; }
  Wide least() const { return is_signed ? -(Wide{1} << (bits - 1)) : 0; }
  Wide most() const { return (Wide{1} << (is_signed ? bits - 1 : bits)) - 1; }
};

std::string same(unsigned bits, unsigned sources) {
  return std::string(1, letter(bits)) + ":" + std::string(sources, letter(bits));
}

void arithmetic(std::vector<Form>* to, Type t) {
  const std::string n = "." + t.name() + " $0, $1, $2;", three = "." + t.name() + " $0, $1, $2, $3;";
  const std::string two = same(t.bits, 2);
  auto add = [&](const std::string& text, const std::string& operands, std::function<Wide(Wide, Wide, Wide)> f) {
    to->push_back(pure(text, operands, [=](Sources s) {
      return static_cast<U>(f(t.value(s[0]), t.value(s[1]), operands.size() > 4 ? t.value(s[2]) : 0));
    }));
  };
  add("add" + n, two, [](Wide a, Wide b, Wide) { return a + b; });
  add("sub" + n, two, [](Wide a, Wide b, Wide) { return a - b; });
  add("mul.lo" + n, two, [](Wide a, Wide b, Wide) { return static_cast<Wide>(static_cast<U>(a) * static_cast<U>(b)); });
  add("mul.hi" + n, two, [=](Wide a, Wide b, Wide) -> Wide {
    if (t.is_signed) return (a * b) >> t.bits;
    __extension__ using Unsigned = unsigned __int128;
    return static_cast<Wide>((static_cast<Unsigned>(a) * static_cast<Unsigned>(b)) >> t.bits);
  });
  add("mad.lo" + three, same(t.bits, 3), [](Wide a, Wide b, Wide c) {
    return static_cast<Wide>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c));
  });
  add("min" + n, two, [](Wide a, Wide b, Wide) { return std::min(a, b); });
  add("max" + n, two, [](Wide a, Wide b, Wide) { return std::max(a, b); });
  add("sad" + three, same(t.bits, 3), [](Wide a, Wide b, Wide c) { return c + (a < b ? b - a : a - b); });
  const std::string temporary = t.bits == 16 ? "%th0" : t.bits == 32 ? "%tr0" : "%td0", b = std::to_string(t.bits);
  // What a division by zero gives is left open.
  add("or.b" + b + " " + temporary + ", $2, 1; div." + t.name() + " $0, $1, " + temporary + ";", two,
      [=](Wide a, Wide d, Wide) { return a / t.value(static_cast<U>(d) | 1); });
  add("or.b" + b + " " + temporary + ", $2, 1; rem." + t.name() + " $0, $1, " + temporary + ";", two,
      [=](Wide a, Wide d, Wide) { return a % t.value(static_cast<U>(d) | 1); });
  if (t.is_signed) {
    add("neg." + t.name() + " $0, $1;", same(t.bits, 1), [](Wide a, Wide, Wide) { return -a; });
    add("abs." + t.name() + " $0, $1;", same(t.bits, 1), [](Wide a, Wide, Wide) { return a < 0 ? -a : a; });
  }
  if (t.bits == 64) return;
  const std::string wide = std::string(1, letter(2 * t.bits)) + ":" + std::string(2, letter(t.bits));
  to->push_back(pure("mul.wide" + n, wide, [=](Sources s) { return static_cast<U>(t.value(s[0]) * t.value(s[1])); }));
  to->push_back(pure("mad.wide" + three, wide + letter(2 * t.bits),
                     [=](Sources s) { return static_cast<U>(t.value(s[0]) * t.value(s[1])) + s[2]; }));
}

void saturating(std::vector<Form>* to) {
  const Type t{true, 32};
  auto clamp = [=](Wide v) { return static_cast<U>(std::clamp(v, t.least(), t.most())); };
  to->push_back(
      pure("add.sat.s32 $0, $1, $2;", "r:rr", [=](Sources s) { return clamp(t.value(s[0]) + t.value(s[1])); }));
  to->push_back(
      pure("sub.sat.s32 $0, $1, $2;", "r:rr", [=](Sources s) { return clamp(t.value(s[0]) - t.value(s[1])); }));
  to->push_back(pure("mad.hi.sat.s32 $0, $1, $2, $3;", "r:rrr",
                     [=](Sources s) { return clamp(((t.value(s[0]) * t.value(s[1])) >> 32) + t.value(s[2])); }));
  for (bool is_signed : {false, true}) {
    const Type w{is_signed, 24};
    const std::string n = is_signed ? ".s32" : ".u32";
    to->push_back(pure("mul24.lo" + n + " $0, $1, $2;", "r:rr",
                       [=](Sources s) { return static_cast<U>(w.value(s[0]) * w.value(s[1])); }));
    to->push_back(pure("mul24.hi" + n + " $0, $1, $2;", "r:rr",
                       [=](Sources s) { return static_cast<U>((w.value(s[0]) * w.value(s[1])) >> 16); }));
    to->push_back(pure("mad24.lo" + n + " $0, $1, $2, $3;", "r:rrr",
                       [=](Sources s) { return static_cast<U>(w.value(s[0]) * w.value(s[1])) + s[2]; }));
  }
}

// The carry flag, by what it does to the upper half of a result of two words.
void carries(std::vector<Form>* to) {
  auto two = [&](const std::string& text, std::function<Wide(Wide, Wide)> f, unsigned bits) {
    const std::string l(1, letter(bits));
    to->push_back({text, l + l + ":" + l + l + l + l, [=](LaneMemory&, U* r, Sources s) {
                     const Wide a = Wide{s[0]} | (Wide{s[2]} << bits), b = Wide{s[1]} | (Wide{s[3]} << bits);
                     const Wide sum = f(a, b);
                     r[0] = static_cast<U>(sum);
                     r[1] = static_cast<U>(sum >> bits);
                   }});
  };
  two("add.cc.u32 %tr0, $2, $3; addc.u32 $1, $4, $5; mov.b32 $0, %tr0;", [](Wide a, Wide b) { return a + b; }, 32);
  two("sub.cc.u32 %tr0, $2, $3; subc.u32 $1, $4, $5; mov.b32 $0, %tr0;", [](Wide a, Wide b) { return a - b; }, 32);
  two(
      "add.cc.u64 %td0, $2, $3; addc.u64 $1, $4, $5; mov.b64 $0, %td0;",
      [](Wide a, Wide b) {
        __extension__ using Unsigned = unsigned __int128;
        return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
      },
      64);
  to->push_back({"mad.lo.cc.u32 %tr0, $2, $3, $4; madc.hi.u32 $1, $2, $3, $5; mov.b32 $0, %tr0;", "rr:rrrr",
                 [](LaneMemory&, U* r, Sources s) {
                   const U product = s[0] * s[1], first = low(product, 32) + s[2];
                   r[0] = first;
                   r[1] = (product >> 32) + s[3] + (first >> 32);
                 }});
}

void comparisons(std::vector<Form>* to, Type t) {
  const std::string l(1, letter(t.bits));
  const std::pair<const char*, std::function<bool(Wide, Wide)>> all[] = {
      {"eq", [](Wide a, Wide b) { return a == b; }}, {"ne", [](Wide a, Wide b) { return a != b; }},
      {"lt", [](Wide a, Wide b) { return a < b; }},  {"le", [](Wide a, Wide b) { return a <= b; }},
      {"gt", [](Wide a, Wide b) { return a > b; }},  {"ge", [](Wide a, Wide b) { return a >= b; }}};
  for (const auto& [name, f] : all) {
    const std::string n = std::string(name) + ".", head = "setp." + std::string(name);
    auto test = [t, f = f](Sources s) { return f(t.value(s[0]), t.value(s[1])); };
    to->push_back(pure(head + "." + t.name() + " $0, $1, $2;", "p:" + l + l, [=](Sources s) { return test(s); }));
    to->push_back(pure(head + ".and." + t.name() + " $0, $1, $2, $3;", "p:" + l + l + "p",
                       [=](Sources s) { return test(s) && s[2]; }));
    to->push_back(
        {head + ".xor." + t.name() + " $0|$1, $2, $3, !$4;", "pp:" + l + l + "p", [=](LaneMemory&, U* r, Sources s) {
           r[0] = test(s) != !s[2];
           r[1] = !test(s) != !s[2];
         }});
    to->push_back(pure("set." + n + "u32." + t.name() + " $0, $1, $2;", "r:" + l + l,
                       [=](Sources s) { return test(s) ? ~U{0} : 0; }));
    to->push_back(pure("set." + n + "or.f32." + t.name() + " $0, $1, $2, $3;", "r:" + l + l + "p",
                       [=](Sources s) { return test(s) || s[2] ? U{0x3f800000} : 0; }));
  }
}

}  // namespace

void add_integer_forms(std::vector<Form>* forms) {
  for (unsigned bits : {16u, 32u, 64u})
    for (bool is_signed : {false, true}) {
      arithmetic(forms, {is_signed, bits});
      comparisons(forms, {is_signed, bits});
    }
  saturating(forms);
  carries(forms);
  for (unsigned bits : {16u, 32u, 64u}) {
    const std::string b = std::to_string(bits), l(1, letter(bits));
    forms->push_back(
        pure("selp.b" + b + " $0, $1, $2, $3;", l + ":" + l + l + "p", [](Sources s) { return s[2] ? s[0] : s[1]; }));
    forms->push_back(pure("slct.u" + b + ".s32 $0, $1, $2, $3;", l + ":" + l + l + "r",
                          [](Sources s) { return extend(s[2], 32) >= 0 ? s[0] : s[1]; }));
  }
}

}  // namespace bandsaw::soft::test
