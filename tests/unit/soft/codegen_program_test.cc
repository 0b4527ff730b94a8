// What a program says about itself, what is refused and how, and the cache of object code.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backend/device/soft/codegen/cache.h"
#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

const std::string kHead = ".version 8.6\n.target sm_90\n.address_size 64\n";

std::string entry(const std::string& body) {
  return kHead + ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n" +
         body + "\nret;\n}\n";
}

std::string refusal(const std::string& text) {
  CompileOptions options;
  options.window_base = window_base();
  std::string log;
  auto program = compile(text, options, &log);
  if (!program) return log;
  auto loaded = program->load({}, &log);
  if (program->kernel("k", &log)) {
    EXPECT_EQ(loaded->entry("k", &log), nullptr) << text;
  }
  return log;
}

TEST(CodegenProgram, RefusesWithLineAndInstruction) {
  struct {
    const char *body, *part;
  } cases[] = {
      {"tex.1d.v4.f32.s32 {%r1,%r2,%r3,%r4}, [p, {%r1}];", "texture operand"},
      {"tex.2dms.v4.f32.s32 {%r1,%r2,%r3,%r4}, [p, {%r1,%r1,%r1,%r1}];", "tex.2dms"},
      {"add.a2d.u32 %r1, %r2, %r3;", "add.a2d"},
      {"add.s32.wonderful %r1, %r2, %r3;", "add.s32.wonderful"},
      {"frobnicate.b32 %r1, %r2;", "frobnicate"},
      {"mov.u32 %r1, %imaginary;", "%imaginary"},
      {"bra nowhere;", "nowhere"},
      {"add.s32 %r1, %r2, %unknown;", "%unknown"},
      {"ld.param.u32 %r1, [p+6];", "ld.param"},
      {"tcgen05.wait::ld.sync.aligned;", "tcgen05"},
  };
  for (auto& c : cases) {
    std::string log = refusal(entry(c.body));
    EXPECT_NE(log.find("line 9"), std::string::npos) << log;
    EXPECT_NE(log.find(c.part), std::string::npos) << log;
  }
  EXPECT_NE(refusal("garbage").find("line"), std::string::npos);
  EXPECT_NE(refusal("").size(), 0u);
}

TEST(CodegenProgram, KernelsAreCompiledByThemselves) {
  Kernels k(kHead + R"(
.visible .entry good(.param .u64 p)
{
  .reg .b64 %rd; .reg .b32 %r;
  ld.param.u64 %rd, [p]; mov.u32 %r, 7; st.global.u32 [%rd], %r; ret;
}
.visible .entry unknown() {
  .reg .b64 %rd; .reg .b32 %r<4>; tex.2dms.v4.f32.s32 {%r0,%r1,%r2,%r3}, [%rd, {%r0}];
}
.visible .entry nowhere() {
  bra nowhere_at_all;
}
.visible .entry later() {
  .reg .b64 %rd; .reg .b32 %r; .reg .pred %p;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%rd], %r;
  tcgen05.ld.sync.aligned.32x32b.x8.pack::16b.b32 {%r,%r,%r,%r,%r,%r,%r,%r}, [%r];
  tcgen05.st.sync.aligned.16x64b.x1.unpack::16b.b32 [%r], {%r};
  tcgen05.cp.cta_group::2.128x256b [%r], %rd;
  tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b6x16_p32 [%r], %rd;
  tcgen05.shift.cta_group::1.down [%r];
  tcgen05.mma.cta_group::1.kind::f16.ashift [%r], [%r], %rd, %r, %p;
  tcgen05.mma.ws.cta_group::1.kind::i8.collector::b0::fill [%r], %rd, %rd, %r, %p;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%rd], %r;
  tcgen05.wait::ld.sync.aligned;
})");
  ASSERT_TRUE(k.ok()) << k.log();
  EXPECT_EQ(k.program().kernel_names(), (std::vector<std::string>{"good", "unknown", "nowhere", "later"}));
  std::string log;
  EXPECT_EQ(k.program().kernel("unknown", &log), nullptr);
  EXPECT_NE(log.find("line 11"), std::string::npos) << log;
  EXPECT_EQ(k.program().kernel("nowhere", &log), nullptr);
  EXPECT_NE(log.find("line 14"), std::string::npos) << log;
  EXPECT_EQ(k.program().kernel("later", &log), nullptr);
  EXPECT_NE(log.find("tcgen05"), std::string::npos) << log;
  auto* out = array<uint32_t>(1);
  EXPECT_EQ(k.launch("good", {}, out).fault, 0u);
  EXPECT_EQ(*out, 7u);
  // What does not parse is refused with the whole, whichever kernel it is in.
  CompileOptions options;
  EXPECT_EQ(compile(kHead + ".entry a() { ret; }\n.entry b() {\n mov.u32 ;;) }", options, &log), nullptr);
  EXPECT_NE(log.find("line 6"), std::string::npos) << log;
}

