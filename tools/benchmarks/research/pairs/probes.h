// What the GPU itself gives: bandwidth, latencies, and how often it issues what. A line of JSON for each.
#pragma once

#include "runs.h"

namespace mps_bench {

inline void say_constant(const char* name, double value, const char* unit) {
  std::printf("{\"what\":\"constant\",\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name, value, unit);
  std::fflush(stdout);
}

__global__ void spin_clock(unsigned long long* out, long long cycles) {
  const unsigned long long since = gpu_time();
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = gpu_time() - since, out[1] = clock64() - begin;
}

enum class Op { kFloat, kLogic, kMultiply, kSpecial, kConvert, kShared };

// One instruction (two of kLogic) whose input is its own last output; in assembly where a compiler could
// compute several at once. For kShared an address, for the others any number.
template <Op kOp>
__device__ inline void dependent(uint32_t& x, [[maybe_unused]] uint32_t by) {
  if constexpr (kOp == Op::kFloat) x = __float_as_uint(fmaf(__uint_as_float(x), 0.999f, 0.5f));
  if constexpr (kOp == Op::kLogic) x = (x + 0x9e3779b9u) ^ 0x85ebca6bu;
  if constexpr (kOp == Op::kMultiply) asm volatile("mad.lo.u32 %0, %0, %1, %0;" : "+r"(x) : "r"(by));
  if constexpr (kOp == Op::kSpecial) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+r"(x));
  if constexpr (kOp == Op::kConvert) asm volatile("{.reg .f32 f; cvt.rn.f32.u32 f, %0; mov.b32 %0, f;}" : "+r"(x));
  if constexpr (kOp == Op::kShared) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(x));
}
constexpr int kUnroll = 64;

// `kChains` independent chains of a thread; clocks of each block.
template <Op kOp, int kChains>
__global__ void issue(uint32_t* out, uint32_t* clocks, int rounds, uint32_t by) {
  __shared__ uint32_t line[1024];
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(line));
  for (uint32_t i = threadIdx.x; i < 1024; i += blockDim.x) line[i] = base + 4 * ((i + 32) & 1023);
  uint32_t x[kChains];
  for (int chain = 0; chain < kChains; ++chain)
    x[chain] = kOp == Op::kShared ? base + 4 * ((threadIdx.x + 256 * chain) & 1023) : threadIdx.x + chain;
  __syncthreads();
  const long long begin = clock64();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) dependent<kOp>(x[chain], by);
  }
  const long long end = clock64();
  uint32_t sum = 0;
  for (int chain = 0; chain < kChains; ++chain) sum += x[chain];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (threadIdx.x == 0) clocks[blockIdx.x] = static_cast<uint32_t>(end - begin);
}

template <Op kOp>
void issue_rates(const Bench& bench, uint32_t* out, const char* name, double each) {
  const int rounds = bench.small ? 1 : 64;
  uint32_t* clocks = out + 4 * 1024 * bench.sms;
  const auto measured = [&](auto kernel, int blocks, int threads, const std::string& what) {
    kernel<<<blocks, threads>>>(out, clocks, rounds, 0x85ebca6bu);
    kernel<<<blocks, threads>>>(out, clocks, rounds, 0x85ebca6bu);
    uint32_t taken = 0;
    const bool good =
        went(cudaGetLastError(), what) && went(cudaMemcpy(&taken, clocks, sizeof taken, cudaMemcpyDeviceToHost), what);
    return good ? static_cast<double>(std::max(taken, 1u)) : 0.0;
  };
  const std::string text = name;
  const double all = each * rounds * kUnroll;
  if (const double taken = measured(issue<kOp, 1>, 1, 32, text))
    say_constant((text + " dependent").c_str(), taken / all, "cycles");
  if (const double taken = measured(issue<kOp, 4>, 2 * bench.sms, 1024, text))
    say_constant((text + " issue").c_str(), 4 * 64 * all / taken, "warp instructions a cycle and SM");
}

enum class Way { kRead, kWrite, kCopy };

