// A kernel of one kind with its memory: launches of a given size, and whether the last one did what it should.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "../shares/tenant.h"
#include "check.h"

namespace mps_bench {

using Kernel = void (*)(Data, int, uint32_t);

struct Kind {
  const char* name;
  Kernel kernel;
  Fill fill;
  bool writes_everywhere;  // an element of `out` for each of the input's
};

// `short`: a kernel of few blocks, as interactive programs launch.
inline const Kind* find_kind(const std::string& name) {
  static constexpr Kind kKinds[] = {
      {"PC", pointer_chasing, Fill::kChain, false}, {"SPMV", sparse_matrix_vector, Fill::kMatrix, false},
      {"ST", stencil, Fill::kNoise, true},          {"BS", black_scholes, Fill::kNoise, false},
      {"MM", matrix_multiply, Fill::kNoise, false}, {"TEA", tea, Fill::kNoise, false},
      {"MRIQ", mri_q, Fill::kNoise, false},         {"SAD", sum_of_differences, Fill::kNoise, true},
      {"short", tea, Fill::kNoise, false},
  };
  for (const Kind& kind : kKinds)
    if (name == kind.name) return &kind;
  return nullptr;
}

class Work {
 public:
  // `log_words`: the input has 2 to that many words of 4 bytes; at least 20. `kind` outlives it.
  Work(const Kind& kind, Grid grid, int log_words) : kind_(kind), grid_(grid), words_(size_t{1} << log_words) {
    data_.mask = static_cast<uint32_t>(words_ - 1);
    CHECK(cudaMalloc(&in_, words_ * sizeof(uint32_t)));
    CHECK(cudaMalloc(&vector_, words_ / 32 * sizeof(float)));
    outs_ = std::max<size_t>(grid.all(), kind.writes_everywhere ? words_ : 0);
    CHECK(cudaMalloc(&data_.out, outs_ * sizeof(float)));
    CHECK(cudaMalloc(&data_.marks, grid.blocks * sizeof(uint32_t)));
    CHECK(cudaMemset(data_.marks, 0, grid.blocks * sizeof(uint32_t)));
    fill_input<<<256, kThreads>>>(in_, vector_, data_.mask, kind.fill);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    data_.in = in_, data_.vector = vector_;
  }
  ~Work() { cudaFreeHost(host_), cudaFree(in_), cudaFree(vector_), cudaFree(data_.out), cudaFree(data_.marks); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  const char* name() const { return kind_.name; }

  void launch(int rounds, cudaStream_t stream) {
    kind_.kernel<<<grid_.blocks, grid_.threads, 0, stream>>>(data_, rounds, ++mark_);
    CHECK(cudaGetLastError());
  }

  // Before copy().
  void prepare_copies() {
    if (host_ != nullptr) return;
    CHECK(cudaMallocHost(&host_, words_ * sizeof(uint32_t)));
    CHECK(cudaMemcpy(host_, in_, words_ * sizeof(uint32_t), cudaMemcpyDeviceToHost));
  }
  // Brings the input's first bytes anew, as they are: all of them, where there are fewer.
  void copy(size_t bytes, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(in_, host_, std::min(bytes, words_ * sizeof(uint32_t)), cudaMemcpyHostToDevice, stream));
  }

  // Launches once more, of `rounds`, into memory that was cleared, and waits. Empty: every block ran, and some threads
  // of all that wrote have written what the host computes.
  std::string wrong(int rounds) {
    CHECK(cudaMemset(data_.out, 0xff, outs_ * sizeof(float)));
    launch(rounds, nullptr);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint32_t> marks(grid_.blocks);
    CHECK(cudaMemcpy(marks.data(), data_.marks, marks.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    for (uint32_t block = 0; block < grid_.blocks; ++block)
      if (marks[block] != mark_) return "block " + std::to_string(block) + " did not run";
    return wrong_values(rounds);
  }

 private:
  std::string wrong_values(int rounds) const {
    const Reference reference(kind_.name, data_.mask, grid_, rounds);
    std::mt19937 random(mark_);
    for (int sample = 0; sample < 64; ++sample) {
      const uint32_t thread = sample == 0 ? 0 : sample == 1 ? grid_.all() - 1 : random() % grid_.all();
      const int round = static_cast<int>(random() % static_cast<uint32_t>(rounds));
      const uint32_t place = reference.place(thread, round);
      float found = 0;
      CHECK(cudaMemcpy(&found, data_.out + place, sizeof found, cudaMemcpyDeviceToHost));
      const double expected = reference.value(thread, round);
      if (!(std::abs(found - expected) <= reference.tolerance() * std::max(1.0, std::abs(expected))))
        return "thread " + std::to_string(thread) + " wrote " + std::to_string(found) + ", expected " +
               std::to_string(expected);
    }
    return "";
  }

  const Kind& kind_;
  Grid grid_;
  size_t words_, outs_ = 0;
  Data data_{};
  uint32_t* in_ = nullptr;
  void* host_ = nullptr;  // the input, pinned; null: it has not been asked for
  float* vector_ = nullptr;
  uint32_t mark_ = 0;
};

}  // namespace mps_bench
