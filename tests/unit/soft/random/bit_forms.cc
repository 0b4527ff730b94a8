// Bits, bytes and pairs: PTX ISA 9.7.1, 9.7.8 and 9.7.9.
#include <algorithm>
#include <bit>

#include "tests/unit/soft/random/form.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
using S = int64_t;

void logic(std::vector<Form>* to, unsigned bits) {
  const std::string n = ".b" + std::to_string(bits), l(1, letter(bits)), one = l + ":" + l, two = one + l;
  to->push_back(pure("and" + n + " $0, $1, $2;", two, [](Sources s) { return s[0] & s[1]; }));
  to->push_back(pure("or" + n + " $0, $1, $2;", two, [](Sources s) { return s[0] | s[1]; }));
  to->push_back(pure("xor" + n + " $0, $1, $2;", two, [](Sources s) { return s[0] ^ s[1]; }));
  to->push_back(pure("not" + n + " $0, $1;", one, [](Sources s) { return ~s[0]; }));
  to->push_back(pure("cnot" + n + " $0, $1;", one, [](Sources s) { return U{s[0] == 0}; }));
  to->push_back(pure("mov" + n + " $0, $1;", one, [](Sources s) { return s[0]; }));
  to->push_back(
      pure("shl" + n + " $0, $1, $2;", one + "r", [=](Sources s) { return s[1] >= bits ? 0 : s[0] << s[1]; }));
  const std::string b = std::to_string(bits);
  to->push_back(
      pure("shr.u" + b + " $0, $1, $2;", one + "r", [=](Sources s) { return s[1] >= bits ? 0 : s[0] >> s[1]; }));
  to->push_back(pure("shr.s" + b + " $0, $1, $2;", one + "r",
                     [=](Sources s) { return static_cast<U>(extend(s[0], bits) >> std::min<U>(s[1], bits - 1)); }));
}

U extract(U value, U position, U length, unsigned bits, bool is_signed) {
  position &= 255;
  length &= 255;
  U r = 0;
  const U last = std::min<U>(position + length - 1, bits - 1);
  const U sign = is_signed && length ? value >> last & 1 : 0;
  for (U i = 0; i < bits; ++i) r |= (i < length && position + i < bits ? value >> (position + i) & 1 : sign) << i;
  return r;
}

U insert(U from, U into, U position, U length, unsigned bits) {
  position &= 255;
  length &= 255;
  for (U i = 0; i < length && position + i < bits; ++i)
    into = (into & ~(U{1} << (position + i))) | (from >> i & 1) << (position + i);
  return into;
}

void fields(std::vector<Form>* to, unsigned bits) {
  const std::string b = std::to_string(bits), l(1, letter(bits)), one = ":" + l;
  to->push_back(
      pure("popc.b" + b + " $0, $1;", "r" + one, [](Sources s) { return static_cast<U>(std::popcount(s[0])); }));
  to->push_back(pure("clz.b" + b + " $0, $1;", "r" + one,
                     [=](Sources s) { return static_cast<U>(std::countl_zero(s[0])) - (64 - bits); }));
  to->push_back(pure("brev.b" + b + " $0, $1;", l + one, [=](Sources s) {
    U r = 0;
    for (unsigned i = 0; i < bits; ++i) r |= (s[0] >> i & 1) << (bits - 1 - i);
    return r;
  }));
  to->push_back(pure("bfi.b" + b + " $0, $1, $2, $3, $4;", l + one + l + "rr",
                     [=](Sources s) { return insert(s[0], s[1], s[2], s[3], bits); }));
  for (bool is_signed : {false, true}) {
    const std::string t = (is_signed ? ".s" : ".u") + b;
    to->push_back(pure("bfe" + t + " $0, $1, $2, $3;", l + one + "rr",
                       [=](Sources s) { return extract(s[0], s[1], s[2], bits, is_signed); }));
    auto highest = [=](U v) {
      if (is_signed && extend(v, bits) < 0) v = low(~v, bits);
      return v ? 63 - std::countl_zero(v) : -1;
    };
    to->push_back(
        pure("bfind" + t + " $0, $1;", "r" + one, [=](Sources s) { return static_cast<U>(S{highest(s[0])}); }));
    to->push_back(pure("bfind.shiftamt" + t + " $0, $1;", "r" + one, [=](Sources s) {
      const int at = highest(s[0]);
      return at < 0 ? ~U{0} : bits - 1 - static_cast<U>(at);
    }));
  }
}

U permute(U a, U b, U selectors) {
  const U both = b << 32 | a;
  U r = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const U selector = selectors >> (4 * i) & 15, byte = both >> (8 * (selector & 7)) & 255;
    r |= (selector & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * i);
  }
  return r;
}