template <Way kWay>
__global__ void stream_words(const uint4* in, uint4* out, size_t count, int passes) {
  uint4 sum{};
  for (int pass = 0; pass < passes; ++pass)
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
      uint4 value{1, 2, 3, 4};
      if (kWay != Way::kWrite) value = in[i];
      if (kWay != Way::kRead) out[i] = value;
      sum.x += value.x, sum.y ^= value.y;
    }
  if (kWay == Way::kRead && sum.x == 1 && sum.y == 0x12345) out[0] = sum;
}

// Every lane reads one word of a sector of its own.
__global__ void random_sectors(const uint32_t* in, uint32_t* out, uint32_t mask, int rounds) {
  uint32_t at = mix(thread_number()), sum = 0;
  for (int round = 0; round < rounds; ++round) {
    at = at * 1664525u + 1013904223u;
    sum += in[(at >> 2 ^ at << 9) & mask & ~7u];
  }
  if (sum == 0x12345) out[0] = sum;
}

template <typename Launch>
double best_ns(int runs, Launch launch) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < runs; ++i) {
    CHECK(cudaEventRecord(begin));
    launch();
    CHECK(cudaEventRecord(end));
    if (!went(cudaEventSynchronize(end), "a bandwidth")) std::exit(3);
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  return 1e6 * best;
}

// The line (32 words) after line `i`, in an order that looks random; all lanes of a line say the same.
__global__ void fill_lines(uint32_t* in, size_t words) {
  const uint32_t mask = static_cast<uint32_t>(words / 32 - 1);
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words; i += size_t{gridDim.x} * blockDim.x)
    in[i] = (static_cast<uint32_t>(i / 32) * 1664525u + 1013904223u) & mask;
}

// Coalesced: a warp's lanes are in one line. Else every lane follows lines of its own.
template <bool kCoalesced>
__global__ void chase_lines(const uint32_t* in, uint32_t* out, uint32_t lines, int rounds, unsigned long long* clocks) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t at = mix(kCoalesced ? thread_number() / 32 : thread_number()) & (lines - 1);
  const long long begin = clock64();
  for (int round = 0; round < rounds; ++round) at = in[size_t{at} * 32 + lane];
  if (at == ~0u) out[0] = at;  // waits for the last
  const long long end = clock64();
  if (threadIdx.x == 0) clocks[blockIdx.x] = end - begin;
}

template <bool kCoalesced>
double chase_ns(const Bench& bench, uint32_t* in, uint32_t* out, size_t words, int blocks, int threads, int rounds,
                double* clocks) {
  auto* place = reinterpret_cast<unsigned long long*>(out + 64);
  const double ns = best_ns(bench.small ? 1 : 2, [&] {
    chase_lines<kCoalesced><<<blocks, threads>>>(in, out, static_cast<uint32_t>(words / 32), rounds, place);
  });
  unsigned long long taken = 0;
  CHECK(cudaMemcpy(&taken, place, sizeof taken, cudaMemcpyDeviceToHost));
  *clocks = static_cast<double>(taken) / rounds;
  return ns;
}

inline void latencies(const Bench& bench, uint32_t* in, uint32_t* out, size_t most_words) {
  const int rounds = bench.small ? 20 : 4000;
  double clocks = 0;
  for (size_t words : {size_t{1} << 20, size_t{1} << 26, size_t{1} << 29}) {
    if (words > most_words) continue;
    fill_lines<<<4 * bench.sms, 256>>>(in, words);
    const std::string size = std::to_string(words >> 18) + " MiB";
    chase_ns<true>(bench, in, out, words, 1, 32, rounds, &clocks);
    say_constant(("latency, coalesced, " + size).c_str(), clocks, "cycles");
    chase_ns<false>(bench, in, out, words, 1, 32, rounds, &clocks);
    say_constant(("latency, 32 sectors, " + size).c_str(), clocks, "cycles");
    if (words != size_t{1} << 26) continue;
    for (int warps : {4, 8, 16, 32, 64}) {  // on each SM
      const int blocks = warps > 32 ? 2 * bench.sms : bench.sms, threads = 32 * std::min(warps, 32);
      const double lines = static_cast<double>(blocks) * (threads / 32) * (rounds / 4);
      const std::string text = "chase of " + std::to_string(warps) + " warps, ";
      double ns = chase_ns<true>(bench, in, out, words, blocks, threads, rounds / 4, &clocks);
      say_constant((text + "coalesced, latency").c_str(), clocks, "cycles");
      say_constant((text + "coalesced, bandwidth").c_str(), lines * 128 / ns, "bytes/ns");
      ns = chase_ns<false>(bench, in, out, words, blocks, threads, rounds / 4, &clocks);
      say_constant((text + "32 sectors, latency").c_str(), clocks, "cycles");
      say_constant((text + "32 sectors, bandwidth").c_str(), lines * 1024 / ns, "bytes/ns");
    }
  }
}

