// Kernels whose blocks leave stamps: launches, and what their stamps say of them. For programs that measure the GPU
// itself; BLOCK_STAMPS is defined before.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "../../tenants/mps/work.h"

namespace mps_bench {

// An SM, as the driver tells it, and what is asked of the runs.
struct Bench {
  int sms = 1, shared = 0, reserved = 0;  // shared memory: of an SM, and what every block takes beside its own
  int log_words = 26;
  double run_ns = 20e6;                     // of a measured launch
  double block_ns = 800e3;                  // of a block
  bool small = false;                       // the software device: only whether it runs
  cudaStream_t first{}, second{}, other{};  // blocks of the first go before those of the others
};

inline Bench make_bench(const Options& options) {
  Bench bench;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  bench.sms = properties.multiProcessorCount;
  bench.shared = static_cast<int>(properties.sharedMemPerMultiprocessor);
  bench.reserved = static_cast<int>(properties.reservedSharedMemPerBlock);
  bench.small = options.number("small", 0) != 0;
  bench.log_words = static_cast<int>(options.number("log_words", bench.small ? 20 : 26));
  bench.run_ns = 1e6 * options.number("ms", bench.small ? 2 : 20);
  int least = 0, greatest = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreateWithPriority(&bench.first, cudaStreamNonBlocking, greatest));
  CHECK(cudaStreamCreateWithPriority(&bench.second, cudaStreamNonBlocking, least));
  CHECK(cudaStreamCreateWithPriority(&bench.other, cudaStreamNonBlocking, least));
  return bench;
}

// A line of JSON for what did not go; false then. What can still be measured is.
inline bool went(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return true;
  std::printf("{\"what\":\"error\",\"of\":\"%s\",\"error\":\"%s\"}\n", what.c_str(), cudaGetErrorName(error));
  std::fflush(stdout);
  cudaGetLastError();
  return false;
}

// One launch, in nanoseconds of the GPU's timer.
struct Span {
  double begin = 0, end = 0, last_begin = 0;
};

// What a launch did in a window of time.
struct Share {
  double rate = 0;      // blocks per nanosecond
  double resident = 0;  // blocks on an SM, on average
  double block_ns = 0;  // of a block, on average
  double clock = 0;     // cycles per nanosecond
};

using Stamps = std::vector<Stamp>;

inline Span span_of(const Stamps& stamps) {
  Span span{1e300, 0, 0};
  for (const Stamp& each : stamps) {
    span.begin = std::min(span.begin, static_cast<double>(each.begin));
    span.last_begin = std::max(span.last_begin, static_cast<double>(each.begin));
    span.end = std::max(span.end, static_cast<double>(each.end));
  }
  return span;
}

// A block counts by the part of its time that lies in the window.
inline Share share_of(const Stamps& stamps, double from, double to, int sms) {
  Share share;
  double blocks = 0, inside = 0, all = 0, clocks = 0;
  for (const Stamp& each : stamps) {
    const double begin = static_cast<double>(each.begin), end = static_cast<double>(each.end);
    const double common = std::min(end, to) - std::max(begin, from);
    if (common <= 0 || end <= begin) continue;
    blocks += common / (end - begin), inside += common;
    all += end - begin, clocks += each.clocks;
  }
  if (to <= from || all <= 0) return share;
  share.rate = blocks / (to - from);
  share.resident = inside / (to - from) / sms;
  share.block_ns = inside / blocks;
  share.clock = clocks / all;
  return share;
}

