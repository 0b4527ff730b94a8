// Two kernels given to the hardware one right after the other, on two streams: do they overlap, and how long does the
// second take? As Cruz et al. have measured it: synthetic kernels that take set parts of an SM, and real ones. A line
// of JSON for each pair, with the times of the GPU's own timer.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runs.h"

namespace mps_bench {

// A kernel for any number of blocks and rounds.
struct Load {
  std::string name;
  int threads = 0, registers = 0, shared = 0, resident = 0;
  int rounds = 1;
  std::function<void(int percent)> carve;
  std::function<bool(uint32_t blocks, int rounds, cudaStream_t stream)> launch;
  std::function<Stamps()> stamps;
};

// Keeps kLive numbers in registers. Busy: arithmetic on all of them; waiting: for its last load, from the L2 cache.
template <int kLive, bool kWaits>
__global__ void synthetic(Stamp* stamps, const uint32_t* chain, float* out, int rounds) {
  stamp_begin(stamps);
  float live[kLive];
  for (int i = 0; i < kLive; ++i) live[i] = static_cast<float>(threadIdx.x + i);
  uint32_t at = mix(thread_number() / 32) & ((1u << 20) - 1);
  for (int round = 0; round < rounds; ++round) {
    if (kWaits) at = chain[at];
#pragma unroll
    for (int i = 0; i < kLive; ++i) {
      if (!kWaits) live[i] = fmaf(live[i], 0.999f, live[(i + 1) % kLive]);
      asm volatile("" : "+f"(live[i]));
    }
  }
  float sum = static_cast<float>(at);
  for (int i = 0; i < kLive; ++i) sum += live[i];
  if (sum == 12345.678f) out[0] = sum;
  stamp_end(stamps);
}

constexpr uint32_t kMostBlocks = 1u << 18;

class Synthetic {
 public:
  explicit Synthetic(const Bench& bench) : bench_(bench) {
    CHECK(cudaMalloc(&chain_, sizeof(uint32_t) << 20));
    CHECK(cudaMalloc(&out_, 256));
    float* vector = nullptr;
    CHECK(cudaMalloc(&vector, sizeof(float) << 15));
    fill_input<<<256, kThreads>>>(chain_, vector, (1u << 20) - 1, Fill::kChain);
    for (Stamp*& each : stamps_) CHECK(cudaMalloc(&each, kMostBlocks * sizeof(Stamp)));
    CHECK(cudaDeviceSynchronize());
  }

  // `place`: 0 for the first of a pair, 1 for the second. A block alone on the GPU takes some 0.2 ms.
  Load load(int live, bool waits, int threads, int shared, int place) const {
    using Kernel = void (*)(Stamp*, const uint32_t*, float*, int);
    const Kernel kernel = waits ? (live <= 16   ? synthetic<8, true>
                                   : live <= 48 ? synthetic<40, true>
                                                : synthetic<96, true>)
                                : (live <= 16   ? synthetic<8, false>
                                   : live <= 48 ? synthetic<40, false>
                                                : synthetic<96, false>);
    const int registers = live <= 16 ? 8 : live <= 48 ? 40 : 96;
    cudaFuncAttributes attributes{};
    Load load;
    CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    went(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bench_.shared - bench_.reserved),
         "dynamic shared memory of a synthetic kernel");
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&load.resident, kernel, threads, shared));
    load.name = waits ? "waits" : "busy";
    load.threads = threads, load.registers = attributes.numRegs, load.shared = shared;
    load.rounds = bench_.small ? 10 : waits ? 1000 : 60000 / registers;
    load.carve = [kernel](int percent) {
      went(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
                                percent),
           "carveout of a synthetic kernel");
    };
    // One launch at a time writes these.
    auto launched = std::make_shared<uint32_t>(0);
    Stamp* stamps = stamps_[place];
    load.launch = [=, chain = chain_, out = out_](uint32_t blocks, int rounds, cudaStream_t stream) {
      *launched = blocks;
      kernel<<<blocks, threads, shared, stream>>>(stamps, chain, out, rounds);
      return went(cudaGetLastError(), "a launch of a synthetic kernel");
    };
    load.stamps = [=] {
      Stamps all(*launched);
      went(cudaMemcpy(all.data(), stamps, all.size() * sizeof(Stamp), cudaMemcpyDeviceToHost), "stamps");
      return all;
    };
    return load;
  }

 private:
  const Bench& bench_;
  uint32_t* chain_ = nullptr;
  float* out_ = nullptr;
  Stamp* stamps_[2] = {};
};