// Words that PTX does not have refuse a module; a PTX later than this compiler may have them.
TEST(CodegenProgram, WordsOfALaterPtxRefuseTheirKernelAlone) {
  const std::string kernels = R"(.target sm_90
.address_size 64
.visible .entry good(.param .u64 p)
{
  .reg .b64 %rd; .reg .b32 %r;
  ld.param.u64 %rd, [p]; mov.u32 %r, 7; st.global.u32 [%rd], %r; ret;
}
.visible .entry strange() { .reg .b32 %r<3>; frobnicate.b32 %r1, %r2; }
.visible .entry odd() { .reg .b32 %r<3>; add.s32.wonderful %r1, %r2, %r2; }
)";
  std::string log;
  EXPECT_EQ(compile(".version 9.4\n" + kernels, {}, &log), nullptr);
  EXPECT_NE(log.find("frobnicate"), std::string::npos) << log;
  Kernels k(".version 9.9\n" + kernels);
  ASSERT_TRUE(k.ok()) << k.log();
  for (const char* word : {"frobnicate", "wonderful"}) {
    EXPECT_EQ(k.program().kernel(word[0] == 'f' ? "strange" : "odd", &log), nullptr);
    EXPECT_NE(log.find(word), std::string::npos) << log;
  }
  auto* out = array<uint32_t>(1);
  EXPECT_EQ(k.launch("good", {}, out).fault, 0u);
  EXPECT_EQ(*out, 7u);
}

TEST(CodegenProgram, DescribesKernels) {
  Kernels k(kHead + R"(
.visible .global .align 8 .u32 counter[3] = {1, 2};
.global .u64 pointer = counter;
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u32 a, .param .u64 b, .param .align 16 .b8 c[20]) .maxntid 128, 2, 1
{
  .shared .align 4 .b8 s[100];
  .local .align 8 .b8 l[24];
  .reg .b32 %r<4>;
  mov.u32 %r1, dynamic;
  st.shared.u32 [%r1], %r1;
  bar.sync 0;
  ret;
}
.visible .entry plain() { ret; }
.visible .entry bound() .maxntid 256 .minnctapersm 4 .maxnreg 40 { ret; }
.visible .entry largest() { .shared .align 4 .b8 s[49152]; ret; }
)");
  ASSERT_TRUE(k.ok()) << k.log();
  std::string log;
  const KernelCode& c = *k.program().kernel("k", &log);
  EXPECT_EQ(c.name, "k");
  ASSERT_EQ(c.parameters.size(), 3u);
  EXPECT_EQ(c.parameters[1].offset, 8u);
  EXPECT_EQ(c.parameters[2].offset, 16u);
  EXPECT_EQ(c.parameter_bytes, 36u);
  EXPECT_EQ(c.static_shared_bytes, 112u);
  EXPECT_GE(c.local_bytes, 24u);
  EXPECT_EQ(c.max_threads, 256u);
  EXPECT_TRUE(c.uses_barrier);
  const KernelCode& plain = *k.program().kernel("plain", &log);
  EXPECT_FALSE(plain.uses_barrier);
  EXPECT_EQ(plain.least_blocks, 1u);
  EXPECT_EQ(plain.most_registers, 255u);
  EXPECT_EQ(k.program().kernel("bound", &log)->least_blocks, 4u);
  EXPECT_EQ(k.program().kernel("bound", &log)->most_registers, 40u);
  EXPECT_EQ(k.program().kernel("largest", &log)->static_shared_bytes, 49152u);
  ASSERT_EQ(k.program().variables().size(), 2u);
  EXPECT_EQ(k.program().variables()[0].bytes, 12u);
  EXPECT_EQ(k.program().variables()[1].pointers.at(0).target, "counter");
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(k.address("pointer")), k.address("counter"));
}

// As ptxas refuses it: with the module.
TEST(CodegenProgram, KernelsWithTooMuchSharedMemoryAreRefusedWhenTheyAreLoaded) {
  for (const char* body : {".shared .align 4 .b8 s[49156];", ".shared .b8 a[30000]; { .shared .b8 b[30000]; }"}) {
    Kernels k(kHead + std::string(".visible .entry small() { ret; }\n.visible .entry larger() { ") + body +
              " ret; }\n");
    EXPECT_FALSE(k.ok());
    EXPECT_NE(k.log().find("larger: uses too much shared data"), std::string::npos) << k.log();
  }
}