// A kernel with its memory, for launches of up to `most` blocks.
class Subject {
 public:
  Subject(const Kind& kind, const Bench& bench, uint32_t most) : kind_(kind), bench_(bench), most_(most) {
    const size_t words = size_t{1} << bench.log_words;
    data_.mask = static_cast<uint32_t>(words - 1);
    uint32_t* in = nullptr;
    float* vector = nullptr;
    CHECK(cudaMalloc(&in, words * sizeof(uint32_t)));
    CHECK(cudaMalloc(&vector, words / 32 * sizeof(float)));
    const size_t outs = std::max<size_t>(size_t{most} * kThreads, kind.writes_everywhere ? words : 0);
    CHECK(cudaMalloc(&data_.out, outs * sizeof(float)));
    CHECK(cudaMalloc(&data_.marks, most * sizeof(uint32_t)));
    CHECK(cudaMalloc(&data_.stamps, most * sizeof(Stamp)));
    fill_input<<<256, kThreads>>>(in, vector, data_.mask, kind.fill);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    data_.in = in, data_.vector = vector;
    CHECK(cudaFuncGetAttributes(&attributes_, reinterpret_cast<const void*>(kind.kernel)));
    went(cudaFuncSetAttribute(reinterpret_cast<const void*>(kind.kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bench.shared - bench.reserved - static_cast<int>(attributes_.sharedSizeBytes)),
         "dynamic shared memory of " + name());
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident_, kind.kernel, kThreads, 0));
  }

  std::string name() const { return kind_.name; }
  const cudaFuncAttributes& attributes() const { return attributes_; }
  int resident() const { return resident_; }
  int rounds() const { return rounds_; }
  void set_rounds(int rounds) { rounds_ = rounds; }

  // The part of an SM's memory that is shared memory, in percent; -1: as the driver likes.
  void carve(int percent) const {
    went(cudaFuncSetAttribute(reinterpret_cast<const void*>(kind_.kernel),
                              cudaFuncAttributePreferredSharedMemoryCarveout, percent),
         "carveout of " + name());
  }
  // Dynamic shared memory with which no more than `count` blocks lie on an SM.
  int padding(int count) const {
    if (count >= resident_) return 0;
    return std::max(0,
                    bench_.shared / (count + 1) + 1 - bench_.reserved - static_cast<int>(attributes_.sharedSizeBytes));
  }
  uint32_t bounded(double blocks) const {
    return static_cast<uint32_t>(std::clamp(blocks, 1.0, static_cast<double>(most_)));
  }

  bool launch(uint32_t blocks, int shared, cudaStream_t stream) {
    blocks_ = 0;
    return launch_more(blocks, shared, stream);
  }
  // Beside what was launched since launch() or restart(), with stamps behind theirs and other memory to read; false
  // where there is no room for them.
  bool launch_more(uint32_t blocks, int shared, cudaStream_t stream) {
    if (blocks_ + blocks > most_) return false;
    Data data = data_;
    data.stamps += blocks_;
    const uint64_t room = uint64_t{most_ - blocks} * kThreads + 1;
    data.first = static_cast<uint32_t>(uint64_t{blocks_} * rounds_ * kThreads % room);
    blocks_ += blocks;
    kind_.kernel<<<blocks, kThreads, shared, stream>>>(data, rounds_, ++mark_);
    return went(cudaGetLastError(), "a launch of " + name());
  }
  void restart() { blocks_ = 0; }
  // Of all since launch() or restart(), once they are over.
  Stamps stamps() const {
    Stamps all(blocks_);
    went(cudaMemcpy(all.data(), data_.stamps, all.size() * sizeof(Stamp), cudaMemcpyDeviceToHost), "stamps");
    return all;
  }

  // Launches alone and waits.
  Stamps alone(uint32_t blocks, int shared) {
    if (!launch(blocks, shared, bench_.first)) return {};
    if (!went(cudaStreamSynchronize(bench_.first), "a run of " + name())) std::exit(3);
    return stamps();
  }
  // So many rounds that a block takes about as long as wanted while the GPU is full.
  void calibrate() {
    const uint32_t blocks = bounded(2.0 * bench_.sms * resident_);
    for (rounds_ = 1; rounds_ < 1 << 24; rounds_ *= 2) {
      const Stamps all = alone(blocks, 0);
      const Span span = span_of(all);
      const double mean = share_of(all, span.begin, span.end, bench_.sms).block_ns;
      if (bench_.small || mean >= bench_.block_ns) break;
      if (mean > bench_.block_ns / 16) {
        rounds_ = std::max(1, static_cast<int>(rounds_ * bench_.block_ns / mean));
        break;
      }
    }
  }

 private:
  const Kind& kind_;
  const Bench& bench_;
  Data data_{};
  cudaFuncAttributes attributes_{};
  uint32_t most_, blocks_ = 0, mark_ = 0;
  int resident_ = 0, rounds_ = 1;
};

}  // namespace mps_bench
