// Loads and stores in bytes that a thread has alone, loads that all lanes do alike, atomics, special registers, and
// what lanes of a warp tell each other.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/unit/soft/random/form.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;

struct Place {
  const char* space;
  const char* base;
  std::array<std::byte, kAreaBytes> LaneMemory::* bytes;
};
constexpr Place kPlaces[] = {{"global", "%mem", &LaneMemory::global},
                             {"shared", "%smem", &LaneMemory::shared},
                             {"local", "%lmem", &LaneMemory::local}};

U load(const std::byte* from, unsigned bytes) {
  U v = 0;
  std::memcpy(&v, from, bytes);
  return v;
}

std::string wider(unsigned bits) { return bits <= 16 ? "hrd" : bits == 32 ? "rd" : "d"; }

void plain(std::vector<Form>* to, const Place& place) {
  const std::string space = place.space, base = std::string("[") + place.base + "+";
  const auto bytes = place.bytes;
  unsigned at = 0;
  for (unsigned bits : {8u, 16u, 32u, 64u})
    for (char l : wider(bits)) {
      const unsigned n = bits / 8;
      at = (at + 24) % kAreaBytes / n * n;
      const std::string b = std::to_string(bits), address = base + std::to_string(at) + "]";
      to->push_back({"st." + space + ".b" + b + " " + address + ", $0;", std::string(":") + l,
                     [=](LaneMemory& m, U*, Sources s) { std::memcpy(&(m.*bytes)[at], s, n); }});
      for (bool is_signed : {false, true})
        to->push_back({"ld." + space + (is_signed ? ".s" : ".u") + b + " $0, " + address + ";", std::string(1, l) + ":",
                       [=](LaneMemory& m, U* r, Sources) {
                         const U v = load(&(m.*bytes)[at], n);
                         r[0] = is_signed ? static_cast<U>(extend(v, bits)) : v;
                       }});
    }
}

void by_register(std::vector<Form>* to, const Place& place) {
  const auto bytes = place.bytes;
  const std::string head =
      "and.b32 %tr0, $R, 56; cvt.u64.u32 %td0, %tr0; add.u64 %td0, %td0, " + std::string(place.base);
  auto text = [&](const std::string& index, const std::string& rest) {
    std::string t = head + "; " + rest;
    t.replace(t.find("$R"), 2, index);
    return t;
  };
  const std::string space = place.space;
  to->push_back({text("$1", "ld." + space + ".s16 $0, [%td0+2];"), "r:r", [=](LaneMemory& m, U* r, Sources s) {
                   r[0] = static_cast<U>(extend(load(&(m.*bytes)[(s[0] & 56) + 2], 2), 16));
                 }});
  to->push_back({text("$1", "ld." + space + ".b64 $0, [%td0];"), "d:r",
                 [=](LaneMemory& m, U* r, Sources s) { r[0] = load(&(m.*bytes)[s[0] & 56], 8); }});
  to->push_back({text("$0", "st." + space + ".u8 [%td0+5], $1;"), ":rr",
                 [=](LaneMemory& m, U*, Sources s) { std::memcpy(&(m.*bytes)[(s[0] & 56) + 5], &s[1], 1); }});
  to->push_back({text("$0", "st." + space + ".b32 [%td0+4], $1;"), ":rr",
                 [=](LaneMemory& m, U*, Sources s) { std::memcpy(&(m.*bytes)[(s[0] & 56) + 4], &s[1], 4); }});
}

void vectors(std::vector<Form>* to, const Place& place) {
  const auto bytes = place.bytes;
  const std::string space = place.space, base = std::string(place.base);
  auto add = [&](unsigned n, unsigned bits, unsigned at, bool is_signed) {
    const std::string l(n, letter(bits)),
        t = ".v" + std::to_string(n) + (is_signed ? ".s" : ".u") + std::to_string(bits);
    std::string list = "{$0";
    for (unsigned i = 1; i < n; ++i) list += ", $" + std::to_string(i);
    list += "}";
    const std::string address = "[" + base + "+" + std::to_string(at) + "]";
    to->push_back({"ld." + space + t + " " + list + ", " + address + ";", l + ":", [=](LaneMemory& m, U* r, Sources) {
                     for (unsigned i = 0; i < n; ++i) {
                       const U v = load(&(m.*bytes)[at + i * bits / 8], bits / 8);
                       r[i] = is_signed ? static_cast<U>(extend(v, bits)) : v;
                     }
                   }});
    // Vectors of registers hold no constants.
    const std::string sources(n, bits <= 16 ? 'e' : bits == 32 ? 'x' : 'y');
    to->push_back(
        {"st." + space + t + " " + address + ", " + list + ";", ":" + sources, [=](LaneMemory& m, U*, Sources s) {
           for (unsigned i = 0; i < n; ++i) std::memcpy(&(m.*bytes)[at + i * bits / 8], &s[i], bits / 8);
         }});
  };
  add(2, 8, 6, true);
  add(4, 8, 12, false);
  add(2, 16, 20, true);
  add(4, 16, 24, false);
  add(2, 32, 40, true);
  add(4, 32, 16, false);
  add(2, 64, 32, true);
}

