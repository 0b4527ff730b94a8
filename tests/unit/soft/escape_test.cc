// Kernels that try to leave what is theirs: each touches an address that is not the program's, in one way and one state
// space. The launch must end with an error, and nothing of this process may be read or written.
#include <cstring>
#include <fstream>
#include <string>

#include "backend/device/soft/warp.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/soft/host_fixture.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kMagic = 0x5ec7e75ec7e75ec7;
// Of this process, as a runner's keys and stack are.
alignas(4096) uint64_t secret[512];

constexpr char kHead[] = R"(
.version 8.6
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.global .align 1 .b8 words[8] = {37, 115, 0, 37, 100, 0, 0, 0};
)";

// `a`: the address; the kernel's other registers are free for the body. Lanes have it alike, or consecutive ones.
std::string kernel_text(const std::string& body, bool lanes) {
  return std::string(kHead) + R"(
.visible .entry k(.param .u64 address, .param .u64 out)
{
  .reg .pred %p; .reg .b16 %h<4>; .reg .b32 %r<24>; .reg .b64 %d<12>; .reg .b64 %a, %o; .reg .b32 %n; .reg .f32 %f<8>;
  .reg .b128 %q<3>;
  .shared .align 128 .b8 shared[128];
  .local .align 16 .b8 stack[64];
  ld.param.u64 %a, [address]; ld.param.u64 %o, [out];
  mov.u32 %r0, %tid.x;
)" + (lanes ? "mad.wide.u32 %a, %r0, 16, %a;\n" : "") +
         R"(
  cvt.u32.u64 %n, %a;
  mov.u64 %d0, 0; mov.u32 %r1, 1; mov.u32 %r2, 0;
  st.local.u64 [stack], %a;
  )" + body +
         R"(
  st.global.u64 [%o], %d0;
  ret;
}
)";
}

struct Try {
  const char* name;
  const char* body;
};

const Try kGlobal[] = {
    {"ld_u8", "ld.global.u8 %r1, [%a]; cvt.u64.u32 %d0, %r1;"},
    {"ld_u32", "ld.global.u32 %r1, [%a]; cvt.u64.u32 %d0, %r1;"},
    {"ld_u64", "ld.global.u64 %d0, [%a];"},
    {"ld_v2", "ld.global.v2.u32 {%r1, %r2}, [%a]; mov.b64 %d0, {%r1, %r2};"},
    {"ld_v4", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a]; mov.b64 %d0, {%r1, %r2};"},
    {"ld_v2_u64", "ld.global.v2.u64 {%d0, %d1}, [%a];"},
    {"ld_offset", "add.u64 %a, %a, 4096; ld.global.u64 %d0, [%a+-4096];"},
    {"ld_volatile", "ld.volatile.global.u64 %d0, [%a];"},
    {"ld_acquire", "ld.acquire.gpu.global.u64 %d0, [%a];"},
    {"ld_generic", "ld.u64 %d0, [%a];"},
    {"ld_generic_v4", "ld.v4.u32 {%r1, %r2, %r3, %r4}, [%a]; mov.b64 %d0, {%r1, %r2};"},
    {"ld_const", "ld.const.u64 %d0, [%a];"},
    {"ld_b128", "ld.global.b128 %q0, [%a]; mov.b128 {%d0, %d1}, %q0;"},
    {"st_u8", "st.global.u8 [%a], %r1;"},
    {"st_u32", "st.global.u32 [%a], %r1;"},
    {"st_u64", "st.global.u64 [%a], %d0;"},
    {"st_v4", "st.global.v4.u32 [%a], {%r1, %r1, %r1, %r1};"},
    {"st_generic", "st.u64 [%a], %d0;"},
    {"st_release", "st.release.gpu.global.u64 [%a], %d0;"},
    {"atom_add", "atom.global.add.u64 %d0, [%a], 1;"},
    {"atom_generic", "atom.add.u32 %r1, [%a], 1;"},
    {"atom_cas", "atom.global.cas.b64 %d0, [%a], 0, 1;"},
    {"atom_f32", "atom.global.add.f32 %f0, [%a], 0f3F800000;"},
    {"atom_b128", "mov.b128 %q0, {%d0, %d0}; atom.global.exch.b128 %q1, [%a], %q0; mov.b128 {%d0, %d1}, %q1;"},
    {"red", "red.global.add.u32 [%a], 1;"},
    {"cp_async",
     "mov.u32 %r3, shared; cp.async.ca.shared.global [%r3], [%a], 16; cp.async.wait_all;"
     "ld.shared.u64 %d0, [shared];"},
    {"bulk_in",
     "mov.u32 %r3, shared; add.u32 %r4, %r3, 64; mbarrier.init.shared.b64 [%r4], 1;"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%a], 16, [%r4];"},
    {"bulk_out", "mov.u32 %r3, shared; cp.async.bulk.global.shared::cta.bulk_group [%a], [%r3], 16;"},
    {"wmma", "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%a], 16;"},
    {"tensor_map",
     "mov.u32 %r3, shared; add.u32 %r4, %r3, 64; mbarrier.init.shared.b64 [%r4], 1;"
     "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
     " [%r3], [%a, {%r2}], [%r4];"},
    {"texture", "tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%a, {%r2}];"},
    {"surface", "suld.b.1d.b32.trap {%r1}, [%a, {%r2}];"},
    {"printf_string",
     "mov.u64 %d2, words; mov.u64 %d3, stack; cvta.local.u64 %d3, %d3;"
     "{ .param .b64 f; .param .b64 g; .param .b32 r; st.param.b64 [f], %d2; st.param.b64 [g], %d3;"
     "call.uni (r), vprintf, (f, g); }"},
    {"printf_format",
     "{ .param .b64 f; .param .b64 g; .param .b32 r; st.param.b64 [f], %a; st.param.b64 [g], %d0;"
     "call.uni (r), vprintf, (f, g); }"},
    {"printf_arguments",
     "mov.u64 %d2, words; add.u64 %d2, %d2, 3;"
     "{ .param .b64 f; .param .b64 g; .param .b32 r; st.param.b64 [f], %d2; st.param.b64 [g], %a;"
     "call.uni (r), vprintf, (f, g); }"},
    {"assert",
     "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;"
     "st.param.b64 [m], %a; st.param.b64 [f], %a; st.param.b32 [l], %r1; st.param.b64 [n], %a;"
     "st.param.b64 [s], %d0; call.uni __assertfail, (m, f, l, n, s); }"},
    {"call", "call.uni %a, (), PROTO; PROTO: .callprototype _ ();"},
};

