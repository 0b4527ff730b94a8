// The products that wgmma.cu makes: for each its types, shape and instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

// How numbers of one type are written: as bits, in the low part of a word.
struct Kind {
  int bits;
  bool is_signed;
  uint32_t (*encode)(double);
};

template <class T>
uint32_t bits_of(T value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

inline const Kind kF16 = {16, true, [](double v) { return bits_of(__double2half(v)); }};
inline const Kind kBf16 = {16, true, [](double v) { return bits_of(__double2bfloat16(v)); }};
inline const Kind kTf32 = {32, true, [](double v) { return bits_of(float(v)); }};
inline const Kind kE4m3 = {8, true, [](double v) { return bits_of(__nv_fp8_e4m3(v)); }};
inline const Kind kE5m2 = {8, true, [](double v) { return bits_of(__nv_fp8_e5m2(v)); }};
inline const Kind kS8 = {8, true, [](double v) { return bits_of(int8_t(v)); }};
inline const Kind kU8 = {8, false, [](double v) { return bits_of(uint8_t(v)); }};
inline const Kind kBit = {1, false, [](double v) { return uint32_t(v); }};

// What accumulators hold: floats, pairs of halves, or integers.
enum class Sum { kFloat, kHalf, kInteger };

template <int N, Sum S, bool Registers = false, bool LeftTurned = false, bool RightTurned = false, int Sign = 1>
struct Form {
  static constexpr int kColumns = N, kResults = S == Sum::kHalf ? N / 4 : N / 2, kSign = Sign;
  static constexpr bool kLeftInRegisters = Registers, kLeftTurned = LeftTurned, kRightTurned = RightTurned;
  static void store(uint32_t* d, int i, int lane, double value) {
    if (S == Sum::kHalf) {
      const uint32_t half = bits_of(__double2half(value));
      uint32_t& word = d[i / 2 * 128 + lane];
      word = i % 2 ? (word & 0xffff) | half << 16 : half;
    } else {
      d[i * 128 + lane] = S == Sum::kFloat ? bits_of(float(value)) : uint32_t(int32_t(value));
    }
  }
  static double load(const uint32_t* d, int i, int lane) {
    if (S == Sum::kHalf) {
      const auto bits = uint16_t(d[i / 2 * 128 + lane] >> (16 * (i % 2)));
      __half half;
      std::memcpy(&half, &bits, 2);
      return __half2float(half);
    }
    float real;
    std::memcpy(&real, &d[i * 128 + lane], 4);
    return S == Sum::kFloat ? real : int32_t(d[i * 128 + lane]);
  }
};

#define LIST2 "{%0, %1}"
#define LIST4 "{%0, %1, %2, %3}"
#define LIST8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define LIST16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define LIST64                                                                       \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define OUT2(i) "+r"(sums[i]), "+r"(sums[i + 1])
#define OUT4(i) OUT2(i), OUT2(i + 2)
#define OUT8(i) OUT4(i), OUT4(i + 4)
#define OUT16(i) OUT8(i), OUT8(i + 8)
#define OUT64(i) OUT16(i), OUT16(i + 16), OUT16(i + 32), OUT16(i + 48)

// `adds`: the number of the operand that says whether the old values are added.
#define WGMMA(name, list, operands, adds, ...)                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds                                                     \
               ", 0;\nwgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned." name " " list ", " operands \
               ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"                   \
               : __VA_ARGS__)
#define MULTIPLY \
  static __device__ __forceinline__ void multiply(uint32_t* sums, const uint32_t* own, uint64_t a, uint64_t b, int adds)
#define FROM_SHARED "l"(a), "l"(b), "r"(adds)
#define FROM_REGISTERS "r"(own[0]), "r"(own[1]), "r"(own[2]), "r"(own[3]), "l"(b), "r"(adds)

struct F16 : Form<16, Sum::kFloat> {
  static Kind left() { return kF16; }
  static Kind right() { return kF16; }
  MULTIPLY { WGMMA("m64n16k16.f32.f16.f16", LIST8, "%8, %9, p, 1, 1, 0, 0", "%10", OUT8(0) : FROM_SHARED); }
};
struct F16Turned : Form<128, Sum::kFloat, false, true, true, -1> {
  static Kind left() { return kF16; }
  static Kind right() { return kF16; }
  MULTIPLY { WGMMA("m64n128k16.f32.f16.f16", LIST64, "%64, %65, p, -1, 1, 1, 1", "%66", OUT64(0) : FROM_SHARED); }
};
struct F16Registers : Form<32, Sum::kFloat, true, false, true> {
  static Kind left() { return kF16; }
  static Kind right() { return kF16; }
  MULTIPLY {
    WGMMA("m64n32k16.f32.f16.f16", LIST16, "{%16, %17, %18, %19}, %20, p, 1, 1, 1", "%21", OUT16(0) : FROM_REGISTERS);
  }
};
struct F16Halves : Form<8, Sum::kHalf, false, true, false> {
  static Kind left() { return kF16; }
  static Kind right() { return kF16; }
  MULTIPLY { WGMMA("m64n8k16.f16.f16.f16", LIST2, "%2, %3, p, -1, -1, 1, 0", "%4", OUT2(0) : FROM_SHARED); }
};
struct Bf16 : Form<16, Sum::kFloat, false, false, false, -1> {
  static Kind left() { return kBf16; }
  static Kind right() { return kBf16; }
  MULTIPLY { WGMMA("m64n16k16.f32.bf16.bf16", LIST8, "%8, %9, p, 1, -1, 0, 0", "%10", OUT8(0) : FROM_SHARED); }
};
struct Tf32 : Form<8, Sum::kFloat> {
  static Kind left() { return kTf32; }
  static Kind right() { return kTf32; }
  MULTIPLY { WGMMA("m64n8k8.f32.tf32.tf32", LIST4, "%4, %5, p, 1, 1", "%6", OUT4(0) : FROM_SHARED); }
};
struct E4m3 : Form<32, Sum::kFloat> {
  static Kind left() { return kE4m3; }
  static Kind right() { return kE5m2; }
  MULTIPLY { WGMMA("m64n32k32.f32.e4m3.e5m2", LIST16, "%16, %17, p, 1, 1", "%18", OUT16(0) : FROM_SHARED); }
};
struct E5m2Registers : Form<16, Sum::kHalf, true, false, false, -1> {
  static Kind left() { return kE5m2; }
  static Kind right() { return kE4m3; }
  MULTIPLY {
    WGMMA("m64n16k32.f16.e5m2.e4m3", LIST4, "{%4, %5, %6, %7}, %8, p, -1, 1", "%9", OUT4(0) : FROM_REGISTERS);
  }
};
struct S8 : Form<32, Sum::kInteger> {
  static Kind left() { return kS8; }
  static Kind right() { return kU8; }
  MULTIPLY { WGMMA("m64n32k32.satfinite.s32.s8.u8", LIST16, "%16, %17, p", "%18", OUT16(0) : FROM_SHARED); }
};
struct U8Registers : Form<8, Sum::kInteger, true> {
  static Kind left() { return kU8; }
  static Kind right() { return kS8; }
  MULTIPLY { WGMMA("m64n8k32.s32.u8.s8", LIST4, "{%4, %5, %6, %7}, %8, p", "%9", OUT4(0) : FROM_REGISTERS); }
};
struct Bits : Form<16, Sum::kInteger> {
  static Kind left() { return kBit; }
  static Kind right() { return kBit; }
  MULTIPLY { WGMMA("m64n16k256.s32.b1.b1.and.popc", LIST8, "%8, %9, p", "%10", OUT8(0) : FROM_SHARED); }
};
