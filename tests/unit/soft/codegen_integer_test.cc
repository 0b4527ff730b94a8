// Integer, bit, comparison and video instructions against host arithmetic.
#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/soft/codegen_cases.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
uint32_t u(U v) { return static_cast<uint32_t>(v); }
int32_t s(U v) { return static_cast<int32_t>(v); }
int64_t l(U v) { return static_cast<int64_t>(v); }
U saturate(int64_t v) { return u(static_cast<U>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX))); }

// What lanes that are not chosen keep is an operand of the logic, and another operand is in memory.
TEST(CodegenInteger, LogicOfThreeOperandsUnderAPredicate) {
  constexpr U kSign = U{1} << 63, kSign32 = U{1} << 31;
  check_cases(
      {
          {"mov.b64 %D, %A; setp.lt.s32 %q, %c, 0; @%q copysign.f64 %D, %B, %D;", 'D',
           [](U a, U b, U c) -> U { return s(c) < 0 ? (a & ~kSign) | (b & kSign) : a; }},
          {"mov.b64 %D, %A; setp.lt.s32 %q, %c, 0; @%q copysign.f64 %D, %D, %B;", 'D',
           [](U a, U b, U c) -> U { return s(c) < 0 ? (b & ~kSign) | (a & kSign) : a; }},
          {"mov.b32 %d, %a; setp.lt.s32 %q, %c, 0; @%q copysign.f32 %d, %b, %d;", 'd',
           [](U a, U b, U c) -> U { return u(s(c) < 0 ? (a & ~kSign32) | (b & kSign32) : a); }},
          {"mov.b32 %d, %a; setp.lt.s32 %q, %c, 0; @%q copysign.f32 %d, %d, %b;", 'd',
           [](U a, U b, U c) -> U { return u(s(c) < 0 ? (b & ~kSign32) | (a & kSign32) : a); }},
      },
      integer_values(), CompileOptions::Passes::kFew);  // registers stay in memory
}

