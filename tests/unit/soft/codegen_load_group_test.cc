// Loads that follow one another from one register: of rows and columns of tiles, of weights that all lanes read, and of
// places that are neither; with stores, barriers and other addresses between them.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test::load_group {
namespace {

constexpr uint32_t kWords = 1024;
using Place = std::function<uint32_t(uint32_t lane)>;  // bytes

// Word i of `tile` is 3 * i + 1. %s: the tile; %r0: the lane; what is in %r1 comes out.
const std::string kHead = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
  .shared .align 16 .b8 tile[4096];
  .reg .b32 %r<30>; .reg .b64 %d<3>; .reg .b32 %s, %i, %t; .reg .pred %p, %q;
  ld.param.u64 %d1, [out]; mov.u32 %r0, %laneid; mad.wide.u32 %d1, %r0, 4, %d1;
  mov.u32 %s, tile; mov.u32 %i, %r0;
fill:
  mad.lo.u32 %t, %i, 4, %s; mad.lo.u32 %r2, %i, 3, 1; st.shared.u32 [%t], %r2; add.u32 %i, %i, 32;
  setp.lt.u32 %p, %i, 1024; @%p bra fill;
  bar.sync 0; mov.u32 %r1, 0;
)";

uint32_t run(const std::string& code, std::vector<uint32_t>* found) {
  reset_memory();
  Kernels kernels(kHead + code + "  st.global.u32 [%d1], %r1;\n  ret;\n}\n");
  EXPECT_TRUE(kernels.ok()) << kernels.log();
  auto* out = array<uint32_t>(32 + kWords);
  for (uint32_t i = 0; i < kWords; ++i) out[32 + i] = 3 * i + 1;
  const uint32_t fault = kernels.launch("k", {}, out).fault;
  found->assign(out, out + 32);
  return fault;
}

// %r1 = 5 * %r1 + the word, for each offset.
std::string sum_of(const std::vector<uint32_t>& offsets) {
  std::string code;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const std::string to = "%r" + std::to_string(10 + i);
    code +=
        "  ld.shared.u32 " + to + ", [%s+" + std::to_string(offsets[i]) + "];\n  mad.lo.u32 %r1, %r1, 5, " + to + ";\n";
  }
  return code;
}

uint32_t sum_at(uint32_t place, const std::vector<uint32_t>& offsets) {
  uint32_t sum = 0;
  for (const uint32_t offset : offsets) sum = sum * 5 + (place + offset) / 4 * 3 + 1;
  return sum;
}

TEST(CodegenLoadGroup, WordsLieWhereTheyAre) {
  const struct {
    const char* code;  // adds to %s
    Place place;
  } places[] = {
      {"mad.lo.u32 %s, %r0, 4, %s;", [](uint32_t l) { return 4 * l; }},                            // a row
      {"shr.u32 %t, %r0, 4; mad.lo.u32 %s, %t, 64, %s;", [](uint32_t l) { return l / 16 * 64; }},  // a column's words
      {"and.b32 %t, %r0, 15; mad.lo.u32 %s, %t, 4, %s;", [](uint32_t l) { return l % 16 * 4; }},   // two halves alike
      {"xor.b32 %t, %r0, 5; mad.lo.u32 %s, %t, 4, %s;", [](uint32_t l) { return (l ^ 5) * 4; }},   // behind the first
      {"mad.lo.u32 %s, %r0, 36, %s;", [](uint32_t l) { return 36 * l; }},                          // far apart
      {"mul.lo.u32 %t, %r0, 1; add.u32 %s, %s, 8;", [](uint32_t) { return 8; }}};                  // one place
  const std::vector<uint32_t> offsets = {0, 4, 8, 64, 12, 128, 1024, 1536, 16, 20, 0, 2048};
  for (const auto& one : places) {
    std::vector<uint32_t> found;
    ASSERT_EQ(run(std::string(one.code) + "\n" + sum_of(offsets), &found), 0u) << one.code;
    for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], sum_at(one.place(l), offsets)) << one.code << " " << l;
  }
}

TEST(CodegenLoadGroup, SomeLanesAreElsewhere) {
  const std::vector<uint32_t> offsets = {0, 4, 8, 12};
  std::vector<uint32_t> found;
  ASSERT_EQ(
      run("mad.lo.u32 %s, %r0, 4, %s; setp.gt.u32 %q, %r0, 19; @%q bra end;\n" + sum_of(offsets) + "end:\n", &found),
      0u);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], l > 19 ? 0 : sum_at(4 * l, offsets)) << l;
  ASSERT_EQ(
      run("mad.lo.u32 %s, %r0, 4, %s; setp.gt.u32 %q, %r0, 19; @%q add.u32 %s, %s, 900;\n" + sum_of(offsets), &found),
      0u);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], sum_at(4 * l + (l > 19 ? 900 : 0), offsets)) << l;
}

