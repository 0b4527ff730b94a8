// Loads and stores whose lanes go different ways: vectors in any order, copies to shared memory, and accesses that
// others look for (volatile and the like), which are not merged and not moved.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

constexpr uint32_t kWords = 4 * 32;

// Lane l has %a, 16 bytes of `in` that no neighbour's lie beside; %b, 16 bytes of `out`, and %s, of shared memory.
const std::string kAccessHead = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .shared .align 16 .b8 rows[512];
  .reg .b32 %r<10>; .reg .b64 %a, %b, %d<4>; .reg .b32 %s; .reg .b16 %h<5>; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out];
  mov.u32 %r0, %laneid; mul.lo.u32 %r9, %r0, 5; and.b32 %r9, %r9, 31;
  mad.wide.u32 %a, %r9, 16, %a; mad.wide.u32 %b, %r0, 16, %b;
  mov.u32 %s, rows; mad.lo.u32 %s, %r9, 16, %s; setp.ne.u32 %p, %r0, 3;
)";

void check_copies(const std::string& code, uint32_t bytes, bool all) {
  reset_memory();
  Kernels kernels(kAccessHead + code + "  ret;\n}\n");
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto *in = array<uint8_t>(4 * kWords), *out = array<uint8_t>(4 * kWords);
  for (uint32_t i = 0; i < 4 * kWords; ++i) in[i] = static_cast<uint8_t>(i * 7 + 1 + i / 256);
  ASSERT_EQ(kernels.launch("k", {}, in, out).fault, 0u) << code;
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < 16; ++i) {
      const bool copied = i < bytes && (all || lane != 3);
      ASSERT_EQ(out[lane * 16 + i], copied ? in[lane * 5 % 32 * 16 + i] : 0) << code << lane << " " << i;
    }
}

TEST(CodegenAccess, VectorsInAnyOrder) {
  const struct {
    const char *type, *registers;
    uint32_t bytes;
  } forms[] = {{"u32", "%r1", 4},
               {"v2.u16", "{%h1, %h2}", 4},
               {"v2.u32", "{%r1, %r2}", 8},
               {"v4.u16", "{%h1, %h2, %h3, %h4}", 8},
               {"u64", "%d1", 8},
               {"v2.u64", "{%d1, %d2}", 16},
               {"v4.u32", "{%r1, %r2, %r3, %r4}", 16}};
  for (const auto& f : forms)
    for (const char* order : {"", ".volatile"})
      for (const char* guard : {"", "@%p "}) {
        const std::string g = guard, type = std::string(".") + f.type, o = order;
        const std::string load = "ld" + o, store = "st" + o, registers = f.registers;
        check_copies(g + load + ".global" + type + " " + registers + ", [%a];\n" + g + store + ".shared" + type +
                         " [%s], " + registers + ";\n" + "bar.sync 0;\n" + g + load + ".shared" + type + " " +
                         registers + ", [%s];\n" + g + store + ".global" + type + " [%b], " + registers + ";\n",
                     f.bytes, g.empty());
      }
}

// Each half of the warp reads one vector, as of a row of a tile; one lane may go elsewhere. `add`: to the place.
Outcome read_rows(const std::string& type, const std::string& registers, const std::string& guard, bool same,
                  const std::string& add, uint8_t** out) {
  reset_memory();
  const std::string other = same ? "" : "setp.eq.u32 %p, %r0, 21;\n@%p mov.u32 %r8, 48;\nsetp.ne.u32 %p, %r0, 3;\n";
  Kernels kernels(kAccessHead +
                  "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a];\nst.shared.v4.u32 [%s], {%r1, %r2, %r3, %r4};\n"
                  "bar.sync 0;\nshr.u32 %r8, %r0, 4;\nmad.lo.u32 %r8, %r8, 208, 32;\n" +
                  other + "mov.u32 %s, rows;\nadd.u32 %s, %s, %r8;\nadd.u32 %s, %s, " + add + ";\n" + guard +
                  "ld.shared." + type + " " + registers + ", [%s];\n" + guard + "st.global." + type + " [%b], " +
                  registers + ";\nret;\n}\n");
  EXPECT_TRUE(kernels.ok()) << kernels.log();
  auto* in = array<uint8_t>(4 * kWords);
  *out = array<uint8_t>(4 * kWords);
  for (uint32_t i = 0; i < 4 * kWords; ++i) in[i] = static_cast<uint8_t>(i * 7 + 1 + i / 256);
  return kernels.launch("k", {}, in, *out);
}