// As clang writes variables of kernels, here more than a block may have: in front of all kernels.
TEST(CodegenProgram, SharedVariablesOfTheModuleTakeRoomWhereTheyAreNamed) {
  constexpr auto kPtx = R"(
.weak .shared .align 4 .b8 others[40000];
.weak .shared .align 4 .b8 first[4];
.weak .shared .align 8 .b8 second[40000];
.shared .align 4 .b8 callee[8];
.func called(.reg .u32 v) { st.shared.u32 [callee+4], v; ret; }
.visible .entry other() { st.shared.u32 [others+39996], 1; ret; }
.visible .entry both(.param .u64 out)
{
  .shared .align 4 .b8 own[4];
  .reg .b32 %r<5>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  st.shared.u32 [own], 1;
  st.shared.u32 [first], 20;
  st.shared.u32 [second], 300;
  st.shared.u32 [second+39996], 4000;
  mov.u32 %r1, 50000;
  call called, (%r1);
  ld.shared.u32 %r1, [own];
  ld.shared.u32 %r2, [first];
  add.u32 %r1, %r1, %r2;
  ld.shared.u32 %r2, [second];
  add.u32 %r1, %r1, %r2;
  ld.shared.u32 %r2, [second+39996];
  add.u32 %r1, %r1, %r2;
  ld.shared.u32 %r2, [callee+4];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry none() { ret; }
)";
  for (const bool one_by_one : {false, true}) {
    SCOPED_TRACE(one_by_one);
    reset_memory();
    Kernels k(kHead + kPtx, "", one_by_one);
    ASSERT_TRUE(k.ok()) << k.log();
    std::string log;
    EXPECT_EQ(k.program().kernel("none", &log)->static_shared_bytes, 0u);
    EXPECT_EQ(k.program().kernel("other", &log)->static_shared_bytes, 40000u);
    EXPECT_EQ(k.program().kernel("both", &log)->static_shared_bytes, 40020u);
    auto* out = array<uint32_t>(1);
    EXPECT_EQ(k.launch("both", {}, out).fault, 0u);
    EXPECT_EQ(*out, 54321u);
    EXPECT_EQ(k.launch("other", {}).fault, 0u);
  }
}

// Taichi's shared arrays are such; ptxas says "ignoring extern qualifier" of them.
TEST(CodegenProgram, LaysOutExternVariablesThatHaveASize) {
  Kernels k(kHead + R"(
.extern .shared .align 8 .b8 sized[512];
.extern .shared .b32 defined;
.shared .b32 defined;
.extern .shared .align 16 .b8 dynamic[];
.extern .global .align 4 .b8 table[8];
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 7;
  st.shared.u32 [sized+508], %r1;
  st.shared.u32 [defined], 5;
  st.global.u32 [table+4], 4;
  ld.shared.u32 %r1, [sized+508];
  ld.shared.u32 %r2, [defined];
  ld.global.u32 %r3, [table+4];
  mad.lo.u32 %r1, %r1, %r2, %r3;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry ends() { .reg .b32 %r<2>; mov.u32 %r1, dynamic; st.shared.u32 [%r1], %r1; ret; }
)");
  ASSERT_TRUE(k.ok()) << k.log();
  std::string log;
  EXPECT_EQ(k.program().kernel("k", &log)->static_shared_bytes, 516u);
  auto* out = array<uint32_t>(1);
  EXPECT_EQ(k.launch("k", {}, out).fault, 0u);
  EXPECT_EQ(*out, 39u);
  EXPECT_NE(k.launch("ends", {}).fault, 0u);  // the launch gives it nothing
}

// As Taichi declares and calls them; ptxas takes that.
TEST(CodegenProgram, CallsSystemFunctionsWithoutTheirResult) {
  Kernels k(kHead + R"(
.extern .func vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[3] = {104, 105, 0};
.visible .entry k()
{
  .reg .b64 %rd<3>;
  .local .align 8 .b8 arguments[8];
  st.local.u32 [arguments], 9;
  mov.u64 %rd1, text;
  cvta.global.u64 %rd1, %rd1;
  mov.u64 %rd2, arguments;
  cvta.local.u64 %rd2, %rd2;
  {
    .param .b64 f;
    .param .b64 a;
    st.param.b64 [f], %rd1;
    st.param.b64 [a], %rd2;
    call.uni vprintf, (f, a);
  }
  ret;
}
)");
  ASSERT_TRUE(k.ok()) << k.log();
  const Outcome outcome = k.launch("k", {});
  EXPECT_EQ(outcome.fault, 0u);
  EXPECT_EQ(outcome.printed.substr(0, 4), "hi9;");
}