TEST(CodegenLoadGroup, WhatIsStoredBetweenIsSeen) {
  const std::string address = "mad.lo.u32 %s, %r0, 4, %s;\n";
  std::vector<uint32_t> found;
  for (const char* between :
       {"st.shared.u32 [%s+128], 7;", "mov.u32 %t, %s; st.shared.u32 [%t+128], 7;",
        "bar.sync 0; st.shared.u32 [%s+128], 7; bar.sync 0;", "atom.shared.exch.b32 %t, [%s+128], 7;"}) {
    ASSERT_EQ(run(address + "ld.shared.u32 %r5, [%s];\n" + between +
                      "\nld.shared.u32 %r6, [%s+128];\nld.shared.u32 %r7, "
                      "[%s+256];\nadd.u32 %r1, %r5, %r6; add.u32 %r1, %r1, %r7;\n",
                  &found),
              0u);
    for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], 3 * l + 1 + 7 + 3 * (l + 64) + 1) << between << l;
  }
}

TEST(CodegenLoadGroup, ARegisterThatChangesIsAnotherPlace) {
  const std::string address = "mad.lo.u32 %s, %r0, 4, %s;\n";
  std::vector<uint32_t> found;
  ASSERT_EQ(run(address + "ld.shared.u32 %r5, [%s];\nadd.u32 %s, %s, 64;\nld.shared.u32 %r6, [%s];\n"
                          "add.u32 %r1, %r5, %r6;\n",
                &found),
            0u);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], 3 * l + 1 + 3 * (l + 16) + 1) << l;
  // The load itself changes it: word l leads to word 3 * l + 1.
  ASSERT_EQ(run(address + "ld.shared.u32 %r5, [%s+4];\nld.shared.u32 %s, [%s];\nshl.b32 %s, %s, 2; mov.u32 %t, tile;\n"
                          "add.u32 %s, %s, %t;\nld.shared.u32 %r6, [%s];\nadd.u32 %r1, %r5, %r6;\n",
                &found),
            0u);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(found[l], 3 * (l + 1) + 1 + 3 * (3 * l + 1) + 1) << l;
}

TEST(CodegenLoadGroup, WhatIsNotThereFaults) {
  std::vector<uint32_t> found;
  const std::string address = "mad.lo.u32 %s, %r0, 4, %s;\n";
  EXPECT_EQ(run(address + sum_of({0, 3968}), &found), 0u) << "the last row";
  EXPECT_NE(run(address + sum_of({0, 4096}), &found), 0u);
  EXPECT_NE(run(address + sum_of({0, 4, 500000}), &found), 0u);
  EXPECT_NE(run("mad.lo.u32 %s, %r0, 4, %s; add.u32 %s, %s, 2;\n" + sum_of({0, 4}), &found), 0u) << "not aligned";
  EXPECT_NE(run("sub.u32 %s, %s, 64; mad.lo.u32 %s, %r0, 4, %s;\n" + sum_of({0, 64}), &found), 0u);
}

// From byte %a of the tile, in shared memory or, the same, behind `out`.
const std::string kElements = R"(
  .reg .b64 %a, %g, %q<20>; .reg .b32 %u, %w<20>;
  add.u64 %g, %d1, 0; mul.wide.u32 %a, %r0, 4; sub.u64 %g, %g, %a; add.u64 %g, %g, 128;
)";

struct Elements {
  bool shared;
  uint32_t bytes;

  std::string type() const { return (shared ? "shared.u" : "global.u") + std::to_string(8 * bytes); }
};

// As sum_of(), with both words of one of 64 bits. All are loaded first.
std::string sum_of(const Elements& elements, const std::vector<uint32_t>& offsets) {
  std::string loads, sums;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const std::string number = std::to_string(i), to = (elements.bytes == 8 ? "%q" : "%w") + number;
    loads += "  ld." + elements.type() + " " + to + ", [%a+" + std::to_string(offsets[i] * elements.bytes) + "];\n";
    if (elements.bytes == 8) {
      sums += "  mov.b64 {%t, %u}, " + to + ";\n  add.u32 %w" + number + ", %t, %u;\n";
    }
    sums += "  mad.lo.u32 %r1, %r1, 5, %w" + number + ";\n";
  }
  return loads + sums;
}