TEST(CodegenInteger, Arithmetic) {
  check_cases(
      {
          {"add.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(a + b); }},
          {"add.sat.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return saturate(int64_t{s(a)} + s(b)); }},
          {"sub.sat.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return saturate(int64_t{s(a)} - s(b)); }},
          {"sub.u64 %D, %A, %B;", 'D', [](U a, U b, U) -> U { return a - b; }},
          {"add.u16 %hd, %ha, %hb;", 'h', [](U a, U b, U) -> U { return uint16_t(a + b); }},
          {"add.u16x2 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return uint16_t(a + b) | u((a >> 16) + (b >> 16)) << 16; }},
          {"mul.lo.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(a * b); }},
          {"mul.hi.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(static_cast<U>((int64_t{s(a)} * s(b)) >> 32)); }},
          {"mul.hi.u32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return (U{u(a)} * u(b)) >> 32; }},
          {"mul.hi.u64 %D, %A, %B;", 'D',
           [](U a, U b, U) -> U { return static_cast<U>((static_cast<unsigned __int128>(a) * b) >> 64); }},
          {"mul.hi.s64 %D, %A, %B;", 'D',
           [](U a, U b, U) -> U { return static_cast<U>((static_cast<__int128>(l(a)) * l(b)) >> 64); }},
          {"mul.wide.s32 %D, %a, %b;", 'D', [](U a, U b, U) -> U { return static_cast<U>(int64_t{s(a)} * s(b)); }},
          {"mul.wide.u16 %d, %ha, %hb;", 'd', [](U a, U b, U) -> U { return u(uint32_t{uint16_t(a)} * uint16_t(b)); }},
          {"mul24.lo.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(static_cast<U>(int64_t{s(a << 8) >> 8} * (s(b << 8) >> 8))); }},
          {"mul24.hi.u32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u((a & 0xffffff) * (b & 0xffffff) >> 16); }},
          {"mad.lo.s32 %d, %a, %b, %c;", 'd', [](U a, U b, U c) -> U { return u(a * b + c); }},
          {"mad.hi.sat.s32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return saturate(((int64_t{s(a)} * s(b)) >> 32) + s(c)); }},
          {"mad.wide.u32 %D, %a, %b, %C;", 'D', [](U a, U b, U c) -> U { return U{u(a)} * u(b) + c; }},
          {"div.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(b) == 0 ? 0xffffffff : u(static_cast<U>(int64_t{s(a)} / s(b))); }},
          {"rem.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(b) == 0 ? 0xffffffff : u(static_cast<U>(int64_t{s(a)} % s(b))); }},
          {"div.u64 %D, %A, %B;", 'D', [](U a, U b, U) -> U { return b == 0 ? ~U{0} : a / b; }},
          {"rem.u32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(b) == 0 ? 0xffffffff : u(a) % u(b); }},
          {"abs.s32 %d, %a;", 'd', [](U a, U, U) -> U { return s(a) < 0 ? u(0 - a) : u(a); }},
          {"neg.s64 %D, %A;", 'D', [](U a, U, U) -> U { return 0 - a; }},
          {"min.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return s(a) < s(b) ? u(a) : u(b); }},
          {"max.relu.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(static_cast<U>(std::max(0, std::max(s(a), s(b))))); }},
          {"max.u64 %D, %A, %B;", 'D', [](U a, U b, U) -> U { return std::max(a, b); }},
          {"sad.s32 %d, %a, %b, %c;", 'd', [](U a, U b, U c) -> U { return u(c + (s(a) < s(b) ? b - a : a - b)); }},
          {"add.cc.u32 %d, %a, %b; addc.u32 %e, %c, 0; cvt.u64.u32 %D, %d; cvt.u64.u32 %E, %e; shl.b64 %E, %E, 32; "
           "or.b64 %D, %D, %E;",
           'D', [](U a, U b, U c) -> U { return (U{u(a)} + u(b)) + (U{u(c)} << 32); }},
          {"sub.cc.u32 %d, %a, %b; subc.u32 %e, %c, 0; mov.b64 %D, {%d, %e};", 'D',
           [](U a, U b, U c) -> U { return U{u(a - b)} | U{u(c - (u(a) < u(b)))} << 32; }},
          // Both read the flag as ptxas has it: a carry, of the complement where there is a subtraction.
          {"sub.cc.u32 %d, %a, %b; addc.u32 %e, %c, 0; mov.b64 %D, {%d, %e};", 'D',
           [](U a, U b, U c) -> U { return U{u(a - b)} | U{u(c + (u(a) >= u(b)))} << 32; }},
          {"add.cc.u32 %d, %a, %b; subc.u32 %e, %c, 0; mov.b64 %D, {%d, %e};", 'D',
           [](U a, U b, U c) -> U { return U{u(a + b)} | U{u(c - (u(a + b) >= u(a)))} << 32; }},
          {"mad.lo.cc.u32 %d, %a, %b, %c; madc.hi.u32 %e, %a, %b, 0; mov.b64 %D, {%d, %e};", 'D',
           [](U a, U b, U c) -> U { return U{u(a)} * u(b) + u(c); }},
      },
      integer_values());
}

U field_mask(U n) { return n >= 64 ? ~U{0} : (U{1} << n) - 1; }

TEST(CodegenInteger, Bits) {
  check_cases(
      {
          {"shl.b32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(b) > 31 ? 0 : u(a << u(b)); }},
          {"shr.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(static_cast<U>(int64_t{s(a) >> std::min(31u, u(b))})); }},
          {"shr.u64 %D, %A, %b;", 'D', [](U a, U b, U) -> U { return u(b) > 63 ? 0 : a >> u(b); }},
          {"shl.b16 %hd, %ha, %b;", 'h', [](U a, U b, U) -> U { return u(b) > 15 ? 0 : uint16_t(a << u(b)); }},
          {"shf.l.wrap.b32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return u(((U{u(b)} << 32 | u(a)) << (c & 31)) >> 32); }},
          {"shf.r.clamp.b32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return u((U{u(b)} << 32 | u(a)) >> std::min(32u, u(c))); }},
          {"shf.l.clamp.b32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return u(((U{u(b)} << 32 | u(a)) << std::min(32u, u(c))) >> 32); }},
          {"popc.b64 %d, %A;", 'd', [](U a, U, U) -> U { return static_cast<U>(std::popcount(a)); }},
          {"clz.b32 %d, %a;", 'd', [](U a, U, U) -> U { return static_cast<U>(std::countl_zero(u(a))); }},
          {"bfind.s32 %d, %a;", 'd',
           [](U a, U, U) -> U {
             uint32_t v = s(a) < 0 ? ~u(a) : u(a);
             return v ? 31u - std::countl_zero(v) : 0xffffffffu;
           }},
          {"bfind.shiftamt.u64 %d, %A;", 'd',
           [](U a, U, U) -> U { return a ? static_cast<U>(std::countl_zero(a)) : 0xffffffffu; }},
          {"brev.b32 %d, %a;", 'd',
           [](U a, U, U) -> U {
             U r = 0;
             for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
             return r;
           }},
          {"bfe.u32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             b &= 255;
             c &= 255;
             return b > 31 ? 0 : u(u(a) >> b & field_mask(c));
           }},
          {"bfe.s32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             int p = b & 255, n = c & 255;
             U sign = n == 0 ? 0 : u(a) >> std::min(p + n - 1, 31) & 1, r = 0;
             for (int i = 0; i < 32; ++i) r |= (i < n && p + i <= 31 ? u(a) >> (p + i) & 1 : sign) << i;
             return r;
           }},
          {"bfi.b32 %d, %a, %b, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             U p = b & 255, n = c & 255, r = u(b);
             for (U i = 0; i < n && p + i < 32; ++i) r = (r & ~(U{1} << (p + i))) | (a >> i & 1) << (p + i);
             return u(r);
           }},
          {"bmsk.clamp.b32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U { return u(a) > 31 ? 0 : u(field_mask(std::min(u(b), 32u)) << u(a)); }},
          {"szext.clamp.s32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U {
             uint32_t n = u(b);
             return n >= 32 ? u(a) : n == 0 ? 0 : u(static_cast<U>(int64_t{s(a << (32 - n)) >> (32 - n)}));
           }},
          {"lop3.b32 %d, %a, %b, %c, 0xd8;", 'd',
           [](U a, U b, U c) -> U {
             U r = 0;
             for (int i = 0; i < 32; ++i)
               r |= (0xd8 >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & U{1}) << i;
             return r;
           }},
          {"prmt.b32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             U both = U{u(b)} << 32 | u(a), r = 0;
             for (int i = 0; i < 4; ++i) {
               U sel = c >> (4 * i) & 15, v = both >> (8 * (sel & 7)) & 255;
               if (sel & 8) v = v & 128 ? 255 : 0;
               r |= v << (8 * i);
             }
             return r;
           }},
          {"prmt.b32.ecr %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             U both = U{u(b)} << 32 | u(a), r = 0;
             for (U i = 0; i < 4; ++i) r |= (both >> (8 * std::min(i, c & 3)) & 255) << (8 * i);
             return r;
           }},
          {"dp4a.s32.u32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             int64_t r = s(c);
             for (int i = 0; i < 4; ++i) r += int64_t{int8_t(a >> (8 * i))} * uint8_t(b >> (8 * i));
             return u(static_cast<U>(r));
           }},
          {"dp2a.hi.s32.s32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             int64_t r = s(c);
             for (int i = 0; i < 2; ++i) r += int64_t{int16_t(a >> (16 * i))} * int8_t(b >> (16 + 8 * i));
             return u(static_cast<U>(r));
           }},
          {"cnot.b32 %d, %a;", 'd', [](U a, U, U) -> U { return u(a) == 0; }},
          {"xor.b64 %D, %A, %B;", 'D', [](U a, U b, U) -> U { return a ^ b; }},
          {"fns.b32 %d, %a, 0, 3;", 'd',
           [](U a, U, U) -> U {
             int n = 0;
             for (U i = 0; i < 32; ++i)
               if (a >> i & 1 && ++n == 3) return i;
             return 0xffffffffu;
           }},
      },
      integer_values());
}

TEST(CodegenInteger, CompareAndSelect) {
  check_cases(
      {
          {"setp.lt.s32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return s(a) < s(b); }},
          {"setp.lt.u32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return u(a) < u(b); }},
          {"setp.hs.u64 %p, %A, %B;", 'p', [](U a, U b, U) -> U { return a >= b; }},
          {"setp.ne.u32 %r, %c, 0; setp.ge.and.s32 %p|%q, %a, %b, %r;", 'p',
           [](U a, U b, U c) -> U { return s(a) >= s(b) && u(c) != 0; }},
          {"setp.ne.u32 %r, %c, 0; setp.ge.xor.s32 %q|%p, %a, %b, !%r;", 'p',
           [](U a, U b, U c) -> U { return !(s(a) >= s(b)) != !(u(c) != 0); }},
          {"set.gt.u32.s32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return s(a) > s(b) ? 0xffffffffu : 0; }},
          {"set.gt.f32.u32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(a) > u(b) ? 0x3f800000u : 0; }},
          {"slct.u32.s32 %d, %a, %b, %c;", 'd', [](U a, U b, U c) -> U { return s(c) >= 0 ? u(a) : u(b); }},
          {"setp.eq.u32 %p, %a, 0; @%p bra L1; mov.u32 %d, %b; bra L2; L1: mov.u32 %d, %c; L2:", 'd',
           [](U a, U b, U c) -> U { return u(a) == 0 ? u(c) : u(b); }},
          {".reg .v2 .u32 %v; .reg .v4 .u32 %w; mov.v2.u32 %v, {%a, %b}; mov.v2.u32 %v, {%v.y, %v.x}; "
           "mov.v4.u32 %w, {%v.x, %c, %v.g, 7}; sub.u32 %d, %w.x, %w.z; add.u32 %d, %d, %w.a;",
           'd', [](uint64_t a, uint64_t b, uint64_t) { return uint32_t(b) - uint32_t(a) + 7; }},
          {"mov.u32 %d, 5; setp.eq.u32 %p, %a, 1; @!%p add.u32 %d, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return u(a) == 1 ? 5 : u(b + c); }},
          {"and.b32 %d, %a, 15; mov.u32 %e, 0; L3: add.u32 %e, %e, %d; setp.eq.u32 %p, %d, 0; @%p bra L4; sub.u32 %d, "
           "%d, 1; bra L3; L4: mov.u32 %d, %e;",
           'd',
           [](U a, U, U) -> U {
             U n = a & 15;
             return n * (n + 1) / 2;
           }},
          {"and.b32 %d, %a, 3; T: .branchtargets A0, A1, A2, A3; brx.idx %d, T; A0: mov.u32 %d, 7; bra AE; A1: mov.u32 "
           "%d, %b; bra AE; A2: mov.u32 %d, %c; A3: add.u32 %d, %d, 1; AE:",
           'd',
           [](U a, U b, U c) -> U {
             switch (a & 3) {
               case 0:
                 return 7;
               case 1:
                 return u(b);
               case 2:
                 return u(c + 1);
               default:
                 return 4;
             }
           }},
      },
      integer_values());
}

U byte_saturate(int64_t v, bool sign) {
  return static_cast<U>(sign ? std::clamp<int64_t>(v, -128, 127) : std::clamp<int64_t>(v, 0, 255)) & 0xff;
}

TEST(CodegenInteger, Video) {
  check_cases(
      {
          {"vadd.s32.s32.u32.sat %d, %a.b1, %b.h0;", 'd',
           [](U a, U b, U) -> U { return saturate(int64_t{int8_t(a >> 8)} + uint16_t(b)); }},
          {"vsub.u32.u32.u32.add %d, %a.b0, %b.b3, %c;", 'd',
           [](U a, U b, U c) -> U { return u(uint8_t(a) - U{uint8_t(b >> 24)} + c); }},
          {"vabsdiff.u32.s32.s32.max %d, %a.h1, %b.h0, %c;", 'd',
           [](U a, U b, U c) -> U {
             return std::max(u(static_cast<U>(std::abs(int64_t{int16_t(a >> 16)} - int16_t(b)))), u(c));
           }},
          {"vmin.s32.s32.s32 %d.b2, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             return (u(c) & 0xff00ffffu) | (u(static_cast<U>(int64_t{std::min(s(a), s(b))})) & 255) << 16;
           }},
          {"vshl.u32.u32.u32.clamp %d, %a, %b;", 'd', [](U a, U b, U) -> U { return u(b) >= 32 ? 0 : u(a << u(b)); }},
          {"vset.s32.s32.lt %d, %a.b0, %b.b0;", 'd', [](U a, U b, U) -> U { return int8_t(a) < int8_t(b); }},
          {"vmad.u32.u32.u32.shr7 %d, %a.h0, %b.h0, %c;", 'd',
           [](U a, U b, U c) -> U { return u(static_cast<U>((int64_t{uint16_t(a)} * uint16_t(b) + s(c)) >> 7)); }},
          {"vadd4.s32.s32.s32.sat %d, %a, %b, %c;", 'd',
           [](U a, U b, U) -> U {
             U r = 0;
             for (int i = 0; i < 4; ++i)
               r |= byte_saturate(int64_t{int8_t(a >> 8 * i)} + int8_t(b >> 8 * i), true) << 8 * i;
             return r;
           }},
          {"vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             U r = c;
             for (int i = 0; i < 4; ++i)
               r += static_cast<U>(std::abs(int(uint8_t(a >> 8 * i)) - int(uint8_t(b >> 8 * i))));
             return u(r);
           }},
          {"vmax2.u32.u32.u32 %d.h1, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U { return (c & 0xffff) | U{std::max(uint16_t(a >> 16), uint16_t(b >> 16))} << 16; }},
          {"vset4.u32.u32.ne %d, %a, %b, %c;", 'd',
           [](U a, U b, U) -> U {
             U r = 0;
             for (int i = 0; i < 4; ++i) r |= U{uint8_t(a >> 8 * i) != uint8_t(b >> 8 * i)} << 8 * i;
             return r;
           }},
      },
      integer_values());
}

TEST(CodegenInteger, Conversions) {
  check_cases(
      {
          {"cvt.s64.s32 %D, %a;", 'D', [](U a, U, U) -> U { return static_cast<U>(int64_t{s(a)}); }},
          {"cvt.s32.s8 %d, %a;", 'd', [](U a, U, U) -> U { return u(static_cast<U>(int64_t{int8_t(a)})); }},
          {"cvt.sat.u8.s32 %d, %a;", 'd', [](U a, U, U) -> U { return static_cast<U>(std::clamp(s(a), 0, 255)); }},
          {"cvt.sat.s32.u64 %d, %A;", 'd', [](U a, U, U) -> U { return std::min<U>(a, INT32_MAX); }},
          {"cvt.sat.s16.s64 %d, %A;", 'd',
           [](U a, U, U) -> U { return u(static_cast<U>(std::clamp<int64_t>(l(a), -32768, 32767))); }},
          {"cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) -> U {
             return u(c << 16) | static_cast<U>(std::clamp(s(a), 0, 255)) << 8 |
                    static_cast<U>(std::clamp(s(b), 0, 255));
           }},
          {"cvt.rn.f32.s64 %d, %A;", 'd',
           [](U a, U, U) -> U { return std::bit_cast<uint32_t>(static_cast<float>(l(a))); }},
          {"cvt.rn.f64.u64 %D, %A;", 'D', [](U a, U, U) -> U { return std::bit_cast<U>(static_cast<double>(a)); }},
      },
      integer_values());
}

}  // namespace
}  // namespace bandsaw::soft::test
