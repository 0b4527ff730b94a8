// wmma: whole matrices of random elements, in every layout, against sums in the order that the compiled code has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test::wmma {
namespace {

double bf16_value(uint64_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }
double tf32_value(uint64_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) & ~0x1fffu); }
double s8_value(uint64_t v) { return static_cast<int8_t>(v); }
double u8_value(uint64_t v) { return static_cast<double>(v); }
double f64_value(uint64_t v) { return std::bit_cast<double>(v); }

struct Form {
  const char *shape, *type, *sum;
  uint32_t m, n, k, bytes, registers;  // of an element; of a and b
  double (*value)(uint64_t);
  bool integer() const { return std::strcmp(sum, "s32") == 0; }
  bool wide() const { return bytes == 8; }
  uint32_t sums() const { return m * n / 32; }
};

std::string fragment(const char* name, uint32_t first, uint32_t count) {
  std::string all = "{";
  for (uint32_t i = 0; i < count; ++i) all += (i ? std::string(", ") : "") + name + std::to_string(first + i);
  return all + "}";
}

std::string kernel(const Form& f, const std::string& a_layout, const std::string& b_layout) {
  const char* const word = f.wide() ? "%d" : "%r";
  const std::string a = fragment(word, 10, f.registers), b = fragment(word, 20, f.registers);
  const std::string sums = fragment(word, 30, f.sums()), head = "wmma.", shape = std::string(".") + f.shape;
  const std::string type = f.type, sum = f.sum;
  const auto stride = [](bool row, uint32_t row_length, uint32_t column_length) {
    return std::to_string((row ? row_length : column_length) + 16);
  };
  const std::string types = type == "f64" ? ".f64.f64.f64.f64" : "." + sum + "." + type + "." + type + "." + sum;
  return R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
  .reg .b32 %r<50>; .reg .b64 %rd<5>; .reg .f64 %d<50>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
)" + head +
         "load.a.sync.aligned." + a_layout + shape + ".global." + type + " " + a + ", [%rd1], " +
         stride(a_layout == "row", f.k, f.m) + ";\n" + head + "load.b.sync.aligned." + b_layout + shape + ".global." +
         type + " " + b + ", [%rd2], " + stride(b_layout == "row", f.n, f.k) + ";\n" + head +
         "load.c.sync.aligned.row" + shape + ".global." + sum + " " + sums + ", [%rd3], " + std::to_string(f.n) +
         ";\n" + head + "mma.sync.aligned." + a_layout + "." + b_layout + shape + types + " " + sums + ", " + a + ", " +
         b + ", " + sums + ";\n" + head + "store.d.sync.aligned.row" + shape + ".global." + sum + " [%rd4], " + sums +
         ", " + std::to_string(f.n) + ";\nret;\n}\n";
}