uint32_t element(uint32_t place, uint32_t bytes) {
  uint32_t words[kWords], found[2] = {};
  for (uint32_t i = 0; i < kWords; ++i) words[i] = 3 * i + 1;
  std::memcpy(found, reinterpret_cast<const char*>(words) + place, bytes);
  return found[0] + found[1];
}

uint32_t sum_at(uint32_t place, const Elements& elements, const std::vector<uint32_t>& offsets) {
  uint32_t sum = 0;
  for (const uint32_t offset : offsets) sum = sum * 5 + element(place + offset * elements.bytes, elements.bytes);
  return sum;
}

// `code` has the byte of the tile in %t.
std::string from(const Elements& elements, const std::string& code) {
  return kElements + code + (elements.shared ? " cvt.u64.u32 %a, %s;" : " mov.u64 %a, %g;") +
         " cvt.u64.u32 %g, %t; add.u64 %a, %a, %g;\n";
}

void expect_sums(const Elements& elements, const std::string& code, const Place& place,
                 const std::vector<uint32_t>& offsets) {
  std::vector<uint32_t> found;
  const std::string some = "setp.gt.u32 %q, %r0, 19; @%q bra end;\n";
  for (const bool all : {true, false}) {
    ASSERT_EQ(run(from(elements, code) + (all ? "" : some) + sum_of(elements, offsets) + "end:\n", &found), 0u) << code;
    for (uint32_t l = 0; l < 32; ++l)
      EXPECT_EQ(found[l], l > 19 && !all ? 0 : sum_at(place(l), elements, offsets)) << elements.type() << code << l;
  }
}

class CodegenLoadGroupElements : public testing::TestWithParam<Elements> {};

TEST_P(CodegenLoadGroupElements, LieWhereTheyAre) {
  const Elements elements = GetParam();
  const uint32_t bytes = elements.bytes;
  const std::vector<uint32_t> offsets = {0, 1, 2, 9, 64, 0, 3, 33, 90};
  expect_sums(
      elements, "mul.lo.u32 %t, %r0, " + std::to_string(bytes) + ";", [=](uint32_t l) { return l * bytes; }, offsets);
  expect_sums(elements, "shr.u32 %t, %r0, 4; mul.lo.u32 %t, %t, 80;", [](uint32_t l) { return l / 16 * 80; }, offsets);
  expect_sums(elements, "xor.b32 %t, %r0, 5; mul.lo.u32 %t, %t, 40;", [](uint32_t l) { return (l ^ 5) * 40; }, offsets);
  std::vector<uint32_t> weights = offsets;
  for (uint32_t i = 30; weights.size() < 18; ++i) weights.push_back(i);
  expect_sums(elements, "mov.u32 %t, 72;", [](uint32_t) { return 72; }, weights);
}

INSTANTIATE_TEST_SUITE_P(Widths, CodegenLoadGroupElements,
                         testing::Values(Elements{true, 1}, Elements{true, 4}, Elements{true, 8}, Elements{false, 2},
                                         Elements{false, 4}, Elements{false, 8}));

TEST(CodegenLoadGroup, ElementsThatAreNotThereFault) {
  std::vector<uint32_t> found;
  for (const uint32_t bytes : {4u, 8u}) {
    const Elements shared{true, bytes}, global{false, bytes};
    const uint32_t last = 4096 / bytes;
    for (const std::string code :
         {"mul.lo.u32 %t, %r0, 8;", "mov.u32 %t, 0;", "shr.u32 %t, %r0, 4; shl.b32 %t, %t, 3;"}) {
      const std::string what = code + std::to_string(bytes);
      EXPECT_EQ(run(from(shared, code) + sum_of(shared, {0, 1, last - 256 / bytes}), &found), 0u) << what;
      EXPECT_NE(run(from(shared, code) + sum_of(shared, {0, 1, last}), &found), 0u) << what;
      EXPECT_NE(run(from(shared, code + " add.u32 %t, %t, 2;") + sum_of(shared, {0, 1}), &found), 0u) << what;
      EXPECT_NE(run(from(global, code + " add.u32 %t, %t, 2;") + sum_of(global, {0, 1}), &found), 0u) << what;
      EXPECT_NE(run(from(global, code) + "add.u64 %a, %a, 0x7000000000000000;\n" + sum_of(global, {0, 1}), &found), 0u);
    }
  }
}

}  // namespace
}  // namespace bandsaw::soft::test::load_group
