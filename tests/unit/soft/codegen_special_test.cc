// Every special register, in every form and width that ptxas accepts: mov of its own width (and 16 bits of those that
// had 16 bits in PTX 1), and cvt from its own width, 16 and 8 bits to 16, 32 and 64 bits. The same through the slicer.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/unit/soft/codegen_harness.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::soft::test {
namespace {

struct Thread {
  uint32_t tid[3], ctaid[3], linear;
  uint32_t lane() const { return linear % 32; }
};
const Shape kShape{{3, 2, 2}, {10, 3, 2}, 48, false};
constexpr uint32_t kThreads = 60, kBlocks = 12;

struct SpecialRegister {
  std::string name;
  unsigned bits;
  bool once_16_bits;  // mov.u16 is allowed
  std::function<uint64_t(const Thread&)> value;
};

std::vector<SpecialRegister> registers() {
  std::vector<SpecialRegister> all;
  for (int i = 0; i < 3; ++i) {
    const std::string axis = std::string(".") + "xyz"[i];
    all.push_back({"%tid" + axis, 32, true, [i](const Thread& t) { return t.tid[i]; }});
    all.push_back({"%ntid" + axis, 32, true, [i](const Thread&) { return kShape.block[i]; }});
    all.push_back({"%ctaid" + axis, 32, true, [i](const Thread& t) { return t.ctaid[i]; }});
    all.push_back({"%nctaid" + axis, 32, true, [i](const Thread&) { return kShape.grid[i]; }});
    all.push_back({"%clusterid" + axis, 32, false, [i](const Thread& t) { return t.ctaid[i]; }});
    all.push_back({"%nclusterid" + axis, 32, false, [i](const Thread&) { return kShape.grid[i]; }});
    all.push_back({"%cluster_ctaid" + axis, 32, false, [](const Thread&) { return 0; }});
    all.push_back({"%cluster_nctaid" + axis, 32, false, [](const Thread&) { return 1; }});
  }
  const auto add = [&](const char* name, unsigned bits, std::function<uint64_t(const Thread&)> value) {
    all.push_back({name, bits, false, std::move(value)});
  };
  add("%cluster_ctarank", 32, [](const Thread&) { return 0; });
  add("%cluster_nctarank", 32, [](const Thread&) { return 1; });
  add("%laneid", 32, [](const Thread& t) { return t.lane(); });
  add("%warpid", 32, [](const Thread& t) { return t.linear / 32; });
  add("%nwarpid", 32, [](const Thread&) { return 2; });
  add("%lanemask_eq", 32, [](const Thread& t) { return 1u << t.lane(); });
  add("%lanemask_lt", 32, [](const Thread& t) { return (1u << t.lane()) - 1; });
  add("%lanemask_le", 32, [](const Thread& t) { return (2u << t.lane()) - 1; });
  add("%lanemask_gt", 32, [](const Thread& t) { return ~((2u << t.lane()) - 1); });
  add("%lanemask_ge", 32, [](const Thread& t) { return ~((1u << t.lane()) - 1); });
  add("%dynamic_smem_size", 32, [](const Thread&) { return 48; });
  add("%total_smem_size", 32, [](const Thread&) { return 48; });
  add("%aggr_smem_size", 32, [](const Thread&) { return 48; });
  add("%nsmid", 32, [](const Thread&) { return 1024; });
  add("%envreg3", 32, [](const Thread&) { return 0; });
  add("%pm0", 32, [](const Thread&) { return 0; });
  add("%pm0_64", 64, [](const Thread&) { return 0; });
  add("%current_graph_exec", 64, [](const Thread&) { return 0; });
  return all;
}

struct Form {
  std::string instruction;
  std::function<uint64_t(uint64_t)> of;
};

uint64_t low(uint64_t value, unsigned bits) { return bits == 64 ? value : value & ((1ull << bits) - 1); }
uint64_t converted(uint64_t value, bool sign, unsigned from, unsigned to) {
  value = low(value, from);
  if (sign && value >> (from - 1) & 1) value |= ~((1ull << (from - 1)) - 1);
  return low(value, to);
}

const char* of_width(unsigned bits) { return bits == 16 ? "%h" : bits == 32 ? "%r" : "%d"; }

std::vector<Form> forms(const SpecialRegister& r) {
  std::vector<Form> made;
  const auto mov = [&](unsigned bits) {
    made.push_back({"mov.u" + std::to_string(bits) + " " + of_width(bits) + ", " + r.name + ";",
                    [bits](uint64_t v) { return low(v, bits); }});
  };
  mov(r.bits);
  if (r.once_16_bits) mov(16);
  for (unsigned to : {16u, 32u, 64u})
    for (unsigned from : {8u, 16u, r.bits})
      for (bool sign : {false, true}) {
        const std::string type = sign ? ".s" : ".u";
        made.push_back(
            {"cvt" + type + std::to_string(to) + type + std::to_string(from) + " " + of_width(to) + ", " + r.name + ";",
             [=](uint64_t v) { return converted(v, sign, from, to); }});
      }
  return made;
}

// Each thread of each block writes what each instruction gave.
std::string kernel(const std::string& name, const std::vector<Form>& table) {
  std::string text = ".visible .entry " + name + R"((.param .u64 out) {
  .reg .b16 %h; .reg .b32 %r; .reg .b32 %t<20>; .reg .b64 %d; .reg .b64 %o;
  mov.u32 %t1, %tid.x; mov.u32 %t2, %tid.y; mov.u32 %t3, %tid.z; mad.lo.u32 %t2, %t3, 3, %t2;
  mad.lo.u32 %t1, %t2, 10, %t1;
  mov.u32 %t4, %ctaid.x; mov.u32 %t5, %ctaid.y; mov.u32 %t6, %ctaid.z; mad.lo.u32 %t5, %t6, 2, %t5;
  mad.lo.u32 %t4, %t5, 3, %t4; mad.lo.u32 %t1, %t4, 60, %t1;
  ld.param.u64 %o, [out]; mad.wide.u32 %o, %t1, 8, %o;
)";
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string& instruction = table[i].instruction;
    text += instruction;
    if (instruction.find("%h,") != std::string::npos) text += " cvt.u64.u16 %d, %h;";
    if (instruction.find("%r,") != std::string::npos) text += " cvt.u64.u32 %d, %r;";
    text += " st.global.u64 [%o + " + std::to_string(i * kThreads * kBlocks * 8) + "], %d;\n";
  }
  return text + "ret;\n}\n";
}