void bytes(std::vector<Form>* to) {
  to->push_back(pure("prmt.b32 $0, $1, $2, $3;", "r:rrr", [](Sources s) { return permute(s[0], s[1], s[2]); }));
  const std::pair<const char*, std::array<U, 4>> modes[] = {
      {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
      {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
      {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}}};
  for (const auto& [name, selectors] : modes)
    to->push_back(pure("prmt.b32." + std::string(name) + " $0, $1, $2, $3;", "r:rrr",
                       [selectors = selectors](Sources s) { return permute(s[0], s[1], selectors[s[2] & 3]); }));
  for (bool left : {false, true})
    for (bool wrap : {false, true})
      to->push_back(
          pure(std::string("shf.") + (left ? "l" : "r") + (wrap ? ".wrap" : ".clamp") + ".b32 $0, $1, $2, $3;", "r:rrr",
               [=](Sources s) {
                 const U n = wrap ? s[2] & 31 : std::min<U>(s[2], 32), both = s[1] << 32 | s[0];
                 return left ? both << n >> 32 : both >> n;
               }));
  for (int table : {0x1b, 0x96, 0xd8, 0xe8, 0x80, 0xfe, 0x3c})
    to->push_back(pure("lop3.b32 $0, $1, $2, $3, " + std::to_string(table) + ";", "r:rrr", [=](Sources s) {
      U r = 0;
      for (unsigned i = 0; i < 32; ++i)
        r |= (static_cast<U>(table) >> ((s[0] >> i & 1) * 4 + (s[1] >> i & 1) * 2 + (s[2] >> i & 1)) & 1) << i;
      return r;
    }));
  for (bool wrap : {false, true}) {
    const std::string mode = wrap ? ".wrap" : ".clamp";
    to->push_back(pure("bmsk" + mode + ".b32 $0, $1, $2;", "r:rr", [=](Sources s) {
      const U a = wrap ? s[0] & 31 : std::min<U>(s[0], 32), n = wrap ? s[1] & 31 : std::min<U>(s[1], 32);
      return ((U{1} << n) - 1) << a;
    }));
    for (bool is_signed : {false, true})
      to->push_back(pure("szext" + mode + (is_signed ? ".s32" : ".u32") + " $0, $1, $2;", "r:rr", [=](Sources s) {
        const U n = wrap ? s[1] & 31 : std::min<U>(s[1], 32);
        if (n == 0) return U{0};
        return is_signed ? static_cast<U>(extend(s[0], static_cast<unsigned>(n))) : low(s[0], static_cast<unsigned>(n));
      }));
  }
}

void products(std::vector<Form>* to) {
  for (bool left : {false, true})
    for (bool right : {false, true}) {
      const std::string t = std::string(left ? ".s32" : ".u32") + (right ? ".s32" : ".u32") + " $0, $1, $2, $3;";
      auto part = [](U v, unsigned at, unsigned bits, bool is_signed) {
        const U x = low(v >> (at * bits), bits);
        return is_signed ? extend(x, bits) : static_cast<S>(x);
      };
      to->push_back(pure("dp4a" + t, "r:rrr", [=](Sources s) {
        S sum = static_cast<S>(s[2]);
        for (unsigned i = 0; i < 4; ++i) sum += part(s[0], i, 8, left) * part(s[1], i, 8, right);
        return static_cast<U>(sum);
      }));
      for (unsigned half : {0u, 1u})
        to->push_back(pure(std::string("dp2a") + (half ? ".hi" : ".lo") + t, "r:rrr", [=](Sources s) {
          S sum = static_cast<S>(s[2]);
          for (unsigned i = 0; i < 2; ++i) sum += part(s[0], i, 16, left) * part(s[1], 2 * half + i, 8, right);
          return static_cast<U>(sum);
        }));
    }
}

void pairs(std::vector<Form>* to) {
  auto halves = [&](const std::string& name, std::function<U(U, U)> f) {
    to->push_back(pure(name + " $0, $1, $2;", "r:rr", [=](Sources s) {
      return low(f(low(s[0], 16), low(s[1], 16)), 16) | low(f(s[0] >> 16, s[1] >> 16), 16) << 16;
    }));
  };
  halves("add.u16x2", [](U a, U b) { return a + b; });
  halves("min.u16x2", [](U a, U b) { return std::min(a, b); });
  halves("max.s16x2", [](U a, U b) { return extend(a, 16) > extend(b, 16) ? a : b; });
  halves("min.s16x2", [](U a, U b) { return extend(a, 16) < extend(b, 16) ? a : b; });
  halves("max.relu.s16x2",
         [](U a, U b) { return static_cast<U>(std::max(S{0}, std::max(extend(a, 16), extend(b, 16)))); });
  to->push_back(pure("mov.b32 $0, {$1, $2};", "r:ee", [](Sources s) { return s[0] | s[1] << 16; }));
  to->push_back(pure("mov.b64 $0, {$1, $2};", "d:xx", [](Sources s) { return s[0] | s[1] << 32; }));
  to->push_back(pure("mov.b64 $0, {$1, $2, $3, $4};", "d:eeee",
                     [](Sources s) { return s[0] | s[1] << 16 | s[2] << 32 | s[3] << 48; }));
  to->push_back({"mov.b32 {$0, $1}, $2;", "hh:r", [](LaneMemory&, U* r, Sources s) {
                   r[0] = s[0];
                   r[1] = s[0] >> 16;
                 }});
  to->push_back({"mov.b64 {$0, $1}, $2;", "rr:d", [](LaneMemory&, U* r, Sources s) {
                   r[0] = s[0];
                   r[1] = s[0] >> 32;
                 }});
}

void predicates(std::vector<Form>* to) {
  to->push_back(pure("and.pred $0, $1, $2;", "p:pp", [](Sources s) { return s[0] & s[1]; }));
  to->push_back(pure("or.pred $0, $1, $2;", "p:pp", [](Sources s) { return s[0] | s[1]; }));
  to->push_back(pure("xor.pred $0, $1, $2;", "p:pp", [](Sources s) { return s[0] ^ s[1]; }));
  to->push_back(pure("not.pred $0, $1;", "p:p", [](Sources s) { return s[0] ^ 1; }));
  to->push_back(pure("mov.pred $0, $1;", "p:p", [](Sources s) { return s[0]; }));
}

}  // namespace

void add_bit_forms(std::vector<Form>* forms) {
  for (unsigned bits : {16u, 32u, 64u}) logic(forms, bits);
  for (unsigned bits : {32u, 64u}) fields(forms, bits);
  bytes(forms);
  products(forms);
  pairs(forms);
  predicates(forms);
}

}  // namespace bandsaw::soft::test