inline void bandwidths(const Bench& bench, uint32_t* in, uint32_t* out, size_t words) {
  const int runs = bench.small ? 1 : 4, blocks = 8 * bench.sms;
  const auto* from = reinterpret_cast<const uint4*>(in);
  auto* to = reinterpret_cast<uint4*>(out);
  const size_t count = words / 4;
  const double bytes = static_cast<double>(words) * 4;
  const double read = best_ns(runs, [&] { stream_words<Way::kRead><<<blocks, 256>>>(from, to, count, 1); });
  say_constant("bandwidth, read", bytes / read, "bytes/ns");
  const double write = best_ns(runs, [&] { stream_words<Way::kWrite><<<blocks, 256>>>(from, to, count, 1); });
  say_constant("bandwidth, write", bytes / write, "bytes/ns");
  const double copy = best_ns(runs, [&] { stream_words<Way::kCopy><<<blocks, 256>>>(from, to, count, 1); });
  say_constant("bandwidth, copy", 2 * bytes / copy, "bytes/ns");
  const size_t cached = std::min<size_t>(count, size_t{1} << 20);  // 16 MiB
  const int times = bench.small ? 1 : 50;
  const double l2 = best_ns(runs, [&] { stream_words<Way::kRead><<<blocks, 256>>>(from, to, cached, times); });
  say_constant("bandwidth, read, 16 MiB in L2", 16.0 * static_cast<double>(cached) * times / l2, "bytes/ns");
  const int rounds = bench.small ? 4 : 256;
  for (size_t part : {size_t{1} << 21, size_t{1} << 26, size_t{1} << 29}) {
    if (part > words) continue;
    const double ns =
        best_ns(runs, [&] { random_sectors<<<blocks, 256>>>(in, out, static_cast<uint32_t>(part - 1), rounds); });
    say_constant(("bandwidth, random sectors, " + std::to_string(part >> 18) + " MiB").c_str(),
                 32.0 * blocks * 256 * rounds / ns, "bytes/ns");
  }
}

inline void constants(const Bench& bench) {
  const size_t words = bench.small ? size_t{1} << 21 : size_t{1} << 29;
  uint32_t *in = nullptr, *out = nullptr;
  CHECK(cudaMalloc(&in, words * sizeof(uint32_t)));
  CHECK(cudaMalloc(&out, words * sizeof(uint32_t)));
  CHECK(cudaMemset(in, 0, words * sizeof(uint32_t)));
  say_constant("SMs", bench.sms, "");
  say_constant("shared memory of an SM", bench.shared, "bytes");
  say_constant("shared memory that every block takes", bench.reserved, "bytes");
  auto* pair = reinterpret_cast<unsigned long long*>(out);
  for (int i = 0; i < 2; ++i) spin_clock<<<bench.sms, 256>>>(pair, bench.small ? 1000 : 200 << 20);
  unsigned long long found[2] = {1, 1};
  CHECK(cudaMemcpy(found, pair, sizeof found, cudaMemcpyDeviceToHost));
  say_constant("clock", static_cast<double>(found[1]) / static_cast<double>(std::max(found[0], 1ull)), "cycles/ns");
  issue_rates<Op::kFloat>(bench, out, "float multiply-add", 1);
  issue_rates<Op::kLogic>(bench, out, "integer add and logic", 2);
  issue_rates<Op::kMultiply>(bench, out, "integer multiply-add", 1);
  issue_rates<Op::kSpecial>(bench, out, "special function", 1);
  issue_rates<Op::kConvert>(bench, out, "conversion to float", 1);
  issue_rates<Op::kShared>(bench, out, "shared load", 1);
  bandwidths(bench, in, out, words);
  latencies(bench, in, out, words);
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
}

}  // namespace mps_bench