inline Load load_of(Subject* subject) {
  Load load;
  load.name = subject->name();
  load.threads = kThreads, load.registers = subject->attributes().numRegs;
  load.shared = static_cast<int>(subject->attributes().sharedSizeBytes);
  load.resident = subject->resident(), load.rounds = subject->rounds();
  load.carve = [=](int percent) { subject->carve(percent); };
  load.launch = [=](uint32_t blocks, int rounds, cudaStream_t stream) {
    const int usual = subject->rounds();
    subject->set_rounds(rounds);
    const bool good = subject->launch(blocks, 0, stream);
    subject->set_rounds(usual);
    return good;
  };
  load.stamps = [=] { return subject->stamps(); };
  return load;
}

// One of a pair: blocks, and how many rounds they make.
struct Half {
  Load load;
  uint32_t blocks = 1;
  int rounds = 1;
  double alone_ns = 0;
};

inline void run_alone(const Bench& bench, Half* half) {
  for (int i = 0; i < 2; ++i) {
    if (!half->load.launch(half->blocks, half->rounds, bench.second)) return;
    if (!went(cudaDeviceSynchronize(), "a run of " + half->load.name)) std::exit(3);
  }
  const Span span = span_of(half->load.stamps());
  half->alone_ns = span.end - span.begin;
}

inline void print_half(const char* name, const Half& half) {
  std::printf(
      ",\"%s\":{\"name\":\"%s\",\"threads\":%d,\"registers\":%d,\"shared\":%d,\"fits\":%d,\"blocks\":%u,"
      "\"rounds\":%d,\"alone_ns\":%.0f}",
      name, half.load.name.c_str(), half.load.threads, half.load.registers, half.load.shared, half.load.resident,
      half.blocks, half.rounds, half.alone_ns);
}

// `lasting`: the first is made so long that it ends after the second, as the paper's estimate has it.
inline void overlap(const Bench& bench, const char* set, Half first, Half second, int carveout, bool lasting) {
  first.load.carve(carveout);
  second.load.carve(carveout);
  run_alone(bench, &second);
  Span one, two;
  for (int tries = 1;; ++tries, first.rounds *= 2) {
    // Equal priorities: the order is that of the launches.
    if (!first.load.launch(first.blocks, first.rounds, bench.other) ||
        !second.load.launch(second.blocks, second.rounds, bench.second))
      return;
    if (!went(cudaDeviceSynchronize(), "a pair of " + first.load.name + " and " + second.load.name)) std::exit(3);
    one = span_of(first.load.stamps()), two = span_of(second.load.stamps());
    if (!lasting || bench.small || one.end >= two.end || one.end - one.begin > 150e6 || tries == 9) break;
  }
  run_alone(bench, &first);
  std::printf("{\"what\":\"overlap\",\"set\":\"%s\",\"carveout\":%d,\"lasting\":%s", set, carveout,
              lasting ? "true" : "false");
  print_half("first", first);
  print_half("second", second);
  std::printf(",\"first_end_ns\":%.0f,\"second_begin_ns\":%.0f,\"second_end_ns\":%.0f,\"first_last_begin_ns\":%.0f}\n",
              one.end - one.begin, two.begin - one.begin, two.end - one.begin, one.last_begin - one.begin);
  std::fflush(stdout);
}