// What all lanes read: at a constant, and at an address that differs.
void shared_table(std::vector<Form>* to) {
  for (unsigned bits : {8u, 16u, 32u, 64u}) {
    const unsigned n = bits / 8, at = (bits * 5 / 8 + 16) / n * n;
    const std::string b = std::to_string(bits), l(1, letter(bits));
    to->push_back({"ld.global.u" + b + " $0, [%table+" + std::to_string(at) + "];", l + ":",
                   [=](LaneMemory& m, U* r, Sources) { r[0] = load(m.table + at, n); }});
    to->push_back({"ld.param.s" + b + " $0, [table_bytes+" + std::to_string(at) + "];", l + ":",
                   [=](LaneMemory& m, U* r, Sources) { r[0] = static_cast<U>(extend(load(m.table + at, n), bits)); }});
    to->push_back({"and.b32 %tr0, $1, 15; mul.wide.u32 %td0, %tr0, 8; add.u64 %td0, %td0, %table; ld.global.nc.s" + b +
                       " $0, [%td0];",
                   l + ":r", [=](LaneMemory& m, U* r, Sources s) {
                     r[0] = static_cast<U>(extend(load(m.table + (s[0] & 15) * 8, n), bits));
                   }});
  }
}

void atomics(std::vector<Form>* to, const Place& place) {
  const std::pair<const char*, U (*)(U, U, unsigned)> all[] = {
      {"add.u", [](U a, U b, unsigned) { return a + b; }},
      {"exch.b", [](U, U b, unsigned) { return b; }},
      {"and.b", [](U a, U b, unsigned) { return a & b; }},
      {"or.b", [](U a, U b, unsigned) { return a | b; }},
      {"xor.b", [](U a, U b, unsigned) { return a ^ b; }},
      {"min.u", [](U a, U b, unsigned) { return std::min(a, b); }},
      {"max.s", [](U a, U b, unsigned n) { return extend(a, n) > extend(b, n) ? a : b; }},
      {"inc.u", [](U a, U b, unsigned) { return a >= b ? 0 : a + 1; }},
      {"dec.u", [](U a, U b, unsigned) { return a == 0 || a > b ? b : a - 1; }}};
  const auto bytes = place.bytes;
  const std::string head = std::string(place.space) + ".", base = std::string(" [") + place.base + "+";
  for (unsigned bits : {32u, 64u})
    for (const auto& [name, f] : all) {
      const bool wraps = name[0] == 'i' || name[0] == 'd', exchanges = name[0] == 'e';
      if (wraps && bits == 64) continue;
      const std::string l(1, letter(bits)), t = head + name + std::to_string(bits) + " ",
                                            at = bits == 32 ? "12]" : "24]";
      const unsigned offset = bits == 32 ? 12 : 24;
      auto change = [=, f = f](LaneMemory& m, U operand) {
        const U before = load(&(m.*bytes)[offset], bits / 8), after = f(before, operand, bits);
        std::memcpy(&(m.*bytes)[offset], &after, bits / 8);
        return before;
      };
      to->push_back({"atom." + t + "$0," + base + at + ", $1;", l + ":" + l,
                     [=](LaneMemory& m, U* r, Sources s) { r[0] = change(m, s[0]); }});
      if (!exchanges)
        to->push_back(
            {"red." + t + base + at + ", $0;", ":" + l, [=](LaneMemory& m, U*, Sources s) { change(m, s[0]); }});
    }
  to->push_back({"atom." + head + "cas.b32 $0," + base + "12], $1, $2;", "r:rr", [=](LaneMemory& m, U* r, Sources s) {
                   r[0] = load(&(m.*bytes)[12], 4);
                   if (r[0] == s[0]) std::memcpy(&(m.*bytes)[12], &s[1], 4);
                 }});
}