TEST(CodegenProgram, CacheSurvivesDamage) {
  char folder[] = "/tmp/bandsaw-cache-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  CompileOptions options;
  options.window_base = window_base();
  options.cache_directory = std::string(folder) + "/cache";
  const std::string text = entry("mov.u32 %r1, 1;");
  auto objects = [&] {
    std::vector<std::filesystem::path> files;
    for (auto& f : std::filesystem::directory_iterator(options.cache_directory)) files.push_back(f.path());
    return files;
  };
  auto works = [&] {
    std::string log;
    auto p = compile(text, options, &log);
    if (!p) return false;
    auto loaded = p->load({}, &log);
    return loaded && loaded->entry("k", &log) != nullptr;
  };
  ASSERT_TRUE(works());
  ASSERT_EQ(objects().size(), 1u);
  auto file = objects()[0];
  auto size = std::filesystem::file_size(file);
  ASSERT_TRUE(works());
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(size / 2));
    f.write("damage", 6);
  }
  EXPECT_TRUE(works());
  std::filesystem::resize_file(file, 10);
  EXPECT_TRUE(works());
  ASSERT_EQ(objects().size(), 1u);
  EXPECT_EQ(std::filesystem::file_size(file), size);
  // Not what somebody else may have written, nor what a link leads to.
  std::filesystem::permissions(file, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_EQ(cache_read(options.cache_directory, file.stem()), std::vector<char>());
  EXPECT_TRUE(works());
  const auto elsewhere = std::filesystem::path(folder) / "elsewhere.o";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);
  EXPECT_EQ(cache_read(options.cache_directory, file.stem()), std::vector<char>());
  EXPECT_TRUE(works());
  std::filesystem::remove_all(folder);
  options.cache_directory = "/proc/nowhere";  // cannot be written: compiles all the same
  EXPECT_TRUE(works());
}

TEST(CodegenProgram, CacheHasAQuota) {
  char folder[] = "/tmp/bandsaw-cache-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  constexpr uint64_t kQuota = 1 << 20;
  const std::vector<char> object(200 << 10, 'x');
  for (int i = 0; i < 20; ++i) {
    cache_write(folder, "object" + std::to_string(i), object, kQuota);
    EXPECT_EQ(cache_read(folder, "object0"), object) << i;  // what is used stays
    ::usleep(2000);
  }
  uint64_t bytes = 0, files = 0;
  for (auto& f : std::filesystem::directory_iterator(folder)) bytes += f.file_size(), ++files;
  EXPECT_LE(bytes, kQuota);
  EXPECT_GE(files, 3u);
  EXPECT_EQ(cache_read(folder, "object19"), object);
  cache_write(folder, "large", std::vector<char>(2 << 20), kQuota);
  EXPECT_EQ(cache_read(folder, "large"), std::vector<char>());
  std::filesystem::remove_all(folder);
}

TEST(CodegenProgram, LoadingTwiceGivesIndependentCode) {
  CompileOptions options;
  options.window_base = window_base();
  std::string log;
  auto p = compile(
      kHead +
          ".global .u32 v;\n.visible .entry k() { .reg .b32 %r; ld.global.u32 %r, [v]; st.global.u32 [v], %r; ret; }",
      options, &log);
  ASSERT_NE(p, nullptr) << log;
  EXPECT_EQ(p->load({}, &log), nullptr);  // v has no address
  EXPECT_NE(log.find("v"), std::string::npos);
  auto a = p->load({{"v", window_base()}}, &log), b = p->load({{"v", window_base() + 64}}, &log);
  ASSERT_TRUE(a && b) << log;
  EXPECT_NE(a->entry("k", &log), b->entry("k", &log));
}

// A loop that waits for others gives way to them. One that only counts waits for nobody.
TEST(CodegenProgram, CountingWaitsForNobody) {
  reset_memory();
  Kernels k(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry count(.param .u64 at) {
  .reg .b32 %r<3>; .reg .b64 %d; .reg .pred %p;
  ld.param.u64 %d, [at]; mov.u32 %r1, 0;
again:
  atom.global.add.u32 %r2, [%d], 1; add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, 1000; @%p bra again;
  ret;
}
.visible .entry count_to(.param .u64 at) {
  .reg .b32 %r<3>; .reg .b64 %d; .reg .pred %p;
  ld.param.u64 %d, [at];
again:
  atom.global.add.u32 %r2, [%d], 1;
  setp.lt.u32 %p, %r2, 32000; @%p bra again;
  ret;
}
)");
  ASSERT_TRUE(k.ok()) << k.log();
  std::string log;
  EXPECT_FALSE(k.program().kernel("count", &log)->uses_barrier);
  EXPECT_TRUE(k.program().kernel("count_to", &log)->uses_barrier);
  auto* at = array<uint32_t>(1);
  *at = 0;
  const Outcome counted = k.launch("count", {}, at);
  EXPECT_EQ(*at, 32000u);
  EXPECT_EQ(counted.yields, 0u);
  *at = 0;
  const Outcome waited = k.launch("count_to", {}, at);
  EXPECT_EQ(*at, 32032u);
  EXPECT_GT(waited.yields, 0u);
}

}  // namespace
}  // namespace bandsaw::soft::test