TEST(CodegenAccess, HalvesOfTheWarpReadRowsOfTiles) {
  const struct {
    const char *type, *registers;
    uint32_t bytes;
  } forms[] = {{"v2.u16", "{%h1, %h2}", 4},
               {"v2.u32", "{%r1, %r2}", 8},
               {"v2.u64", "{%d1, %d2}", 16},
               {"v4.u32", "{%r1, %r2, %r3, %r4}", 16}};
  for (const auto& f : forms)
    for (const bool same : {true, false})
      for (const char* guard : {"", "@%p "}) {
        uint8_t* out = nullptr;
        ASSERT_EQ(read_rows(f.type, f.registers, guard, same, "16", &out).fault, 0u);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          const uint32_t row = (!same && lane == 21 ? 48 : 32 + lane / 16 * 208) + 16;
          for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t at = row + i;
            const bool copied = i < f.bytes && (*guard == 0 || lane != 3);
            ASSERT_EQ(out[lane * 16 + i], copied ? static_cast<uint8_t>(at * 7 + 1 + at / 256) : 0) << f.type << lane;
          }
        }
      }
}

TEST(CodegenAccess, RowsThatAreNotThereOrNotAlignedFault) {
  uint8_t* out = nullptr;
  EXPECT_NE(read_rows("v4.u32", "{%r1, %r2, %r3, %r4}", "", true, "4", &out).fault, 0u);
  EXPECT_NE(read_rows("v2.u32", "{%r1, %r2}", "", true, "500000", &out).fault, 0u);
  EXPECT_NE(read_rows("v2.u32", "{%r1, %r2}", "", true, "0xffffff00", &out).fault, 0u);
}

TEST(CodegenAccess, CopiesToSharedMemory) {
  for (const uint32_t bytes : {4, 8, 16})
    for (const char* guard : {"", "@%p "}) {
      const std::string g = guard, n = std::to_string(bytes), how = bytes == 16 ? "cg" : "ca";
      const std::string type = bytes == 4 ? ".u32" : bytes == 8 ? ".v2.u32" : ".v4.u32";
      const std::string registers = bytes == 4 ? "%r1" : bytes == 8 ? "{%r1, %r2}" : "{%r1, %r2, %r3, %r4}";
      check_copies(g + "cp.async." + how + ".shared.global [%s], [%a], " + n + ";\ncp.async.wait_all;\n" + g +
                       "ld.shared" + type + " " + registers + ", [%s];\n" + g + "st.global" + type + " [%b], " +
                       registers + ";\n",
                   bytes, g.empty());
    }
}

TEST(CodegenAccess, FewerBytesThanAreCopied) {
  check_copies(
      "mov.u32 %r5, 6;\ncp.async.cg.shared.global [%s], [%a], 16, %r5;\ncp.async.wait_all;\n"
      "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%s];\nst.global.v4.u32 [%b], {%r1, %r2, %r3, %r4};\n",
      6, true);
}