void special_registers(std::vector<Form>* to) {
  const std::pair<const char*, U (*)(const LaneMemory&)> all[] = {
      {"%tid.x", [](const LaneMemory& m) -> U { return m.thread; }},
      {"%tid.y", [](const LaneMemory&) -> U { return 0; }},
      {"%ntid.x", [](const LaneMemory& m) -> U { return m.threads; }},
      {"%ntid.z", [](const LaneMemory&) -> U { return 1; }},
      {"%ctaid.x", [](const LaneMemory& m) -> U { return m.block; }},
      {"%ctaid.y", [](const LaneMemory&) -> U { return 0; }},
      {"%nctaid.x", [](const LaneMemory& m) -> U { return m.blocks; }},
      {"%laneid", [](const LaneMemory& m) -> U { return m.thread % 32; }},
      {"%lanemask_eq", [](const LaneMemory& m) -> U { return U{1} << m.thread % 32; }},
      {"%lanemask_lt", [](const LaneMemory& m) -> U { return (U{1} << m.thread % 32) - 1; }},
      {"%lanemask_le", [](const LaneMemory& m) -> U { return (U{2} << m.thread % 32) - 1; }},
      {"%lanemask_gt", [](const LaneMemory& m) -> U { return low(~((U{2} << m.thread % 32) - 1), 32); }},
      {"%lanemask_ge", [](const LaneMemory& m) -> U { return low(~((U{1} << m.thread % 32) - 1), 32); }}};
  for (const auto& [name, f] : all) {
    const std::string n = name;
    auto add = [&](const std::string& text, char d, unsigned bits, bool is_signed) {
      to->push_back({text + " $0, " + n + ";", std::string(1, d) + ":", [=, f = f](LaneMemory& m, U* r, Sources) {
                       r[0] = is_signed ? static_cast<U>(extend(f(m), bits)) : low(f(m), bits);
                     }});
    };
    add("mov.u32", 'r', 32, false);
    add("cvt.u16.u32", 'h', 16, false);
    add("cvt.s64.s32", 'd', 32, true);
    add("cvt.u64.u32", 'd', 32, false);
    if (n[1] == 'l') continue;
    add("mov.u16", 'h', 16, false);
    add("cvt.u32.u16", 'r', 16, false);
    add("cvt.s64.s16", 'd', 16, true);
    add("cvt.s32.s8", 'r', 8, true);
  }
}

}  // namespace

void add_memory_forms(std::vector<Form>* forms) {
  for (const Place& place : kPlaces) {
    plain(forms, place);
    by_register(forms, place);
    vectors(forms, place);
  }
  atomics(forms, kPlaces[0]);
  atomics(forms, kPlaces[1]);
  shared_table(forms);
  special_registers(forms);
}

std::vector<CrossForm> cross_forms() {
  using All = std::array<std::array<U, 3>, 32>;
  std::vector<CrossForm> forms;
  auto add = [&](const std::string& text, const std::string& operands, std::function<U(unsigned, const All&)> f) {
    forms.push_back({text, operands, std::move(f)});
  };
  auto ballot = [](const All& s) {
    U r = 0;
    for (unsigned i = 0; i < 32; ++i) r |= (s[i][0] & 1) << i;
    return r;
  };
  add("vote.sync.all.pred $0, $1, -1;", "p:p", [=](unsigned, const All& s) -> U { return ballot(s) == 0xffffffff; });
  add("vote.sync.any.pred $0, $1, -1;", "p:p", [=](unsigned, const All& s) -> U { return ballot(s) != 0; });
  add("vote.sync.uni.pred $0, $1, -1;", "p:p",
      [=](unsigned, const All& s) -> U { return ballot(s) == 0 || ballot(s) == 0xffffffff; });
  add("vote.sync.ballot.b32 $0, $1, -1;", "r:p", [=](unsigned, const All& s) { return ballot(s); });
  add("shfl.sync.idx.b32 $0, $1, $2, 31, -1;", "r:rr",
      [](unsigned lane, const All& s) { return s[s[lane][1] & 31][0]; });
  add("shfl.sync.bfly.b32 $0, $1, 5, 31, -1;", "r:r", [](unsigned lane, const All& s) { return s[lane ^ 5][0]; });
  add("shfl.sync.up.b32 $0, $1, 3, 0, -1;", "r:r",
      [](unsigned lane, const All& s) { return s[lane < 3 ? lane : lane - 3][0]; });
  add("shfl.sync.down.b32 $0, $1, 2, 0x181f, -1;", "r:r",  // in eight lanes each
      [](unsigned lane, const All& s) { return s[lane % 8 + 2 > 7 ? lane : lane + 2][0]; });
  add("match.any.sync.b32 $0, $1, -1;", "r:r", [](unsigned lane, const All& s) {
    U r = 0;
    for (unsigned i = 0; i < 32; ++i) r |= U{s[i][0] == s[lane][0]} << i;
    return r;
  });
  auto reduce = [&](const std::string& op, U (*f)(U, U)) {
    add("redux.sync." + op + " $0, $1, -1;", "r:r", [f](unsigned, const All& s) {
      U r = s[0][0];
      for (unsigned i = 1; i < 32; ++i) r = f(r, s[i][0]);
      return r;
    });
  };
  reduce("add.u32", [](U a, U b) { return a + b; });
  reduce("min.s32", [](U a, U b) { return extend(a, 32) < extend(b, 32) ? a : b; });
  reduce("max.u32", [](U a, U b) { return std::max(a, b); });
  reduce("and.b32", [](U a, U b) { return a & b; });
  reduce("xor.b32", [](U a, U b) { return a ^ b; });
  return forms;
}

}  // namespace bandsaw::soft::test