// A kernel of the paper's table 2, by chance.
class Chance {
 public:
  Load load(const Synthetic& synthetic, bool waits, int place) {
    static constexpr int kSizes[] = {128, 256, 512}, kShared[] = {0, 0, 1024, 4096, 12288}, kLive[] = {8, 8, 40, 96};
    return synthetic.load(kLive[random_() % 4], waits, kSizes[random_() % 3], kShared[random_() % 5], place);
  }
  double between(double low, double high) { return low + (high - low) * (random_() % 4096) / 4096; }
  uint32_t blocks(const Bench& bench, const Load& load, double waves) {
    return static_cast<uint32_t>(std::max(1.0, waves * bench.sms * load.resident));
  }

 private:
  std::mt19937 random_{20};
};

inline void synthetic_overlaps(const Bench& bench, int carveout) {
  const Synthetic synthetic(bench);
  Chance chance;
  const auto half = [&](Load load, double waves) {
    Half made{load, chance.blocks(bench, load, waves), load.rounds, 0};
    return made;
  };
  const int each = bench.small ? 1 : 12;
  // Case A, both waiting, both busy, one of each.
  for (int kind = 0; kind < 4; ++kind) {
    for (int i = 0; i < (kind < 2 ? each : each / 3); ++i) {
      const Load first = chance.load(synthetic, kind % 2 == 0, 0),
                 second = chance.load(synthetic, kind == 0 || kind == 3, 1);
      const double waves = chance.between(0.1, 0.95);
      overlap(bench, "synthetic", half(first, waves), half(second, chance.between(0.3, 5)), carveout, true);
    }
  }
  // Case B: the first has a round that is not full. Case A too, with a first that ends before the second.
  for (int i = 0; i < each; ++i) {
    const Load first = chance.load(synthetic, i % 3 != 0, 0), second = chance.load(synthetic, i % 3 != 0, 1);
    const double waves = (i % 4 == 3 ? 0 : 1 + i % 3) + chance.between(0.1, 0.9);
    overlap(bench, "synthetic", half(first, waves), half(second, chance.between(0.3, 5)), carveout, false);
  }
  // Case C: full rounds only, and a first beside which nothing fits although not all SMs' blocks are taken.
  for (int i = 0; i < each / 3; ++i) {
    const bool waits = i % 2 == 0;
    const Load first = chance.load(synthetic, waits, 0), second = chance.load(synthetic, waits, 1);
    overlap(bench, "synthetic", half(first, 1 + i % 2), half(second, chance.between(0.3, 3)), carveout, false);
  }
  if (bench.small) return;
  const Load wide = synthetic.load(8, true, 512, 70000, 0), large = synthetic.load(8, true, 256, 60000, 1);
  overlap(bench, "synthetic", half(wide, 0.9), half(large, 1.5), carveout, false);
  overlap(bench, "synthetic", half(wide, 0.5), half(large, 1.5), carveout, true);
}

// Every kernel first, in a part of a wave, beside every other one in some waves; and some in more than a wave.
inline void real_overlaps(const Bench& bench, const std::vector<std::unique_ptr<Subject>>& subjects, int carveout) {
  const size_t count = subjects.size();
  const auto half = [&](size_t which, double waves) {
    const Load load = load_of(subjects[which].get());
    const auto blocks = static_cast<uint32_t>(std::max(1.0, waves * bench.sms * load.resident));
    return Half{load, blocks, load.rounds, 0};
  };
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i == j) continue;
      overlap(bench, "real", half(i, 0.25 + 0.25 * static_cast<double>((i + j) % 3)), half(j, 4.6), carveout, true);
    }
    if (count > 1)
      overlap(bench, "real", half(i, 2.4), half((i + 3) % count == i ? 0 : (i + 3) % count, 3.3), carveout, false);
  }
}

inline void overlaps(const Bench& bench, const std::vector<std::unique_ptr<Subject>>& subjects) {
  for (int carveout : {100, -1}) {
    synthetic_overlaps(bench, carveout);
    real_overlaps(bench, subjects, carveout);
  }
}

}  // namespace mps_bench
