// What threads must have written, computed by the host from nothing but the definition of the input.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels.h"

namespace mps_bench {

struct Grid {
  uint32_t blocks, threads;
  uint32_t all() const { return blocks * threads; }
};

class Reference {
 public:
  Reference(std::string kind, uint32_t mask, Grid grid, int rounds)
      : kind_(std::move(kind)), mask_(mask), grid_(grid), rounds_(rounds) {}

  // Where thread `thread` writes in round `round`; what all but ST and SAD write does not depend on the round.
  uint32_t place(uint32_t thread, int round) const {
    if (kind_ == "ST") return (thread + round * grid_.all()) & mask_;
    if (kind_ == "SAD") return (thread + round * grid_.all()) & mask_ / 4;
    return thread;
  }

  double value(uint32_t thread, int round) const {
    if (kind_ == "PC") return chase(thread);
    if (kind_ == "SPMV") return rows(thread);
    if (kind_ == "ST") return points(place(thread, round));
    if (kind_ == "BS") return options(thread);
    if (kind_ == "MM") return product(thread);
    if (kind_ == "MRIQ") return voxel(thread);
    if (kind_ == "SAD") return differences(place(thread, round));
    uint32_t v0 = thread, v1 = ~thread;
    for (int i = 0; i < rounds_; ++i) tea_encrypt(&v0, &v1);
    return unit(v0 ^ v1);
  }

  // Of the value; single precision in another order, and the GPU's short cuts for MRIQ.
  double tolerance() const { return kind_ == "MRIQ" ? 1e-5 * kSamples * rounds_ + 1e-3 : 1e-3; }

 private:
  double chase(uint32_t thread) const {
    uint32_t at = mix(thread) & mask_;
    for (int i = 0; i < rounds_; ++i) at = word(Fill::kChain, at, mask_);
    return unit(at << 8);
  }
  double rows(uint32_t thread) const {
    const uint32_t rows = (mask_ + 1) / 2 / kNonZeros;
    double sum = 0;
    for (int round = 0; round < rounds_; ++round) {
      const uint32_t row = (thread + round * grid_.all()) & (rows - 1);
      for (uint32_t k = 0; k < kNonZeros; ++k) {
        const uint32_t value = word(Fill::kMatrix, mask_ / 2 + 1 + k * rows + row, mask_);
        sum += static_cast<double>(unit(value)) * vector_at(word(Fill::kMatrix, k * rows + row, mask_));
      }
    }
    return sum;
  }
  double noise(uint32_t at) const { return unit(word(Fill::kNoise, at & mask_, mask_)); }
  double points(uint32_t at) const {
    double sum = -6 * noise(at);
    for (uint32_t step : {1u, 256u, kPlane}) sum += noise(at + step) + noise(at - step);
    return sum;
  }
  double options(uint32_t thread) const {
    const uint32_t options = (mask_ + 1) / 4;
    double sum = 0;
    for (int round = 0; round < rounds_; ++round) {
      const uint32_t at = (thread + round * grid_.all()) & (options - 1);
      sum += option_price(5 + 25 * static_cast<float>(noise(at)), 1 + 99 * static_cast<float>(noise(at + options)),
                          0.25f + 9.75f * static_cast<float>(noise(at + 2 * options)));
    }
    return sum;
  }
  double product(uint32_t thread) const {
    const uint32_t block = thread / kThreads, x = thread % kThreads % kTile, y = thread % kThreads / kTile;
    const uint32_t column = block % (kSide / kTile) * kTile + x;
    const uint32_t row = block / (kSide / kTile) % (kSide / kTile) * kTile + y;
    double sum = 0;
    for (int round = 0; round < rounds_; ++round) {
      const uint32_t from = round * kTile % kSide;
      for (uint32_t k = 0; k < kTile; ++k) sum += noise(row * kSide + from + k) * noise((from + k) * kSide + column);
    }
    return sum;
  }
  double voxel(uint32_t thread) const {
    const uint32_t seed = mix(thread);
    const double x = unit(seed), y = unit(seed * 3), z = unit(seed * 5);
    double real = 0, imaginary = 0;
    for (uint32_t i = 0; i < kSamples * static_cast<uint32_t>(rounds_); ++i) {
      const uint32_t at = i % 2048 * 4;
      const double angle = 2 * (noise(at) * x + noise(at + 1) * y + noise(at + 2) * z) - 3;
      real += noise(at + 3) * std::cos(angle), imaginary += noise(at + 3) * std::sin(angle);
    }
    return real + 2 * imaginary;
  }
  double differences(uint32_t at) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 4; ++i)
      sum += byte_differences(word(Fill::kNoise, 4 * at + i, mask_),
                              word(Fill::kNoise, 4 * ((at + kMotion) & mask_ / 4) + i, mask_));
    return sum;
  }

  std::string kind_;
  uint32_t mask_;
  Grid grid_;
  int rounds_;
};

}  // namespace mps_bench