const std::string kText = ".version 8.5\n.target sm_90\n.address_size 64\n";

void check(const uint64_t* out, const SpecialRegister& source, const std::vector<Form>& table) {
  for (const Form& form : table) {
    for (uint32_t b = 0; b < kBlocks; ++b)
      for (uint32_t i = 0; i < kThreads; ++i) {
        const Thread t{{i % 10, i / 10 % 3, i / 30}, {b % 3, b / 3 % 2, b / 6}, i};
        ASSERT_EQ(*out++, form.of(source.value(t))) << form.instruction << " block " << b << " thread " << i;
      }
  }
}

uint64_t* output() {
  reset_memory();
  return array<uint64_t>(32 * kThreads * kBlocks);
}

TEST(CodegenSpecial, EveryRegisterFormAndWidth) {
  const auto all = registers();
  std::string text = kText;
  for (size_t i = 0; i < all.size(); ++i) text += kernel("k" + std::to_string(i), forms(all[i]));
  Kernels kernels(text);
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  for (size_t i = 0; i < all.size(); ++i) {
    uint64_t* out = output();
    ASSERT_EQ(kernels.launch("k" + std::to_string(i), kShape, out).fault, 0u);
    check(out, all[i], forms(all[i]));
  }
}

// Clocks differ from one reading to the next; what can be said is that they are not stuck at 0.
TEST(CodegenSpecial, ClocksAreRead) {
  const std::vector<Form> clocks = {{"cvt.u64.u64 %d, %clock64;", {}},
                                    {"cvt.u64.u32 %d, %clock;", {}},
                                    {"cvt.u64.u64 %d, %globaltimer;", {}},
                                    {"cvt.u32.u32 %r, %globaltimer_lo;", {}},
                                    {"mov.u64 %d, %clock64;", {}}};
  Kernels kernels(kText + kernel("k", clocks));
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  uint64_t* out = output();
  ASSERT_EQ(kernels.launch("k", kShape, out).fault, 0u);
  for (uint32_t i = 0; i < clocks.size() * kThreads * kBlocks; ++i) ASSERT_NE(out[i], 0u) << i;
}

// Blocks 0 to 11 of the grid as slices of 5 blocks: the rewritten kernel reads the whole grid's indices in every width.
TEST(CodegenSpecial, SlicedKernelsReadTheWholeGridsIndices) {
  for (const SpecialRegister& source : registers()) {
    if (!source.name.starts_with("%ctaid") && !source.name.starts_with("%nctaid")) continue;
    uint64_t* out = output();
    const auto result = ptx::slice(ptx::Program(ptx::parse(kText + kernel("k", forms(source)))), "k");
    const auto* sliced = std::get_if<ptx::SlicedKernel>(&result);
    ASSERT_TRUE(sliced) << std::get<ptx::Refusal>(result).reason;
    Kernels kernels(sliced->text);
    ASSERT_TRUE(kernels.ok()) << kernels.log();
    for (uint32_t first = 0; first < kBlocks; first += 5) {
      Shape shape = kShape;
      shape.grid[0] = std::min(5u, kBlocks - first);
      shape.grid[1] = shape.grid[2] = 1;
      std::vector<std::byte> parameters(sliced->parameter_bytes);
      std::memcpy(parameters.data(), &out, sizeof out);
      const auto at = ptx::block_at(first, {3, 2, 2});
      std::memcpy(parameters.data() + sliced->first_at, at.data(), 12);
      std::memcpy(parameters.data() + sliced->grid_at, kShape.grid, 12);
      ASSERT_EQ(kernels.run(sliced->name, shape, parameters).fault, 0u);
    }
    check(out, source, forms(source));
  }
}

}  // namespace
}  // namespace bandsaw::soft::test