// Numbers of like sizes, so that sums are rounded at each step.
uint64_t random_element(const Form& f, std::mt19937_64* random) {
  const uint64_t bits = (*random)();
  if (f.bytes == 1) return bits & 0xff;
  if (f.bytes == 2) return (bits & 0x80ff) | 0x3f00;
  if (f.bytes == 4) return (bits & 0x80ffffff) | 0x3f000000;
  return (bits & 0x801f'ffff'ffff'ffff) | 0x3fe0'0000'0000'0000;
}

struct Matrices {
  std::byte *a, *b, *c, *d;
};

uint64_t element(const std::byte* matrix, uint32_t bytes, uint32_t at) {
  uint64_t value = 0;
  std::memcpy(&value, matrix + size_t{at} * bytes, bytes);
  return value;
}

void check(const Form& f, const Matrices& all, bool a_rows, bool b_rows) {
  const uint32_t a_stride = (a_rows ? f.k : f.m) + 16, b_stride = (b_rows ? f.n : f.k) + 16;
  for (uint32_t i = 0; i < f.m; ++i)
    for (uint32_t j = 0; j < f.n; ++j) {
      const uint32_t at = i * f.n + j;
      const uint64_t c = element(all.c, f.wide() ? 8 : 4, at), got = element(all.d, f.wide() ? 8 : 4, at);
      double want = f.wide()      ? std::bit_cast<double>(c)
                    : f.integer() ? static_cast<double>(static_cast<int32_t>(c))
                                  : std::bit_cast<float>(static_cast<uint32_t>(c));
      for (uint32_t k = 0; k < f.k; ++k)
        want = std::fma(f.value(element(all.a, f.bytes, a_rows ? i * a_stride + k : k * a_stride + i)),
                        f.value(element(all.b, f.bytes, b_rows ? k * b_stride + j : j * b_stride + k)), want);
      const uint64_t bits = f.wide()      ? std::bit_cast<uint64_t>(want)
                            : f.integer() ? static_cast<uint32_t>(static_cast<int64_t>(want))
                                          : std::bit_cast<uint32_t>(static_cast<float>(want));
      ASSERT_EQ(got, bits) << f.shape << " " << f.type << " " << a_rows << b_rows << " " << i << " " << j;
    }
}

void run(const Form& f, bool a_rows, bool b_rows, std::mt19937_64* random) {
  reset_memory();
  Kernels k(kernel(f, a_rows ? "row" : "col", b_rows ? "row" : "col"));
  ASSERT_TRUE(k.ok()) << k.log();
  constexpr uint32_t kMost = 64 * 64;
  const uint32_t sum_bytes = f.wide() ? 8 : 4;
  const Matrices all{array<std::byte>(kMost * 8), array<std::byte>(kMost * 8), array<std::byte>(f.m * f.n * 8),
                     array<std::byte>(f.m * f.n * 8)};
  for (uint32_t i = 0; i < kMost; ++i) {
    for (std::byte* const matrix : {all.a, all.b}) {
      const uint64_t value = random_element(f, random);
      std::memcpy(matrix + size_t{i} * f.bytes, &value, f.bytes);
    }
  }
  for (uint32_t i = 0; i < f.m * f.n; ++i) {
    const uint64_t value =
        f.wide() ? random_element(f, random)
                 : (f.integer() ? (*random)() : std::bit_cast<uint32_t>(static_cast<float>((*random)() % 1000) / 7));
    std::memcpy(all.c + size_t{i} * sum_bytes, &value, sum_bytes);
  }
  ASSERT_EQ(k.launch("k", {}, all.a, all.b, all.c, all.d).fault, 0u);
  check(f, all, a_rows, b_rows);
}

TEST(CodegenWmma, RandomMatricesInEveryLayout) {
  const Form forms[] = {{"m16n16k16", "bf16", "f32", 16, 16, 16, 2, 4, bf16_value},
                        {"m16n16k8", "tf32", "f32", 16, 16, 8, 4, 4, tf32_value},
                        {"m16n16k16", "s8", "s32", 16, 16, 16, 1, 2, s8_value},
                        {"m16n16k16", "u8", "s32", 16, 16, 16, 1, 2, u8_value},
                        {"m8n8k4", "f64", "f64", 8, 8, 4, 8, 1, f64_value}};
  std::mt19937_64 random(11);
  for (const Form& f : forms) {
    for (const bool a_rows : {true, false})
      for (const bool b_rows : {true, false}) run(f, a_rows, b_rows, &random);
  }
}

// Fragments whose lanes have room for more than the matrix, and matrices that are not square.
TEST(CodegenWmma, RandomMatricesOfOtherShapes) {
  const Form forms[] = {{"m32n8k16", "bf16", "f32", 32, 8, 16, 2, 8, bf16_value},
                        {"m8n32k16", "bf16", "f32", 8, 32, 16, 2, 8, bf16_value},
                        {"m32n8k16", "u8", "s32", 32, 8, 16, 1, 4, u8_value},
                        {"m8n32k16", "s8", "s32", 8, 32, 16, 1, 4, s8_value}};
  std::mt19937_64 random(12);
  for (const Form& f : forms) {
    for (const bool rows : {true, false}) run(f, rows, !rows, &random);
  }
}

}  // namespace
}  // namespace bandsaw::soft::test::wmma