struct Case {
  std::string name, body;
  uint64_t address;
  bool lanes;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::vector<Case> global_cases() {
  const uint64_t base = test_window();
  const std::pair<const char*, uint64_t> wild[] = {{"process", reinterpret_cast<uint64_t>(secret)},
                                                   {"below", base - 4096},
                                                   {"behind", base + VGPU_WINDOW_BYTES},
                                                   {"high", uint64_t{1} << 63},
                                                   {"last", UINT64_MAX - 15},
                                                   {"function", kFunctionWindow + 0x1000},
                                                   {"null", 4096}};
  std::vector<Case> all;
  for (const Try& one : kGlobal) {
    for (const auto& [where, address] : wild) {
      for (const bool lanes : {false, true}) {
        if (lanes && address > UINT64_MAX - 4096) continue;  // others wrap around to null
        all.push_back({std::string(one.name) + "_" + where + (lanes ? "_lanes" : ""), one.body, address, lanes});
      }
    }
  }
  return all;
}

std::vector<Case> other_cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, const char* body, std::initializer_list<uint64_t> addresses) {
    int n = 0;
    for (const uint64_t address : addresses) {
      for (const bool lanes : {false, true}) {
        all.push_back({name + std::string("_") + std::to_string(n) + (lanes ? "_lanes" : ""), body, address, lanes});
      }
      ++n;
    }
  };
  // Shared memory of 128 bytes: its end, the end of 32 bits, another block of a cluster, behind the reserved part. A
  // half of the warp may read whole vectors of the padding, which is the block's own.
  const std::initializer_list<uint64_t> shared = {256, 0xfffffff0, uint64_t{kClusterStep} * 2,
                                                  kReservedOffset + kReservedBytes, 0x7ffffff0};
  add("shared_ld", "ld.shared.u32 %r1, [%n]; cvt.u64.u32 %d0, %r1;", shared);
  add("shared_ld64", "ld.shared.u64 %d0, [%a];", shared);
  add("shared_ld_v4", "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%n]; cvt.u64.u32 %d0, %r1;", shared);
  add("shared_st", "st.shared.u32 [%n], %r1;", shared);
  add("shared_st_v4", "st.shared.v4.u32 [%n], {%r1, %r1, %r1, %r1};", shared);
  add("shared_atom", "atom.shared.add.u32 %r1, [%n], 1; cvt.u64.u32 %d0, %r1;", shared);
  add("shared_red", "red.shared.add.u32 [%n], 1;", shared);
  add("shared_cas", "atom.shared.cas.b64 %d0, [%n], 0, 1;", shared);
  add("shared_ldmatrix", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%n]; cvt.u64.u32 %d0, %r1;", shared);
  add("shared_mbarrier", "mbarrier.init.shared.b64 [%n], 1;", shared);
  add("shared_cp_async", "cp.async.ca.shared.global [%n], [%o], 16;", shared);
  add("shared_generic", "cvta.shared.u64 %a, %a; ld.u32 %r1, [%a]; cvt.u64.u32 %d0, %r1;", shared);
  add("shared_generic_st", "cvta.shared.u64 %a, %a; st.u64 [%a], %d0;", shared);
  const std::initializer_list<uint64_t> local = {64, 512 << 10, 0xfffffff0, uint64_t{1} << 36, 0x7ffffff0};
  add("local_ld", "ld.local.u32 %r1, [%a]; cvt.u64.u32 %d0, %r1;", local);
  add("local_ld_u8", "ld.local.u8 %r1, [%a]; cvt.u64.u32 %d0, %r1;", local);
  add("local_ld_v4", "ld.local.v4.u32 {%r1, %r2, %r3, %r4}, [%a]; cvt.u64.u32 %d0, %r1;", local);
  add("local_st", "st.local.u32 [%a], %r1;", local);
  add("local_st_u8", "st.local.u8 [%a], %r1;", local);
  add("local_st_v4", "st.local.v4.u32 [%a], {%r1, %r1, %r1, %r1};", local);
  add("local_generic", "cvta.local.u64 %a, %a; ld.u32 %r1, [%a]; cvt.u64.u32 %d0, %r1;", local);
  add("local_generic_st", "cvta.local.u64 %a, %a; st.u64 [%a], %d0;", local);
  add("local_printf",
      "cvta.local.u64 %a, %a; mov.u64 %d2, words;"
      "{ .param .b64 f; .param .b64 g; .param .b32 r; st.param.b64 [f], %a; st.param.b64 [g], %d0;"
      "call.uni (r), vprintf, (f, g); }",
      local);
  const std::initializer_list<uint64_t> parameters = {16, 32764, 0xfffffff0, uint64_t{1} << 36};
  add("param_ld", "ld.param.u32 %r1, [%a]; cvt.u64.u32 %d0, %r1;", parameters);
  add("param_generic", "cvta.param.u64 %a, %a; ld.u64 %d0, [%a];", parameters);
  add("param_generic_st", "cvta.param.u64 %a, %a; st.u64 [%a], %d0;", parameters);
  add("call_number", "add.u64 %a, %a, 4398046511104; call.uni %a, (), PROTO; PROTO: .callprototype _ ();", {16, 4096});
  return all;
}

