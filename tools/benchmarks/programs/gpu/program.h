// What the GPU figures share: JSON lines, the scale argument, device buffers, repeatable random numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "../measure.h"

// One figure of this program, for tools/bench gpu.
inline void value(const char* name, double number, const char* unit) {
  std::printf("{\"name\":\"%s\",\"value\":%.9g,\"unit\":\"%s\"}\n", name, number, unit);
  std::fflush(stdout);
}

static __global__ void keep_busy(int rounds) {
  float value = static_cast<float>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) value = fmaf(value, 1.0001f, 0.5f);
  asm volatile("" : : "f"(value));
}

// When steady work begins: with the GPU's clocks up. One that has idled takes some 30 ms to raise them, and whether it
// has idled is a matter of how the process started, which "whole run" covers.
inline double begin_steady() {
  const double until = now_us() + 150e3;
  do {
    keep_busy<<<1024, 256>>>(2000);
    CHECK(cudaDeviceSynchronize());
  } while (now_us() < until);
  return now_us();
}

// Says how long the steady work took and whether its result is right; what main returns.
inline int finish(double steady_us, bool correct) {
  value("steady", steady_us / 1e6, "s");
  std::printf("{\"correct\":%s}\n", correct ? "true" : "false");
  if (!correct) std::fprintf(stderr, "the result differs from the CPU's\n");
  return correct ? 0 : 1;
}

// The first argument scales problem and repetitions: 1 (about a second on a large GPU) down to a few thousandths.
class Scale {
 public:
  Scale(int argc, char** argv) : factor_(argc > 1 ? std::atof(argv[1]) : 1) {
    if (factor_ > 0 && factor_ <= 1) return;
    std::fprintf(stderr, "usage: %s [scale, above 0 and at most 1]\n", argv[0]);
    std::exit(2);
  }

  // `full` in this scale, a multiple of `step` and at least `least`.
  int of(int full, int least = 1, int step = 1) const {
    const int scaled = static_cast<int>(full * factor_) / step * step;
    return std::max(scaled, least);
  }

 private:
  double factor_;
};

template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) { CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  T* get() const { return data_; }
  void put(const std::vector<T>& from) const {
    CHECK(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> fetch() const {
    std::vector<T> to(count_);
    CHECK(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// The same sequence everywhere (xorshift64*).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint32_t next() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1dull) >> 32);
  }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((uint64_t{next()} * bound) >> 32); }
  float unit() { return static_cast<float>(next() >> 8) * 0x1p-24f; }

 private:
  uint64_t state_;
};

inline bool close(double a, double b, double relative, double absolute = 0) {
  return std::fabs(a - b) <= absolute + relative * std::max(std::fabs(a), std::fabs(b));
}
