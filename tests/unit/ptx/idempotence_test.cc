// Which blocks may be run again: kernels whose answers are known, and those that are idempotent only by luck.
#include "vgpu-sched/ptx/idempotence.h"

#include <cstring>

#include "support.h"

namespace bandsaw::ptx {
namespace {

const std::string kBlockRegisters = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n";
// %rd3 and %rd4 point into a and b.
const std::string kBothPointers =
    "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd3, %rd1; ld.param.u64 %rd2, [b]; cvta.to.global.u64 %rd4, %rd2;\n";

// Keeps the program that the result points into.
struct Judged {
  Program program;
  BlockIdempotence block;
  explicit Judged(const std::string& body, const std::string& before = "")
      : program(module_of(before + ".entry k(.param .u64 a, .param .u64 b, .param .u32 n) {\n" + kBlockRegisters +
                          kBothPointers + body + " ret; }\n")),
        block(block_idempotence(program, "k")) {}
};

std::vector<std::byte> pointers(uint64_t a, uint64_t b) {
  std::vector<std::byte> packed(20);
  std::memcpy(packed.data(), &a, 8);
  std::memcpy(packed.data() + 8, &b, 8);
  return packed;
}

// Allocations of 0x1000 bytes each, at 0x10000, 0x20000 and so on to 0x90000.
std::optional<MemoryRange> allocation_of(uint64_t address) {
  const uint64_t begin = address & ~uint64_t{0xffff};
  if (begin == 0 || begin > 0x90000 || address - begin >= 0x1000) return std::nullopt;
  return MemoryRange{begin, begin + 0x1000};
}

TEST(BlockIdempotence, ReadsHereAndWritesThere) {
  const Judged one("ld.global.u32 %r1, [%rd3]; st.global.u32 [%rd4], %r1;");
  EXPECT_EQ(one.block.not_strict, "");
  EXPECT_EQ(one.block.reads, std::vector<size_t>{0});
  EXPECT_EQ(one.block.writes, std::vector<size_t>{8});
  EXPECT_TRUE(disjoint(one.block, pointers(0x10000, 0x20040), allocation_of));
  // Where they are not, it may be run again before its store.
  EXPECT_EQ(one.block.not_relaxed, "");
  ASSERT_EQ(one.block.irreversible.size(), 1u);
  EXPECT_EQ(one.block.irreversible[0]->opcode, "st");
}

TEST(BlockIdempotence, AliasedBuffersAreLuck) {
  const Judged one("ld.global.u32 %r1, [%rd3]; st.global.u32 [%rd4], %r1;");
  EXPECT_FALSE(disjoint(one.block, pointers(0x10000, 0x10000), allocation_of));
  EXPECT_FALSE(disjoint(one.block, pointers(0x10000, 0x10800), allocation_of));  // one allocation, cut by the program
  EXPECT_FALSE(disjoint(one.block, pointers(0x10000, 0x21000), allocation_of));  // past its end
  EXPECT_FALSE(disjoint(one.block, pointers(0x10000, 0xdead0000), allocation_of));
  EXPECT_TRUE(disjoint(one.block, pointers(0, 0x20000), allocation_of));
  EXPECT_FALSE(disjoint(one.block, std::vector<std::byte>(12), allocation_of));  // fewer parameters than it has
}

TEST(BlockIdempotence, APromiseOfConstantMemoryMayBeBroken) {
  const Judged one("ld.global.nc.u32 %r1, [%rd3]; st.global.u32 [%rd4], %r1;");
  EXPECT_EQ(one.block.not_strict, "");
  EXPECT_FALSE(disjoint(one.block, pointers(0x10000, 0x10000), allocation_of));
  EXPECT_NE(Judged("ld.global.nc.u32 %r1, [%rd3]; st.global.u32 [%rd3], %r1;").block.not_strict, "");
}

TEST(BlockIdempotence, InPlaceIsNot) {
  const Judged one("ld.global.u32 %r1, [%rd3]; add.u32 %r1, %r1, 1; st.global.u32 [%rd3], %r1;");
  EXPECT_EQ(one.block.not_strict, "reads and writes through the same pointer");
  EXPECT_EQ(one.block.irreversible.size(), 1u);
}

TEST(BlockIdempotence, WhoOnlyWritesMayAlways) {
  const Judged one("st.global.u32 [%rd3], 1; st.global.u32 [%rd4], 2;");
  EXPECT_EQ(one.block.not_strict, "");
  EXPECT_TRUE(one.block.irreversible.empty());
  EXPECT_TRUE(disjoint(one.block, pointers(0xdead0000, 0xdead0000), allocation_of));
}

TEST(BlockIdempotence, VolatileAndOrderedAccessesAreSeenByOthers) {
  for (const std::string access : {"ld.volatile.global.u32 %r1, [%rd3];", "ld.acquire.gpu.global.u32 %r1, [%rd3];",
                                   "st.volatile.global.u32 [%rd3], 1;", "st.release.gpu.global.u32 [%rd3], 1;",
                                   "ld.relaxed.sys.global.u32 %r1, [%rd3];"}) {
    const Judged one(access);
    EXPECT_NE(one.block.not_strict, "") << access;
    EXPECT_EQ(one.block.irreversible.size(), 1u) << access;
  }
}

TEST(BlockIdempotence, AtomicsOfGlobalMemoryAlone) {
  EXPECT_EQ(Judged("red.global.add.u32 [%rd3], 1;").block.not_strict, "has atomic operations on global memory");
  EXPECT_EQ(Judged("atom.add.u32 %r1, [%rd1], 1;").block.irreversible.size(), 1u);
  EXPECT_EQ(Judged("red.shared.add.u32 [s], 1;", ".shared .u32 s;\n").block.not_strict, "");
}

TEST(BlockIdempotence, AtomicsHiddenInACall) {
  const std::string hidden =
      ".func count(.param .u64 p) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [p]; red.add.u32 [%rd1], 1; ret; }\n";
  const Judged one("{ .param .u64 x; st.param.u64 [x], %rd1; call.uni count, (x); }", hidden);
  EXPECT_EQ(one.block.not_strict, "has atomic operations on global memory");
  EXPECT_EQ(one.block.not_relaxed, "'count', which it calls, does what cannot be done again");
}

TEST(BlockIdempotence, WhatIsElsewhereIsNotKnown) {
  const Judged one("call.uni unknown;", ".extern .func unknown;\n");
  EXPECT_EQ(one.block.not_strict, "calls 'unknown', which is elsewhere");
  EXPECT_EQ(one.block.not_relaxed, "");
  EXPECT_EQ(one.block.irreversible.size(), 1u);  // until then nothing is lost
}

TEST(BlockIdempotence, PointersFromMemoryMayPointAnywhere) {
  const Judged one("ld.global.u64 %rd5, [%rd3]; st.global.u32 [%rd5], %r1;");
  EXPECT_NE(one.block.not_strict, "");
  EXPECT_EQ(one.block.irreversible.size(), 1u);
}

TEST(BlockIdempotence, VariablesOfTheModule) {
  const std::string variables = ".global .u32 u; .global .u32 v;\n";
  const Judged apart("ld.global.u32 %r1, [u]; st.global.u32 [v], %r1;", variables);
  EXPECT_EQ(apart.block.not_strict, "");
  EXPECT_TRUE(disjoint(apart.block, pointers(0x10000, 0x20000), allocation_of));
  EXPECT_NE(Judged("ld.global.u32 %r1, [u]; st.global.u32 [u], %r1;", variables).block.not_strict, "");
  // A pointer to a variable is in no allocation.
  const Judged mixed("ld.global.u32 %r1, [u]; st.global.u32 [%rd4], %r1;", variables);
  EXPECT_TRUE(disjoint(mixed.block, pointers(0, 0x20000), allocation_of));
  EXPECT_FALSE(disjoint(mixed.block, pointers(0, 0xa0000), allocation_of));
}

TEST(BlockIdempotence, OfAllSamplesSomethingIsSaid) {
  for (const char* name : kSamples) {
    const Program program(parse(sample(name)));
    for (const std::string_view kernel : program.kernels()) {
      const BlockIdempotence block = block_idempotence(program, kernel);
      EXPECT_TRUE(block.not_strict.empty() || !block.not_relaxed.empty() || !block.irreversible.empty()) << kernel;
    }
  }
}

}  // namespace
}  // namespace bandsaw::ptx