class Escape : public HostFixture, public testing::WithParamInterface<Case> {};

TEST_P(Escape, EndsTheLaunch) {
  std::fill(std::begin(secret), std::end(secret), kMagic);
  const std::string text = kernel_text(GetParam().body, GetParam().lanes);
  LibraryRef library;
  KernelRef kernel;
  std::string log;
  ASSERT_EQ(device->library_load(std::as_bytes(std::span(text)), &library, &log), CUDA_SUCCESS) << log;
  ASSERT_EQ(device->library_kernel(library, "k", &kernel), CUDA_SUCCESS);
  const uint64_t out = alloc(64);
  ASSERT_EQ(launch(legacy, kernel, 1, 32, GetParam().address, out), CUDA_SUCCESS);
  EXPECT_NE(sync(legacy), CUDA_SUCCESS);
  uint64_t value;
  std::memcpy(&value, reinterpret_cast<const void*>(out), sizeof value);  // the device refuses copies now
  EXPECT_EQ(value, 0u);
  for (const uint64_t word : secret) ASSERT_EQ(word, kMagic);
  EXPECT_EQ(host.printed().find("\xc7\x5e"), std::string::npos);
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Global, Escape, testing::ValuesIn(global_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Spaces, Escape, testing::ValuesIn(other_cases()), name_of);

// What a few bytes of PTX may make this process hold.
class Budget : public HostFixture {
 protected:
  // Of loading the module and asking for its kernel `k`, if it has one.
  CUresult load(const std::string& text) {
    const std::string whole = std::string(kHead) + text;
    LibraryRef library;
    log_.clear();
    if (const CUresult refused = device->library_load(std::as_bytes(std::span(whole)), &library, &log_)) return refused;
    KernelRef kernel;
    const CUresult found = device->library_kernel(library, "k", &kernel);
    if (found == CUDA_ERROR_NOT_FOUND) {
      uint64_t address = 0, bytes = 0;
      const CUresult placed = device->library_global(context, library, "a", &address, &bytes);
      if (placed == CUDA_SUCCESS) word_ = *reinterpret_cast<const uint8_t*>(address);
      return placed;
    }
    return found ? found : launch(legacy, kernel, 1, 32);
  }
  static uint64_t resident() {
    std::ifstream file("/proc/self/statm");
    uint64_t total = 0, pages = 0;
    file >> total >> pages;
    return pages * 4096;
  }
  std::string log_;
  int word_ = 0;
};

TEST_F(Budget, InitialValuesTakeWhatTheirTextTakes) {
  const uint64_t before = resident();
  EXPECT_EQ(load(".global .align 1 .b8 a[1000000000] = {7};"), CUDA_SUCCESS);
  EXPECT_EQ(word_, 7);
  EXPECT_LT(resident(), before + (64 << 20));
  EXPECT_EQ(load(".global .align 1 .b8 a[2][500000000] = {{8}, {9}};"), CUDA_ERROR_OUT_OF_MEMORY);  // beside the first
  EXPECT_LT(resident(), before + (64 << 20));
}

TEST_F(Budget, SizesThatWrapAreRefused) {
  const std::string half = "[" + std::to_string(uint64_t{1} << 63) + "]";
  EXPECT_NE(load(".global .align 1 .b8 a" + half + " = {1};\n.global .align 1 .b8 b" + half + ";"), CUDA_SUCCESS);
  std::string many;
  for (int i = 0; i < 40; ++i)
    many += ".global .align 1 .b8 v" + std::to_string(i) + "[" + std::to_string(uint64_t{1} << 59) + "];\n";
  EXPECT_EQ(load(many + ".global .u32 a = 1;"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(load(".visible .entry k() { .local .align 1 .b8 x" + half + "; .local .align 1 .b8 y" + half + "; ret; }"),
            CUDA_SUCCESS);
  EXPECT_NE(
      load(".visible .entry k() { .shared .align 1 .b8 x" + half + "; .shared .align 1 .b8 y" + half + "; ret; }"),
      CUDA_SUCCESS);
}

TEST_F(Budget, LocalMemoryHasALimit) {
  EXPECT_EQ(load(".visible .entry k() { .local .b8 x[500000]; ret; }"), CUDA_SUCCESS);
  EXPECT_NE(load(".visible .entry k() { .local .b8 x[600000]; ret; }"), CUDA_SUCCESS);
  EXPECT_NE(load(".visible .entry k() { .local .b8 x[16000000]; ret; }"), CUDA_SUCCESS);
  // Of a chain of calls, too, where sums of 32 bits would wrap.
  std::string chain = ".func f0() { .local .b8 x[500000]; ret; }\n";
  for (int i = 1; i < 4; ++i)
    chain +=
        ".func f" + std::to_string(i) + "() { .local .b8 x[500000]; call.uni f" + std::to_string(i - 1) + "; ret; }\n";
  EXPECT_NE(load(chain + ".visible .entry k() { call.uni f3; ret; }"), CUDA_SUCCESS);
}

TEST_F(Budget, NumberedVariablesHaveALimit) {
  const uint64_t before = resident();
  EXPECT_NE(load(".visible .entry k() { .local .b8 a<2000000>; ret; }"), CUDA_SUCCESS);
  EXPECT_NE(load(".visible .entry k() { .local .b8 a<4000000000>; ret; }"), CUDA_SUCCESS);
  EXPECT_LT(resident(), before + (64 << 20));
}

TEST_F(Budget, ParametersHaveALimit) {
  std::string parameters = ".param .align 1 .b8 p0[32764]";
  for (int i = 1; i < 8; ++i) parameters += ", .param .align 1 .b8 p" + std::to_string(i) + "[32764]";
  EXPECT_NE(load(".visible .entry k(" + parameters + ") { ret; }"), CUDA_SUCCESS);
}

TEST_F(Budget, VectorsAreNoParameters) {
  const std::string function = ".func (.param .v4 .b32 r) f(.param .v4 .b32 x) { ret; }\n";
  EXPECT_NE(load(function + ".visible .entry k() { .reg .b32 %r; { .param .v4 .b32 x; .param .v4 .b32 r;"
                            "call.uni (r), f, (x); } ret; }"),
            CUDA_SUCCESS);
  EXPECT_NE(load(".func f(.param .pred x) { ret; }\n.visible .entry k() { { .param .pred x; call.uni f, (x); } ret; }"),
            CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::soft