// Lanes hand numbers on through shared memory without a barrier, as code written for warps in step does.
TEST(CodegenAccess, VolatileWordsAreNeitherKeptNorMoved) {
  reset_memory();
  std::string code =
      "shl.b32 %r9, %r0, 2; mov.u32 %s, rows; add.u32 %s, %s, %r9;\n"
      "st.volatile.shared.u32 [%s], 0; st.volatile.shared.u32 [%s+128], %r0;\n";
  for (uint32_t step = 1; step < 32; step *= 2) {
    code += "ld.volatile.shared.u32 %r1, [%s+128]; ld.volatile.shared.u32 %r2, [%s+" + std::to_string(128 - 4 * step) +
            "]; add.u32 %r1, %r1, %r2; st.volatile.shared.u32 [%s+128], %r1;\n";
  }
  Kernels kernels(kAccessHead + code + "st.volatile.global.u32 [%b], %r1;\nret;\n}\n");
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto *in = array<uint32_t>(kWords), *out = array<uint32_t>(kWords);
  ASSERT_EQ(kernels.launch("k", {}, in, out).fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane * 4], lane * (lane + 1) / 2) << lane;
}

// Elements by register: an index has 32 bits, whatever its register, and counts scalars.
TEST(CodegenAccess, ElementsOfArrays) {
  reset_memory();
  Kernels kernels(R"(.version 8.5
.target sm_90
.address_size 64
.global .align 8 .u64 table[32] = {3, 1, 4, 1, 5, 9, 2, 6};
.global .align 16 .v4 .f32 vectors[2] = {{1.0, 2.0, 3.0, 4.0}, {5.0, 6.0, 7.0, 8.0}};
.visible .entry k(.param .u64 out) {
  .shared .align 4 .u32 shared[64];
  .local .align 2 .b16 own[4];
  .reg .b32 %r<9>; .reg .b64 %a, %d<4>; .reg .s16 %h<4>; .reg .f32 %f; .reg .pred %p;
  ld.param.u64 %a, [out]; mov.u32 %r0, %laneid; mad.wide.u32 %a, %r0, 32, %a;
  and.b32 %r1, %r0, 7;
  ld.global.u64 %d0, table[%r1]; st.global.u64 [%a], %d0;
  mov.b64 %d1, {%r1, 77};                   // the upper half does not count
  ld.global.f32 %f, vectors[%d1]; st.global.f32 [%a+8], %f;
  mov.b16 %h0, -1; add.s32 %r2, %r0, 1;
  st.shared.u32 shared[%r2], %r0; st.shared.u32 shared[0], 100; bar.sync 0;
  add.s32 %r2, %r0, -1;
  ld.shared.u32 %r3, shared[%r2+1]; st.global.u32 [%a+12], %r3;
  ld.shared.u32 %r3, shared[2]; st.global.u32 [%a+16], %r3;
  { .reg .pred %q; setp.lt.u32 %q, %r0, 16; cvt.u16.u32 %h1, %r1; and.b16 %h1, %h1, 3;
    st.local.b16 own[%h1], %h1; @%q st.local.b16 own[%h1], -5; ld.local.s16 %r4, own[%h1]; }
  st.global.u32 [%a+20], %r4;
  mov.u64 %d2, table[%h0+3]; ld.global.u64 %d2, [%d2]; st.global.u64 [%a+24], %d2;
  ret;
}
)");
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto* const out = array<uint8_t>(32 * 32);
  ASSERT_EQ(kernels.launch("k", {}, out).fault, 0u) << kernels.log();
  constexpr uint64_t kTable[] = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto at = [&]<class T>(uint32_t lane, size_t offset, T) {
    T value;
    std::memcpy(&value, out + lane * 32 + offset, sizeof value);
    return value;
  };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(at(lane, 0, uint64_t{}), kTable[lane % 8]) << lane;
    EXPECT_EQ(at(lane, 8, float{}), 1.0F + static_cast<float>(lane % 8)) << lane;
    EXPECT_EQ(at(lane, 12, uint32_t{}), lane == 0 ? 100 : lane - 1) << lane;
    EXPECT_EQ(at(lane, 16, uint32_t{}), 1u) << lane;
    EXPECT_EQ(at(lane, 20, int32_t{}), lane < 16 ? -5 : static_cast<int32_t>(lane % 4)) << lane;
    EXPECT_EQ(at(lane, 24, uint64_t{}), 4u) << lane;
  }
}

}  // namespace
}  // namespace bandsaw::soft::test
